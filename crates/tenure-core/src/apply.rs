//! Folds one event into the head of a session.

use crate::agent::Effect;
use crate::call::{self, CallKind, CallState, MAX_IDENTICAL_FAILURES};
use crate::event::{Body, Decision, Event, Outcome, Purpose, Sent, Stop, Update};
use crate::failure::Class;
use crate::fork;
use crate::id::EventId;
use crate::session::{Callback, Compaction, MAX_OPEN_CALLBACKS, Position, Repeats, Retry, Session, Status, TooLarge};
use crate::usage::Usage;
use crate::wait::{Resolution, Wait, WaitKind};
use core::fmt;

/// An event that cannot follow the log so far; the session is parked, never guessed (style, functions).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Where.
    pub seq: u64,
    /// Which rule it breaks.
    pub reason: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} cannot follow the log: {}", self.seq, self.reason)
    }
}

impl core::error::Error for Invalid {}

/// Folds `event` into the head.
///
/// # Errors
/// When the event breaks a rule of the log, such as a gap in `seq` or a second result of a call.
/// The session is unchanged then.
pub fn apply(session: &mut Session, event: &Event) -> Result<(), Invalid> {
    let invalid = |reason| Err(Invalid { seq: event.seq, reason });
    if event.seq != session.last_seq + 1 {
        return invalid("its seq leaves a gap or repeats one");
    }
    // A fork goes on where its parent ended.
    if session.has_ended() && !matches!(event.body, Body::Forked { .. }) {
        return invalid("the session has ended");
    }
    match &event.body {
        Body::UserMessage { .. } | Body::SystemMessage { .. } => {
            session.budget.failures = 0;
            if session.position == Position::Idle && matches!(event.body, Body::UserMessage { .. }) {
                session.position = Position::Model;
                session.retry = Retry::default();
            }
        }
        Body::UserToolConfirmation { tool_use_id, decision } => {
            let Some(call) = session.calls.iter_mut().find(|call| call.id == *tool_use_id) else {
                return invalid("it answers a call that is not open");
            };
            if *decision == Decision::Allow {
                call.state = CallState::Ready;
            }
        }
        Body::UserCustomToolResult { tool_use_id, is_error, .. } => {
            if !close(session, *tool_use_id) {
                return invalid("it is the result of a call that is not open");
            }
            note_result(session, if *is_error { Outcome::Failed } else { Outcome::Done });
        }
        Body::AgentToolResult { tool_use_id, outcome, .. } => {
            let is_change = session
                .call(*tool_use_id)
                .is_some_and(|call| call.kind == CallKind::Sandbox && call.effect != Effect::Pure);
            session.files.is_dirty |= is_change && !matches!(outcome, Outcome::Denied | Outcome::NotRun);
            if !close(session, *tool_use_id) {
                return invalid("it is the result of a call that is not open");
            }
            note_result(session, *outcome);
        }
        Body::AgentToolUse { malformed, .. } => {
            note_repeat(session, &event.body, malformed.is_some());
            open(session, event);
        }
        Body::AgentCustomToolUse { .. } => {
            note_repeat(session, &event.body, false);
            open(session, event);
        }
        Body::ToolStarted { tool_use_id } => {
            let Some(call) = session.calls.iter_mut().find(|call| call.id == *tool_use_id) else {
                return invalid("it starts a call that is not open");
            };
            call.state = CallState::Started;
        }
        Body::StatusRunning => session.status = Status::Running,
        Body::StatusIdle { stop } => {
            session.status = Status::Idle(stop.clone());
            if matches!(stop, Stop::EndTurn | Stop::Refusal) {
                session.position = Position::Idle;
                session.retry = Retry::default();
                session.budget.failures = 0;
            }
        }
        Body::StatusRescheduled => session.status = Status::Rescheduling,
        Body::StatusTerminated { end } => {
            session.status = Status::Terminated;
            session.position = Position::Ended(end.clone());
            session.wait = None;
        }
        Body::Error { class, retrying, limit, .. } => note_failure(session, *class, *retrying, *limit),
        Body::SpanStart { attempt, sent, .. } => {
            session.sent = Some(*sent);
            if *attempt == 1 && sent.purpose != Purpose::Answer {
                session.compaction.tries = session.compaction.tries.saturating_add(1);
            }
            session.position = Position::Calling { span: event.id, attempt: *attempt };
            session.last_step = session.last_step.max(event.step);
            if *attempt == 1 {
                session.budget.steps = session.budget.steps.saturating_add(1);
            }
        }
        Body::SpanEnd { is_error, usage, cost_usd_micros, model, assumed, .. } => {
            if matches!(session.position, Position::Calling { .. }) {
                session.position = Position::Model;
            }
            let sent = session.sent.take().unwrap_or_default();
            if !model.is_empty() && sent.purpose == Purpose::Answer {
                session.learnt = session.learnt.of(model);
            }
            if *is_error && model.is_empty() {
                // The holder was lost or the turn was stopped: not a failure of the upstream.
            } else if *is_error {
                session.retry.failures = session.retry.failures.saturating_add(1);
            } else {
                session.retry = Retry::default();
                end_call(session, model, *usage, sent);
            }
            session.budget.charge(*usage, *cost_usd_micros, *assumed);
        }
        Body::ContextCompacted { compacted } => {
            if compacted.keep_from < session.context_from_seq || compacted.keep_from > event.seq {
                return invalid("it keeps rows that the model does not see");
            }
            session.context_from_seq = compacted.keep_from;
            session.compaction.due = None;
            session.compaction.futile_tokens = 0;
        }
        Body::WaitStarted { wait } => start_wait(session, wait),
        Body::WaitResolved { resolution } => {
            if *resolution == Resolution::Cleared {
                session.retry = Retry::default();
                session.repeats = Repeats::default();
                session.compaction.tries = 0;
                session.budget.failures = 0;
            }
            session.wait = None;
        }
        Body::CallbackCreated { callback, expires_at, .. } => {
            if session.callbacks.len() >= MAX_OPEN_CALLBACKS {
                session.callbacks.retain(|callback| callback.received_seq.is_none() && callback.expires_at > event.at);
            }
            if session.callbacks.len() >= MAX_OPEN_CALLBACKS {
                return invalid("too many callbacks are open");
            }
            session.callbacks.push(Callback { id: *callback, expires_at: *expires_at, received_seq: None });
        }
        Body::CallbackReceived { callback, .. } => {
            if let Some(open) = session.callbacks.iter_mut().find(|open| open.id == *callback) {
                open.received_seq.get_or_insert(event.seq);
            }
        }
        Body::BudgetUpdated { limits } => session.budget.limits = *limits,
        Body::Updated { update } => match update {
            Update::Paused => session.is_paused = true,
            Update::Resumed => session.is_paused = false,
            Update::Title(title) => session.title.clone_from(title),
            Update::Metadata(_) => {}
            Update::Models(choice) => {
                session.models.clone_from(choice);
                // The failures and refusals so far are those of another model.
                session.retry = Retry::default();
                session.compaction = Compaction::default();
            }
        },
        Body::UsageSnapshot { usage, estimated, .. } => {
            session.budget.told_tokens = usage.total().saturating_add(estimated.tokens);
        }
        Body::EnvironmentStarted { epoch, .. } => session.files.epoch = session.files.epoch.max(*epoch),
        // Files went back to what is stored: nothing of them is new.
        Body::EnvironmentReset { snapshot, .. } => session.files.is_dirty &= snapshot.is_none(),
        Body::SnapshotCreated { snapshot, .. } => {
            session.files.snapshot = Some(*snapshot);
            session.files.snapshot_seq = event.seq;
            session.files.is_dirty = false;
        }
        Body::Forked { from, snapshot, limits } => {
            if from.seq != session.last_seq {
                return invalid("it is a fork at another event");
            }
            fork::restart(session, *from, *limits, *snapshot);
        }
        Body::UserInterrupt | Body::AgentMessage { .. } | Body::AgentThinking { .. } | Body::Condition { .. } => {}
    }
    session.last_seq = event.seq;
    Ok(())
}

