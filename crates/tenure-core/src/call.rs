//! Tool calls: their states, and what their results and crashes become.
//!
//! ```text
//!              ask                 allow
//! (tool_use) ───────▶ NeedsAnswer ───────▶ Ready ──▶ (result)         pure, idempotent
//!     │ allow              │ deny, late      │
//!     └──▶ Ready           ▼                 └─ tool_started ─▶ Started ─▶ (result)   once
//!                       (result)                                  │ holder died
//!                                     Waiting ─ due, answered ─▶  └─▶ (result: unknown) or NeedsAnswer
//! ```

use crate::agent::{Effect, UnknownOutcome};
use crate::event::{Block, Body, Draft, Event, Outcome};
use crate::id::{CallbackId, EventId};
use crate::session::{Position, Session};
use crate::time::{Millis, Timestamp};
use crate::usage::Usage;
use crate::wait::{Wait, WaitKind};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The same call with the same input so often in a row asks a person.
pub const MAX_IDENTICAL_CALLS: u32 = 5;

/// The same unreadable call so often in a row stops the session visibly.
pub const MAX_IDENTICAL_FAILURES: u32 = 3;

/// So many holders in a row lost at the same step set the session aside (promise P13).
pub const MAX_LOSSES: u32 = 3;

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The id of its `tool_use` event.
    pub id: EventId,
    /// Position of that event in the log, where its input is read from.
    pub seq: u64,
    /// The step that its result belongs to.
    pub step: u64,
    /// The tool.
    pub name: String,
    /// Who carries it out.
    pub kind: CallKind,
    /// What repeating it would do.
    pub effect: Effect,
    /// What it waits for, if anything.
    pub state: CallState,
    /// It was dispatched by a worker that was lost, and a person was asked about it: whatever becomes of
    /// it now, it may have had effects.
    pub was_started: bool,
}

/// Who carries a call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A tool in the sandbox.
    Sandbox,
    /// The client.
    Custom,
    /// A person, in words.
    AskUser,
    /// The clock.
    Sleep,
    /// The engine: makes a token for an outside job.
    CreateCallback,
    /// An outside job.
    WaitForCallback,
}

