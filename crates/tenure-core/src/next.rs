//! Says what a session does next.

use crate::agent::{Effect, Policies};
use crate::budget::Which;
use crate::call::{self, Call, CallKind, CallState, MAX_IDENTICAL_FAILURES};
use crate::event::{Body, Draft, Stop};
use crate::id::EventId;
use crate::session::{Position, Session, Status};
use crate::time::Timestamp;
use crate::wait::{Resolution, Wait, WaitKind};
use alloc::vec::Vec;

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Append these, then ask again; no effect is involved.
    Record(Vec<Draft>),
    /// Call the model with the log from `context_from_seq`.
    CallModel {
        /// The step that the call is.
        step: u64,
        /// Which attempt of it, counted from 1.
        attempt: u32,
    },
    /// Run these calls: one, or several that change nothing.
    RunCalls(Vec<EventId>),
    /// Let go; wake up at [`Session::wakes_at`] or when an input comes.
    Park,
}

/// What to do now, given only the head. Total, deterministic and cheap.
pub fn next(session: &Session, policies: &Policies, now: Timestamp) -> Action {
    if session.has_ended() || session.is_paused {
        return Action::Park;
    }
    if let Some(wait) = &session.wait
        && !matches!(wait.kind, WaitKind::Action)
    {
        return waiting(session, wait, now);
    }
    match &session.position {
        Position::Idle | Position::Ended(_) => Action::Park,
        Position::Model => model_due(session, now),
        // Only a new holder finds an open span: the old one is gone.
        Position::Calling { span, .. } => Action::Record(alloc::vec![call::lost_span(session, *span)]),
        Position::Tools => tools(session, policies, now),
    }
}

fn waiting(session: &Session, wait: &Wait, now: Timestamp) -> Action {
    if wait.until.is_none_or(|until| until > now) {
        return Action::Park;
    }
    let mut drafts = alloc::vec![Draft::new(Body::WaitResolved { resolution: Resolution::Due })];
    drafts.extend(call::due(session, now));
    drafts.extend(running(session));
    Action::Record(drafts)
}

/// The event that tells clients that the session runs, if they were told something else.
pub(crate) fn running(session: &Session) -> Option<Draft> {
    (session.status != Status::Running).then(|| Draft::new(Body::StatusRunning))
}

fn park(kind: WaitKind, until: Option<Timestamp>, calls: Vec<EventId>, stop: Stop, now: Timestamp) -> Action {
    Action::Record(parked(Wait { kind, since: now, until, calls }, stop))
}

fn parked(wait: Wait, stop: Stop) -> Vec<Draft> {
    alloc::vec![Draft::new(Body::WaitStarted { wait }), Draft::new(Body::StatusIdle { stop })]
}

/// The events by which a session waits at a limit: raise it, and it goes on (promise P11).
pub(crate) fn budget_wait(which: Which, now: Timestamp) -> Vec<Draft> {
    let wait = Wait { kind: WaitKind::Budget { which }, since: now, until: None, calls: Vec::new() };
    parked(wait, Stop::BudgetReached)
}

fn model_due(session: &Session, now: Timestamp) -> Action {
    if session.repeats.failures >= MAX_IDENTICAL_FAILURES {
        return park(WaitKind::Stuck, None, Vec::new(), Stop::RetriesExhausted, now);
    }
    if let Some(which) = session.limit_reached(now) {
        return Action::Record(budget_wait(which, now));
    }
    let attempt = session.retry.failures.saturating_add(1);
    let step = if attempt == 1 { session.last_step + 1 } else { session.last_step };
    Action::CallModel { step, attempt }
}

fn tools(session: &Session, policies: &Policies, now: Timestamp) -> Action {
    let late = call::due(session, now);
    if !late.is_empty() {
        let mut drafts = Vec::new();
        if session.wait.is_some() {
            drafts.push(Draft::new(Body::WaitResolved { resolution: Resolution::Due }));
        }
        drafts.extend(late);
        drafts.extend(running(session));
        return Action::Record(drafts);
    }
    let open: Vec<EventId> = session.calls.iter().filter(|call| needs_answer(call)).map(|call| call.id).collect();
    let is_asked = session.wait.as_ref().is_some_and(|wait| wait.kind == WaitKind::Action);
    // Tools run one after the other, in the order of the model; those that a client answers do not
    // hold up the others.
    let first = session.calls.iter().find(|call| !call.kind.is_answered_outside());
    match first.map(|call| call.state) {
        Some(CallState::Ready) if !is_asked || open.is_empty() => {
            if session.wait.is_some() {
                return answered(session);
            }
            if let Some(which) = session.limit_reached(now) {
                return Action::Record(budget_wait(which, now));
            }
            let mut calls = ready(session);
            calls.truncate(session.room_for_calls());
            Action::RunCalls(calls)
        }
        _ if open.is_empty() => {
            if is_asked {
                answered(session)
            } else {
                Action::Park
            }
        }
        _ => ask(session, policies, open, now),
    }
}

fn answered(session: &Session) -> Action {
    let mut drafts = alloc::vec![Draft::new(Body::WaitResolved { resolution: Resolution::Answered })];
    drafts.extend(running(session));
    Action::Record(drafts)
}

fn needs_answer(call: &Call) -> bool {
    matches!(call.state, CallState::NeedsAnswer { .. })
}

/// The calls to run together: the first ready one, and if it changes nothing also the ones after it
/// that change nothing.
fn ready(session: &Session) -> Vec<EventId> {
    let is_pure = |call: &&Call| call.effect == Effect::Pure && call.kind == CallKind::Sandbox;
    let mut queue = session.calls.iter().filter(|call| !call.kind.is_answered_outside()).peekable();
    let group: Vec<EventId> =
        core::iter::from_fn(|| queue.next_if(|call| is_pure(call) && call.state == CallState::Ready))
            .map(|call| call.id)
            .collect();
    if group.is_empty() { queue.next().map(|call| call.id).into_iter().collect() } else { group }
}

/// Asks for the answers that are missing, unless exactly these were asked for already.
fn ask(session: &Session, policies: &Policies, open: Vec<EventId>, now: Timestamp) -> Action {
    if session.status == Status::Idle(Stop::RequiresAction(open.clone())) && session.wait.is_some() {
        return Action::Park;
    }
    let earlier = session.wait.as_ref().filter(|wait| wait.kind == WaitKind::Action);
    let until = match earlier {
        Some(wait) => wait.until,
        None => policies.approval_timeout.map(|span| now.after(span)),
    };
    park(WaitKind::Action, until, open.clone(), Stop::RequiresAction(open), now)
}
