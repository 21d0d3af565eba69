//! What a condition makes of a session's events.

use super::Condition;
use crate::event::{Body, Draft};
use crate::failure::Class;
use crate::session::Session;
use crate::time::{Millis, Timestamp};
use crate::wait::{Resolution, Wait, WaitKind};
use alloc::string::ToString;
use alloc::vec::Vec;

/// A session that waits for a condition looks for itself after this long, whatever was lost
/// (promise P14); up to as much again is added at random, so that they do not look together.
const RECONCILES_AFTER: Millis = 30 * 60 * 1_000;

/// The events of a session that must wait: nothing was sent, and nothing is counted.
pub fn met(session: &Session, condition: &Condition, model: &str, random: u64, now: Timestamp) -> Vec<Draft> {
    if session.wait.is_some() {
        return Vec::new();
    }
    let step = session.last_step;
    let wait = wait(condition, model, random, now);
    alloc::vec![
        Draft::of_step(step, told(condition, model)),
        Draft::of_step(step, Body::WaitStarted { wait }),
        Draft::new(Body::StatusRescheduled),
    ]
}

/// The events of a session whose turn has come.
pub fn let_go(session: &Session) -> Vec<Draft> {
    let mut drafts = alloc::vec![Draft::new(Body::WaitResolved { resolution: Resolution::Due })];
    drafts.extend(crate::next::running(session));
    drafts
}

/// Turns the wait of a failed attempt into one for the condition that it met; a session that gave up
/// for now, and one that did not wait, stay as they are.
pub fn wait_for(drafts: Vec<Draft>, condition: &Condition, model: &str, random: u64, now: Timestamp) -> Vec<Draft> {
    let mut turned = Vec::with_capacity(drafts.len() + 1);
    for draft in drafts {
        if is_own_wait(&draft.body) {
            turned.push(Draft { body: told(condition, model), ..draft.clone() });
            turned.push(Draft { body: Body::WaitStarted { wait: wait(condition, model, random, now) }, ..draft });
        } else {
            turned.push(draft);
        }
    }
    turned
}

/// Drops the wait of a failed attempt: another model is asked at once.
pub fn fall_back(drafts: Vec<Draft>) -> Vec<Draft> {
    if !drafts.iter().any(|draft| is_own_wait(&draft.body)) {
        return drafts;
    }
    let kept = drafts.into_iter().filter(|draft| !is_own_wait(&draft.body) && draft.body != Body::StatusRescheduled);
    kept.map(|mut draft| {
        if let Body::Error { retrying, .. } = &mut draft.body {
            *retrying = true;
        }
        draft
    })
    .collect()
}

/// Whether another model may be asked after a failure of this class: the fault is not in the request.
pub fn may_fall_back(class: Class) -> bool {
    match class {
        Class::RateLimit | Class::Quota | Class::Transient | Class::Credential | Class::Config => true,
        Class::Overflow
        | Class::TooBig
        | Class::BadHistory
        | Class::Request
        | Class::Incomplete
        | Class::Empty
        | Class::Malformed
        | Class::Refused => false,
    }
}

fn is_own_wait(body: &Body) -> bool {
    matches!(body, Body::WaitStarted { wait: Wait { kind: WaitKind::Backoff { .. } | WaitKind::Condition { .. }, .. } })
}

fn told(condition: &Condition, model: &str) -> Body {
    Body::Condition {
        condition: condition.id,
        class: condition.class,
        model: model.to_string(),
        message: condition.message.clone(),
    }
}

fn wait(condition: &Condition, model: &str, random: u64, now: Timestamp) -> Wait {
    let kind = WaitKind::Condition { class: condition.class, model: model.to_string(), condition: Some(condition.id) };
    let until = now.after(RECONCILES_AFTER.saturating_add(random % RECONCILES_AFTER));
    Wait { kind, since: now, until: Some(until), calls: Vec::new() }
}