fn open(session: &mut Session, event: &Event) {
    session.last_step += 1;
    session.budget.steps = session.budget.steps.saturating_add(1);
    if let Some(call) = call::opened(event, session.last_step) {
        session.calls.push(call);
        session.position = Position::Tools;
    }
}

fn close(session: &mut Session, id: EventId) -> bool {
    let Some(place) = session.calls.iter().position(|call| call.id == id) else { return false };
    session.calls.remove(place);
    if session.calls.is_empty() && session.position == Position::Tools {
        session.position = Position::Model;
    }
    true
}

fn note_repeat(session: &mut Session, body: &Body, is_malformed: bool) {
    let Some(digest) = call::digest_of(body) else { return };
    let before = session.repeats;
    let is_same = before.digest == digest && before.calls > 0;
    session.repeats = Repeats {
        digest,
        calls: if is_same { before.calls.saturating_add(1) } else { 1 },
        failures: match (is_malformed, is_same) {
            (false, _) => 0,
            (true, true) => before.failures.saturating_add(1),
            (true, false) => 1,
        },
    };
    debug_assert!(session.repeats.failures <= MAX_IDENTICAL_FAILURES.max(session.repeats.calls), "failures are calls");
}

fn note_result(session: &mut Session, outcome: Outcome) {
    let failures = &mut session.budget.failures;
    match outcome {
        Outcome::Done => *failures = 0,
        Outcome::Failed | Outcome::Denied | Outcome::NotRun => *failures = failures.saturating_add(1),
        // Nobody knows, or somebody wanted it so.
        Outcome::Unknown | Outcome::Interrupted => {}
    }
}

