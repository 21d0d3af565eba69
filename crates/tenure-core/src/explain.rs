//! Why a session does not run now: one sentence for the list, the page, the command line and the API.

use crate::budget::Which;
use crate::call::CallState;
use crate::condition::needs_operator;
use crate::event::Stop;
use crate::failure::Class;
use crate::session::{Phase, Position, Session, Status};
use crate::time::Timestamp;
use crate::wait::WaitKind;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The answer to "why is it not running now?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// One word.
    pub phase: Phase,
    /// The kind of the wait, or the phase if there is none.
    pub kind: String,
    /// One sentence without times, which readers render in their own zone.
    pub text: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When it goes on by itself.
    pub until: Option<Timestamp>,
    /// What would make it go on.
    pub unblock: Vec<Unblock>,
}

/// One request that would make a session go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unblock {
    /// What it does.
    pub text: String,
    /// Path below the session, such as `resume`.
    pub path: &'static str,
    /// JSON body.
    pub body: String,
}

/// Explains the head of a session; whether it is leased is the store's to add.
pub fn explain(session: &Session) -> Explanation {
    let phase = session.phase();
    let mut explanation = Explanation {
        phase,
        kind: phase.name().to_string(),
        text: String::new(),
        since: None,
        until: None,
        unblock: Vec::new(),
    };
    if phase == Phase::Paused {
        explanation.text = "Paused by an operator; inputs are kept.".to_string();
        explanation.unblock.push(post("let it go on", "resume", "{}"));
        return explanation;
    }
    let Some(wait) = &session.wait else {
        explanation.text = without_wait(session, phase);
        if phase == Phase::Idle {
            explanation.unblock.push(message());
        }
        return explanation;
    };
    explanation.kind = wait.kind.name().to_string();
    explanation.since = Some(wait.since);
    explanation.until = wait.until;
    let (text, unblock) = match &wait.kind {
        WaitKind::Timer => ("Sleeps until a time that the agent chose.".to_string(), alloc::vec![message()]),
        WaitKind::Callback { callback } => {
            (alloc::format!("Waits for an outside job to answer callback {callback}."), alloc::vec![message()])
        }
        WaitKind::Action => (needs(session), answers(session)),
        WaitKind::Backoff { class, attempt } => (
            alloc::format!("Backing off after attempt {attempt}: {}.", class_text(*class)),
            alloc::vec![post("try now", "resume", "{}")],
        ),
        WaitKind::Condition { class, model, .. } => (
            alloc::format!("{model} cannot be used: {}. Everything is kept.", class_text(*class)),
            alloc::vec![post(
                if needs_operator(*class) { "try again once it is mended" } else { "try now" },
                "resume",
                "{}"
            )],
        ),
        WaitKind::Upstream { class } => (
            alloc::format!("Gave up for now: {}.{} Everything is kept.", class_text(*class), advice(*class)),
            alloc::vec![post("try again", "resume", "{}"), message()],
        ),
        WaitKind::Budget { which } => budget(session, *which),
        WaitKind::Stuck => (
            "The agent makes the same unusable tool call again and again: unknown, unreadable or cut.".to_string(),
            alloc::vec![message(), post("try again", "resume", "{}")],
        ),
        WaitKind::SetAside { reason } => (
            alloc::format!("Set aside: {reason}. Everything is kept; it is not tried again by itself."),
            alloc::vec![post("try again", "resume", "{}"), message()],
        ),
    };
    explanation.text = text;
    explanation.unblock = unblock;
    explanation
}

/// What would help beyond trying again, after a space.
fn advice(class: Class) -> &'static str {
    match class {
        Class::Overflow => " A model with a larger context, or fewer tools and shorter instructions, would help.",
        Class::TooBig => " Shorter messages, or a provider that takes larger requests, would help.",
        Class::RateLimit
        | Class::Quota
        | Class::Transient
        | Class::Credential
        | Class::Config
        | Class::BadHistory
        | Class::Request
        | Class::Incomplete
        | Class::Empty
        | Class::Malformed
        | Class::Refused => "",
    }
}