impl CallKind {
    /// Whether somebody outside gives the result.
    pub fn is_answered_outside(self) -> bool {
        matches!(self, Self::Custom | Self::AskUser)
    }
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// To be run.
    Ready,
    /// An answer of a person or client; after `deadline` it is denied.
    NeedsAnswer {
        /// `None` waits for ever.
        deadline: Option<Timestamp>,
    },
    /// It was dispatched and may have happened.
    Started,
    /// Time or an outside job.
    Waiting {
        /// When it ends by itself.
        until: Option<Timestamp>,
        /// The outside job.
        callback: Option<CallbackId>,
    },
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// For the model and for people.
    pub content: Vec<Block>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Done {
    /// A result of one text.
    pub fn text(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { content: alloc::vec![Block::Text(text.into())], outcome }
    }
}

/// The events of a call that ended.
pub fn finished(call: &Call, done: Done) -> Draft {
    Draft::of_step(
        call.step,
        Body::AgentToolResult { tool_use_id: call.id, content: done.content, outcome: done.outcome },
    )
}

/// The result of a call that is not run now; one that an earlier worker dispatched is never called not
/// run, because it may have happened (promise P3).
pub(crate) fn left_out(call: &Call, outcome: Outcome, text: impl Into<String>) -> Done {
    let text = text.into();
    if !call.was_started {
        return Done::text(outcome, text);
    }
    let text = alloc::format!(
        "{text} An earlier run of this call has an unknown outcome: its worker was lost before it could record a result. \
         It may have happened in full, in part, or not at all."
    );
    Done::text(Outcome::Unknown, text)
}

/// The event by which a call starts to wait for time or for an outside job.
pub fn wait_tool(
    session: &Session,
    call: EventId,
    callback: Option<CallbackId>,
    span: Option<Millis>,
    now: Timestamp,
) -> Draft {
    let kind = match callback {
        Some(callback) => WaitKind::Callback { callback },
        None => WaitKind::Timer,
    };
    let step = session.call(call).map_or(0, |call| call.step);
    let until = span.map(|span| now.after(span));
    Draft::of_step(step, Body::WaitStarted { wait: Wait { kind, since: now, until, calls: alloc::vec![call] } })
}

/// What a new holder records about effects that its predecessor may have left on the way.
///
/// An open model call failed; a call that was started has an unknown outcome, and is told to the
/// model or asked of a person: never silently run twice, never silently called failed (promise P3).
pub fn recover(session: &Session, policy: UnknownOutcome, now: Timestamp) -> Vec<Draft> {
    let mut drafts = Vec::new();
    if let Position::Calling { span, .. } = session.position {
        drafts.push(lost_span(session, span));
    }
    let started = session.calls.iter().filter(|call| call.state == CallState::Started);
    match policy {
        UnknownOutcome::TellModel => drafts.extend(started.map(|call| {
            let text = alloc::format!(
                "The outcome of this {} call is unknown: the worker that ran it was lost before it could record a result. \
                 It may have happened in full, in part, or not at all. Check before you repeat it.",
                call.name
            );
            finished(call, Done::text(Outcome::Unknown, text))
        })),
        UnknownOutcome::AskPerson => {
            let calls: Vec<EventId> = started.map(|call| call.id).collect();
            if !calls.is_empty() {
                let wait = Wait { kind: WaitKind::Action, since: now, until: None, calls: calls.clone() };
                drafts.push(Draft::new(Body::WaitStarted { wait }));
                drafts.push(Draft::new(Body::StatusIdle { stop: crate::event::Stop::RequiresAction(calls) }));
            }
        }
    }
    drafts
}

/// The events by which a session is set aside, because running it does harm; after [`recover`].
///
/// One that waits for something else already does none, and stays as it is.
pub fn set_aside(session: &Session, reason: &str, now: Timestamp) -> Vec<Draft> {
    if session.has_ended() || session.wait.is_some() {
        return Vec::new();
    }
    let wait =
        Wait { kind: WaitKind::SetAside { reason: reason.to_string() }, since: now, until: None, calls: Vec::new() };
    alloc::vec![
        Draft::new(Body::WaitStarted { wait }),
        Draft::new(Body::StatusIdle { stop: crate::event::Stop::RetriesExhausted }),
    ]
}

/// The events of a step that is stopped on the way because the session's time is over; the wait for the
/// limit follows. Calls that were not begun stay as they are.
pub fn out_of_time(session: &Session) -> Vec<Draft> {
    let mut drafts = Vec::new();
    if let Position::Calling { span, .. } = session.position {
        drafts.push(lost_span(session, span));
    }
    let started = session.calls.iter().filter(|call| call.state == CallState::Started);
    drafts.extend(started.map(|call| {
        let text =
            "Stopped on the way: the time that this session has (wall_seconds) is over. It may have had effects.";
        finished(call, Done::text(Outcome::Interrupted, text))
    }));
    drafts
}

/// Closes the span of a model call whose holder is gone; its preview is dropped.
pub(crate) fn lost_span(session: &Session, span: EventId) -> Draft {
    // Nobody knows what it used: what was reserved for it is charged (hazard Z-46).
    let assumed = session.sent.map(|sent| sent.reserved).unwrap_or_default();
    let body = Body::SpanEnd {
        span,
        model: String::new(),
        is_error: true,
        usage: Usage::default(),
        cost_usd_micros: None,
        assumed,
    };
    Draft::of_step(session.last_step, body)
}

/// Results for all open calls, when a turn is stopped.
pub(crate) fn close_all(session: &Session, why: &str) -> Vec<Draft> {
    let close = |call: &Call| {
        let done = match call.state {
            CallState::Started => {
                Done::text(Outcome::Interrupted, alloc::format!("Stopped on the way: {why}. It may have had effects."))
            }
            CallState::Ready | CallState::NeedsAnswer { .. } | CallState::Waiting { .. } => {
                left_out(call, Outcome::NotRun, alloc::format!("Not run: {why}."))
            }
        };
        finished(call, done)
    };
    session.calls.iter().map(close).collect()
}

/// Results and events for everything that is due at `now`.
pub(crate) fn due(session: &Session, now: Timestamp) -> Vec<Draft> {
    let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
    let mut drafts = Vec::new();
    for call in &session.calls {
        match call.state {
            CallState::Waiting { until, callback } if is_due(until) => {
                drafts.push(finished(call, due_result(callback.is_some())))
            }
            CallState::NeedsAnswer { deadline } if is_due(deadline) => {
                let done = left_out(call, Outcome::Denied, "Nobody answered in time, so this was not run.");
                drafts.push(finished(call, done));
            }
            CallState::Ready | CallState::Started | CallState::Waiting { .. } | CallState::NeedsAnswer { .. } => {}
        }
    }
    drafts
}

fn due_result(is_callback: bool) -> Done {
    if is_callback {
        Done::text(
            Outcome::Failed,
            "No answer came in time. The callback stays valid until it expires; wait again if it is worth it.",
        )
    } else {
        Done::text(Outcome::Done, "The time is over.")
    }
}

/// A short digest of a call, to notice repetition; equal for equal name and input.
pub(crate) fn digest(name: &str, input: &str) -> u64 {
    // FNV-1a: small, stable across releases (it is stored), and nobody gains by a collision.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let bytes = name.bytes().chain(core::iter::once(0)).chain(input.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, step)
}

/// What makes two calls the same: the input, or the reason why it could not be read.
pub(crate) fn digest_of(body: &Body) -> Option<u64> {
    match body {
        Body::AgentToolUse { name, input, malformed, .. } => {
            Some(digest(name, malformed.as_deref().unwrap_or(input.as_str())))
        }
        Body::AgentCustomToolUse { name, input, .. } => Some(digest(name, input.as_str())),
        _ => None,
    }
}

/// The open call that a row of the log begins.
pub(crate) fn opened(event: &Event, step: u64) -> Option<Call> {
    let call = |name: &str, kind, effect, state| Call {
        id: event.id,
        seq: event.seq,
        step,
        name: name.to_string(),
        kind,
        effect,
        state,
        was_started: false,
    };
    match &event.body {
        Body::AgentToolUse { name, kind, effect, permission, .. } => {
            let state = match permission {
                crate::agent::Permission::Ask => CallState::NeedsAnswer { deadline: None },
                crate::agent::Permission::Allow | crate::agent::Permission::Deny => CallState::Ready,
            };
            Some(call(name, *kind, *effect, state))
        }
        Body::AgentCustomToolUse { name, kind, .. } => {
            Some(call(name, *kind, Effect::Once, CallState::NeedsAnswer { deadline: None }))
        }
        _ => None,
    }
}
