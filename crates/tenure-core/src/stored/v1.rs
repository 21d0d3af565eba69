//! Version 1 of the stored forms: JSON with short names, empty fields left out.

mod agent;
mod condition;
mod event;
mod session;
mod words;

use crate::agent::Agent;
use crate::condition::Condition;
use crate::environment::Environment;
use crate::event::Event;
use crate::id::EventId;
use crate::input::Input;
use crate::session::Session;
use crate::stored::Corrupt;
use crate::time::Timestamp;
use alloc::string::{String, ToString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version that this module reads and writes.
const VERSION: u32 = 1;

/// A record with its version.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    record: T,
}

/// Highest position or step that a record may name. No log gets there; a damaged number may, and sums
/// with it would not fit.
const MAX_POSITION: u64 = 1 << 48;

/// Only the version, to tell a newer record from a damaged one.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

fn write<T: Serialize>(record: T) -> String {
    serde_json::to_string(&Versioned { v: VERSION, record }).expect("stored forms have string keys and finite numbers")
}

fn read<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, Corrupt> {
    let corrupt = |reason: String| Corrupt { what, reason };
    let version: VersionOnly = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
    if version.v != VERSION {
        return Err(corrupt(alloc::format!("it has version {}, this release reads version {VERSION}", version.v)));
    }
    let versioned: Versioned<T> = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
    Ok(versioned.record)
}

/// Conversion to and from a core type.
trait Form<T>: Sized {
    fn of(value: &T) -> Self;
    fn to(self) -> Result<T, String>;
}

/// A position or step, if it can be one.
fn position(name: &str, number: u64) -> Result<u64, String> {
    if number > MAX_POSITION {
        return Err(alloc::format!("{name} is {number}, which is beyond any log ({MAX_POSITION})"));
    }
    Ok(number)
}

/// Writes an event's body; id, seq, time and step are columns of their own.
pub fn encode_event(event: &Event) -> String {
    write(event::BodyForm::of(&event.body))
}

/// Reads an event.
///
/// # Errors
/// When the text is damaged or newer.
pub fn decode_event(id: EventId, seq: u64, at: Timestamp, step: u64, text: &str) -> Result<Event, Corrupt> {
    let corrupt = |reason| Corrupt { what: "event", reason };
    let body = read::<event::BodyForm>("event", text)?.to().map_err(corrupt)?;
    let (seq, step) = (position("seq", seq).map_err(corrupt)?, position("step", step).map_err(corrupt)?);
    Ok(Event { id, seq, at, step, body })
}

/// Writes an input's body; id and time are columns of their own.
pub fn encode_input(input: &Input) -> String {
    write(event::InputForm::of(&input.body))
}

/// Reads an input.
///
/// # Errors
/// When the text is damaged or newer.
pub fn decode_input(id: EventId, at: Timestamp, text: &str) -> Result<Input, Corrupt> {
    let body = read::<event::InputForm>("input", text)?.to().map_err(|reason| Corrupt { what: "input", reason })?;
    Ok(Input { id, at, body })
}

/// Writes a head.
pub fn encode_session(session: &Session) -> String {
    write(session::SessionForm::of(session))
}

/// Reads a head.
///
/// # Errors
/// When the text is damaged or newer.
pub fn decode_session(text: &str) -> Result<Session, Corrupt> {
    read::<session::SessionForm>("session", text)?.to().map_err(|reason| Corrupt { what: "session", reason })
}

/// Writes an agent.
pub fn encode_agent(agent: &Agent) -> String {
    write(agent::AgentForm::of(agent))
}

/// Reads an agent.
///
/// # Errors
/// When the text is damaged or newer.
pub fn decode_agent(text: &str) -> Result<Agent, Corrupt> {
    read::<agent::AgentForm>("agent", text)?.to().map_err(|reason| Corrupt { what: "agent", reason })
}

/// Writes a condition.
pub fn encode_condition(condition: &Condition) -> String {
    write(condition::ConditionForm::of(condition))
}

/// Reads a condition.
///
/// # Errors
/// When the text is damaged or newer.
pub fn decode_condition(text: &str) -> Result<Condition, Corrupt> {
    read::<condition::ConditionForm>("condition", text)?.to().map_err(|reason| Corrupt { what: "condition", reason })
}

/// Writes an environment.
pub fn encode_environment(environment: &Environment) -> String {
    write(agent::EnvironmentForm::of(environment))
}

/// Reads an environment.
///
/// # Errors
/// When the text is damaged or newer.
pub fn decode_environment(text: &str) -> Result<Environment, Corrupt> {
    read::<agent::EnvironmentForm>("environment", text)?.to().map_err(|reason| Corrupt { what: "environment", reason })
}