fn budget(session: &Session, which: Which) -> (String, Vec<Unblock>) {
    let raise = post("raise the limit", "budget", "{}");
    match which {
        Which::Steps | Which::Wall => (alloc::format!("The limit of {} is reached.", which.name()), alloc::vec![raise]),
        Which::Tokens | Which::Cost => {
            let text = if session.limit_reached(Timestamp(i64::MIN)) == Some(which) {
                alloc::format!("The limit of {} is reached.", which.name())
            } else {
                alloc::format!("The limit of {} leaves no room for the next step.", which.name())
            };
            (text, alloc::vec![raise])
        }
        Which::Failures => (
            alloc::format!(
                "{} tool calls failed one after the other; the limit of failures is reached.",
                session.budget.failures
            ),
            alloc::vec![message(), raise, post("try again", "resume", "{}")],
        ),
        Which::IdenticalCalls => (
            alloc::format!(
                "The agent made the same call {} times in a row; the limit of identical_calls is reached.",
                session.repeats.calls
            ),
            alloc::vec![message(), raise, post("try again", "resume", "{}")],
        ),
        Which::Price => (
            "The session has a limit of money, and the price of its model is not known, so the limit could not bind."
                .to_string(),
            alloc::vec![
                post("go on once the configuration has a price for the model", "resume", "{}"),
                post("take the limit of money away", "budget", r#"{"cost_usd":null}"#),
            ],
        ),
    }
}

fn without_wait(session: &Session, phase: Phase) -> String {
    match (&session.position, phase) {
        (Position::Ended(crate::event::End::Failed { reason }), _) => alloc::format!("Failed: {reason}."),
        (Position::Ended(crate::event::End::Cancelled { processes }), _) => {
            alloc::format!("Cancelled; processes: {processes}.")
        }
        (Position::Ended(crate::event::End::Done), _) => "Done.".to_string(),
        (Position::Idle, _) if session.last_seq == 0 => "Nothing was asked of it yet.".to_string(),
        (Position::Idle, _) if session.status == Status::Idle(Stop::Refusal) => {
            "The model refused; send another message.".to_string()
        }
        (Position::Idle, _) => "Finished its turn; it waits for a message.".to_string(),
        (Position::Model | Position::Calling { .. } | Position::Tools, _) if session.queue.is_some() => {
            let queue = session.queue.as_deref().unwrap_or_default();
            alloc::format!("Runnable; its next step is for an external loop that takes leases from the queue {queue}.")
        }
        (Position::Model | Position::Calling { .. }, _) => "Runnable; its next step is a model call.".to_string(),
        (Position::Tools, _) => "Runnable; its next step is a tool call.".to_string(),
    }
}

/// Names the calls that need an answer.
fn needs(session: &Session) -> String {
    let open = session.calls.iter().filter(|call| matches!(call.state, CallState::NeedsAnswer { .. }));
    let mut names: Vec<&str> = open.map(|call| call.name.as_str()).collect();
    names.dedup();
    alloc::format!("Needs an answer to: {}.", names.join(", "))
}

fn answers(session: &Session) -> Vec<Unblock> {
    let open = session.calls.iter().filter(|call| matches!(call.state, CallState::NeedsAnswer { .. }));
    open.map(|call| {
        if call.kind.is_answered_outside() {
            let body = alloc::format!(
                r#"{{"events":[{{"type":"user.custom_tool_result","custom_tool_use_id":"{}","content":[{{"type":"text","text":""}}]}}]}}"#,
                call.id
            );
            Unblock { text: alloc::format!("answer {}", call.name), path: "events", body }
        } else {
            let body = alloc::format!(
                r#"{{"events":[{{"type":"user.tool_confirmation","tool_use_id":"{}","result":"allow"}}]}}"#,
                call.id
            );
            Unblock { text: alloc::format!("allow {}", call.name), path: "events", body }
        }
    })
    .collect()
}

fn post(text: &str, path: &'static str, body: &str) -> Unblock {
    Unblock { text: text.to_string(), path, body: body.to_string() }
}

fn message() -> Unblock {
    let body = r#"{"events":[{"type":"user.message","content":[{"type":"text","text":""}]}]}"#;
    post("send a message", "events", body)
}

/// What happened upstream, in words.
pub fn class_text(class: Class) -> &'static str {
    match class {
        Class::RateLimit => "the provider limits the rate",
        Class::Quota => "the account has no credit left",
        Class::Transient => "the provider is overloaded or unreachable",
        Class::Credential => "the provider does not accept the key",
        Class::Config => "the provider does not know the model",
        Class::Overflow => "the conversation is longer than the model's context",
        Class::TooBig => "the request has too many bytes",
        Class::BadHistory => "the provider finds the history invalid",
        Class::Request => "the provider finds the request wrong",
        Class::Incomplete => "the answer broke off",
        Class::Empty => "the answer was empty",
        Class::Malformed => "the provider could not read the model's tool call",
        Class::Refused => "the model refused",
    }
}
