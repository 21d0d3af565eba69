//! Folds one event into the head of a session.

use crate::call::{self, CallKind, CallState, MAX_IDENTICAL_FAILURES};
use crate::event::{Body, Decision, Event, Stop, Update};
use crate::failure::Class;
use crate::id::EventId;
use crate::session::{Callback, MAX_OPEN_CALLBACKS, Position, Repeats, Retry, Session, Status};
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
    if session.has_ended() {
        return invalid("the session has ended");
    }
    match &event.body {
        Body::UserMessage { .. } | Body::SystemMessage { .. } => {
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
        Body::UserCustomToolResult { tool_use_id, .. } | Body::AgentToolResult { tool_use_id, .. } => {
            if !close(session, *tool_use_id) {
                return invalid("it is the result of a call that is not open");
            }
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
            }
        }
        Body::StatusRescheduled => session.status = Status::Rescheduling,
        Body::StatusTerminated { end } => {
            session.status = Status::Terminated;
            session.position = Position::Ended(end.clone());
            session.wait = None;
        }
        Body::Error { class, .. } => {
            if *class == Class::Empty {
                session.retry.empty = session.retry.empty.saturating_add(1);
            }
        }
        Body::SpanStart { attempt, .. } => {
            session.position = Position::Calling { span: event.id, attempt: *attempt };
            session.last_step = session.last_step.max(event.step);
            if *attempt == 1 {
                session.budget.steps = session.budget.steps.saturating_add(1);
            }
        }
        Body::SpanEnd { is_error, usage, cost_usd_micros, model, .. } => {
            if matches!(session.position, Position::Calling { .. }) {
                session.position = Position::Model;
            }
            if *is_error && model.is_empty() {
                // The holder was lost or the turn was stopped: not a failure of the upstream.
            } else if *is_error {
                session.retry.failures = session.retry.failures.saturating_add(1);
            } else {
                session.retry = Retry::default();
            }
            let budget = &mut session.budget;
            budget.usage = budget.usage.plus(*usage);
            match cost_usd_micros {
                Some(cost) => budget.cost_usd_micros = budget.cost_usd_micros.saturating_add(*cost),
                None => budget.has_unpriced |= usage.total() > 0,
            }
        }
        Body::WaitStarted { wait } => start_wait(session, wait),
        Body::WaitResolved { resolution } => {
            if *resolution == Resolution::Cleared {
                session.retry = Retry::default();
                session.repeats = Repeats::default();
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
        },
        Body::UserInterrupt
        | Body::AgentMessage { .. }
        | Body::AgentThinking { .. }
        | Body::Condition { .. }
        | Body::EnvironmentStarted { .. }
        | Body::EnvironmentReset { .. } => {}
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
                call.state = CallState::NeedsAnswer { deadline: wait.until };
            }
            _ => {}
        }
    }
    session.wait = Some(wait.clone());
}
