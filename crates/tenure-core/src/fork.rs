//! Forks: a new session that begins with a part of another one's log (promise P17, design 7.10).
//!
//! A fork takes over what was said and decided, never what is under way: open calls get a result that
//! says so (hazard Z-10), waits and callbacks stay with the parent, and use starts at zero.

use crate::agent::Effect;
use crate::budget::{Budget, Limits};
use crate::call::{self, CallKind, Done};
use crate::event::{Body, Draft, Event, Outcome, Stop};
use crate::id::{EventId, SessionId, SnapshotId};
use crate::json::Json;
use crate::session::{Compaction, Files, Position, Repeats, Retry, Session, Status};
use crate::time::Timestamp;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// Commands that are named when their changes are gone.
const NAMED_COMMANDS: usize = 20;

/// Letters of a command that are shown.
const COMMAND_LETTERS: usize = 120;

/// Of which session a fork is, and up to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkedFrom {
    /// The session that was forked.
    pub session: SessionId,
    /// The last event that both have; 0 for none.
    pub seq: u64,
}

/// What a fork is made of, besides a part of a log.
#[derive(Clone, Debug)]
pub struct NewFork {
    /// Its id.
    pub id: SessionId,
    /// When it is made.
    pub created_at: Timestamp,
    /// For people.
    pub title: String,
    /// What it may use, counted from zero.
    pub limits: Limits,
    /// The files that it starts with; `None` for none.
    pub snapshot: Option<SnapshotId>,
    /// What its model is told about the files, if there is something to tell.
    pub told: Option<String>,
}

impl Limits {
    /// What is left of them after `used`, for a session that starts to count at zero. What counts in a row
    /// stays as it is.
    #[must_use]
    pub fn left(self, used: &Budget, age: crate::time::Millis) -> Self {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        Self {
            steps: left(self.steps, used.steps),
            tokens: left(self.tokens, used.tokens()),
            cost_usd_micros: left(self.cost_usd_micros, used.cost_usd_micros()),
            wall: left(self.wall, age),
            failures: self.failures,
            identical_calls: self.identical_calls,
        }
    }
}

/// The head of a fork as of the last shared event, and the events with which its own part of the log begins:
/// after them it is idle, and waits for somebody to say something. `parent` is the fold of the shared part.
pub fn fork(parent: Session, new: NewFork) -> (Session, Vec<Draft>) {
    let from = ForkedFrom { session: parent.id, seq: parent.last_seq };
    let head = Session { id: new.id, created_at: new.created_at, title: new.title, ..parent };
    let first = Body::Forked { from, snapshot: new.snapshot, limits: new.limits };
    let mut drafts = alloc::vec![Draft::new(first)];
    // As the events after it find it.
    let mut fork = head.clone();
    restart(&mut fork, from, new.limits, new.snapshot);
    if let Position::Calling { span, .. } = fork.position {
        drafts.push(call::lost_span(&fork, span));
    }
    let text = "Not run in this fork, which began while the call was open.";
    drafts.extend(fork.calls.iter().map(|call| call::finished(call, Done::text(Outcome::NotRun, text))));
    if let Some(reason) = new.told {
        drafts.push(Draft::new(Body::EnvironmentReset { reason, snapshot: new.snapshot }));
    }
    drafts.push(Draft::new(Body::StatusIdle { stop: Stop::EndTurn }));
    (head, drafts)
}

/// What the first event of a fork does to its head.
pub(crate) fn restart(session: &mut Session, from: ForkedFrom, limits: Limits, snapshot: Option<SnapshotId>) {
    if session.has_ended() {
        session.position = if session.calls.is_empty() { Position::Idle } else { Position::Tools };
        session.status = Status::Running;
    }
    session.forked = Some(from);
    session.wait = None;
    session.is_paused = false;
    session.callbacks.clear();
    session.sent = None;
    session.retry = Retry::default();
    session.repeats = Repeats::default();
    session.compaction = Compaction::default();
    session.budget = Budget { limits, ..Budget::default() };
    // The event that comes tells of them.
    session.files = Files { snapshot, snapshot_seq: from.seq + 1, epoch: 0, is_dirty: false };
}

/// Names the calls among `rows` that ended and may have changed files, for whoever has files of before them;
/// `None` if there are none.
pub fn undone(rows: &[Event]) -> Option<String> {
    let answered: BTreeSet<EventId> = rows.iter().filter_map(|row| row.body.answers()).collect();
    // Only those that were not run changed nothing for sure.
    let idle: BTreeSet<EventId> = rows.iter().filter_map(not_run).collect();
    let mut named = Vec::new();
    let mut more = 0_usize;
    for row in rows {
        match &row.body {
            Body::AgentToolUse { name, input, kind: CallKind::Sandbox, effect, .. }
                if *effect != Effect::Pure && answered.contains(&row.id) && !idle.contains(&row.id) =>
            {
                if named.len() == NAMED_COMMANDS {
                    more += 1;
                } else {
                    named.push(alloc::format!("event {}: {name} {}", row.seq, shown(input)));
                }
            }
            _ => {}
        }
    }
    let list = named.join("; ");
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(list),
        (false, more) => Some(alloc::format!("{list}; and {more} more")),
    }
}

fn not_run(row: &Event) -> Option<EventId> {
    match &row.body {
        Body::AgentToolResult { tool_use_id, outcome: Outcome::NotRun | Outcome::Denied, .. } => Some(*tool_use_id),
        _ => None,
    }
}

/// The start of an input, on one line.
fn shown(input: &Json) -> String {
    let letters = input.as_str().chars().filter(|letter| !letter.is_control());
    let mut text: String = letters.clone().take(COMMAND_LETTERS).collect();
    if letters.count() > COMMAND_LETTERS {
        text.push('\u{2026}');
    }
    text
}