fn note_failure(session: &mut Session, class: Class, is_retried: bool, limit: Option<u64>) {
    match class {
        Class::Empty | Class::Malformed => session.retry.empty = session.retry.empty.saturating_add(1),
        Class::BadHistory => session.retry.is_repaired |= is_retried,
        Class::Overflow => {
            if let Some(limit) = limit {
                let known = session.learnt.max_tokens.unwrap_or(u64::MAX);
                session.learnt.max_tokens = Some(limit.min(known));
            }
            shrink_if(session, is_retried, TooLarge::Tokens);
        }
        Class::TooBig => {
            if let Some(limit) = limit {
                let known = session.learnt.refused_bytes.unwrap_or(u64::MAX);
                session.learnt.refused_bytes = Some(limit.min(known));
            }
            shrink_if(session, is_retried, TooLarge::Bytes);
        }
        Class::RateLimit
        | Class::Quota
        | Class::Transient
        | Class::Credential
        | Class::Config
        | Class::Request
        | Class::Incomplete
        | Class::Refused => {}
    }
}

/// What comes next is another request, so the failures of this one are over.
fn shrink_if(session: &mut Session, is_retried: bool, due: TooLarge) {
    if is_retried {
        session.compaction.due = Some(due);
        session.retry = Retry::default();
    }
}

/// What a whole answer taught.
fn end_call(session: &mut Session, model: &str, usage: Usage, sent: Sent) {
    if session.learnt.model == model {
        session.learnt.answered(usage, sent.size);
    }
    match sent.purpose {
        Purpose::Answer => {
            session.compaction = Compaction { due: None, tries: 0, ..session.compaction };
        }
        // The compaction that follows takes it back; without one, it did not help.
        Purpose::Summary { before, .. } => session.compaction.futile_tokens = before,
    }
}

fn start_wait(session: &mut Session, wait: &Wait) {
    for call in session.calls.iter_mut().filter(|call| wait.calls.contains(&call.id)) {
        match (&wait.kind, call.kind, call.state) {
            (WaitKind::Timer, CallKind::Sleep, _) => {
                call.state = CallState::Waiting { until: wait.until, callback: None }
            }
            (WaitKind::Callback { callback }, CallKind::WaitForCallback, _) => {
                call.state = CallState::Waiting { until: wait.until, callback: Some(*callback) };
            }
            // A person is asked: about a call with an unknown outcome, or for the first time.
            (WaitKind::Action, _, CallState::Started | CallState::NeedsAnswer { deadline: None }) => {
                call.was_started |= call.state == CallState::Started;
                call.state = CallState::NeedsAnswer { deadline: wait.until };
            }
            _ => {}
        }
    }
    session.wait = Some(wait.clone());
}
