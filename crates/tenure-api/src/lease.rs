//! Leases of external loops on the wire: what a program of the user's own takes, commits and lets go
//! (design 4.9).

use crate::base64;
use crate::event::{read_content, read_message, read_usage};
use crate::fields::{Fields, Problem};
use crate::limits::micros;
use crate::time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_core::{Block, CallbackId, Effect, EventId, Json, LeaseId, MAX_WAIT, Millis, SessionId, Timestamp, Usage};

/// Longest name of a queue, in characters.
pub const MAX_QUEUE_NAME: usize = 64;

/// The model of an agent with an external loop that names none.
pub const EXTERNAL_MODEL: &str = "external";

/// Most leases that one request takes.
pub const MAX_LEASES: u64 = 32;

/// Longest time that a request waits for something runnable, in milliseconds.
pub const MAX_TAKE_WAIT: Millis = 60_000;

/// How long a lease holds if the request does not say, in milliseconds.
pub const LEASE_SPAN: Millis = 60_000;

/// Shortest lease; a shorter one would be lost to a slow network.
pub const MIN_LEASE_SPAN: Millis = 1_000;

/// Longest lease: a program that dies is noticed after it.
pub const MAX_LEASE_SPAN: Millis = 3_600_000;

/// Rows of the log that come with a lease if the request does not say.
pub const TAIL: u64 = 100;

/// Most rows of the log that come with a lease.
pub const MAX_TAIL: u64 = 1_000;

/// Most events of one checkpoint.
pub const MAX_CHECKPOINT_EVENTS: usize = 256;

/// How long a callback can be answered if the loop does not say, in milliseconds.
const CALLBACK_LIFE: Millis = 7 * 24 * 3_600 * 1_000;

/// Longest name of a tool or model, and label of a callback, in characters.
const MAX_NAME: usize = 256;

/// Longest text that is not content, in characters.
const MAX_TEXT: usize = 65_536;

/// What a lease's id starts with.
const PREFIX: &str = "lease_";

/// Whether a text can be the name of a queue.
///
/// # Errors
/// What is wrong, in words.
pub fn check_queue(name: &str) -> Result<(), &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_begun = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !is_begun || name.len() > MAX_QUEUE_NAME || !name.bytes().all(is_plain) {
        return Err("expected a letter or digit, then up to 63 letters, digits, dots, dashes and underscores");
    }
    Ok(())
}

/// What the id of a lease says. The nonce is random and known to the holder alone, so that the id is the
/// right itself (hazard Z-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTicket {
    /// Which session.
    pub session: SessionId,
    /// Under which epoch.
    pub epoch: u64,
    /// Its nonce.
    pub nonce: LeaseId,
}

impl LeaseTicket {
    /// The id on the wire.
    pub fn to_id(self) -> String {
        let mut bytes = self.session.bits().to_be_bytes().to_vec();
        bytes.extend(self.epoch.to_be_bytes());
        bytes.extend(self.nonce.bits().to_be_bytes());
        format!("{PREFIX}{}", base64::write_url(&bytes))
    }

    /// Reads an id; `None` for a text that is none.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 40] =
            base64::read_url(text.strip_prefix(PREFIX).filter(|rest| rest.len() < 64)?)?.try_into().ok()?;
        let bits = |from: usize| bytes[from..from + 16].try_into().ok().map(u128::from_be_bytes);
        let epoch = bytes[16..24].try_into().ok().map(u64::from_be_bytes)?;
        Some(Self { session: SessionId::from_bits(bits(0)?), epoch, nonce: LeaseId::from_bits(bits(24)?) })
    }
}

/// A request for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeRequest {
    /// Who asks, for people.
    pub worker: Option<String>,
    /// Most leases.
    pub max: u64,
    /// How long to wait for one.
    pub wait: Millis,
    /// How long each holds.
    pub span: Millis,
    /// Rows of the log that come with each.
    pub tail: u64,
}

impl TakeRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        Ok(Self {
            worker: fields.text("worker", MAX_NAME)?,
            max: bounded(fields, "max", 1, 1, MAX_LEASES)?,
            wait: bounded(fields, "wait_ms", 0, 0, MAX_TAKE_WAIT)?,
            span: read_span(fields)?,
            tail: bounded(fields, "tail", TAIL, 0, MAX_TAIL)?,
        })
    }
}

/// How long a lease is to hold from now on.
///
/// # Errors
/// When it is out of bounds.
pub fn read_span(fields: &Fields<'_>) -> Result<Millis, Problem> {
    bounded(fields, "lease_ms", LEASE_SPAN, MIN_LEASE_SPAN, MAX_LEASE_SPAN)
}

fn bounded(fields: &Fields<'_>, name: &str, default: u64, min: u64, max: u64) -> Result<u64, Problem> {
    let value = fields.number(name)?.unwrap_or(default);
    if value < min || value > max {
        return Err(Problem::invalid(&fields.path(name), format_args!("expected {min} to {max}")));
    }
    Ok(value)
}

/// What a loop commits.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointRequest {
    /// The newest row of the log that the loop knows.
    pub seq: u64,
    /// What happened, in order.
    pub events: Vec<LoopEvent>,
    /// What becomes of the lease.
    pub then: LoopThen,
    /// How long the lease holds from now on, if it is kept.
    pub span: Millis,
}

/// One thing that a loop did or wants.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopEvent {
    /// It says something.
    Message(Vec<Block>),
    /// It thought.
    Thinking(String),
    /// It is going to call a tool of its own.
    ToolUse {
        /// Which.
        name: String,
        /// With what.
        input: Json,
        /// What repeating it would do.
        effect: Effect,
        /// Whether a person is asked first.
        asks: bool,
    },
    /// The client is to call a tool.
    CustomToolUse {
        /// Which.
        name: String,
        /// With what.
        input: Json,
    },
    /// A call that must not happen twice begins now.
    ToolStarted(EventId),
    /// What a call gave.
    ToolResult {
        /// Which call.
        call: EventId,
        /// For the model and for people.
        content: Vec<Block>,
        /// Whether it failed.
        is_error: bool,
    },
    /// An outside job is to answer.
    Callback {
        /// For people.
        label: String,
        /// How long.
        life: Millis,
    },
    /// A model call has ended.
    Usage {
        /// Which model.
        model: String,
        /// What it used.
        usage: Usage,
        /// What it cost, in millionths of a US dollar; `None` if the loop does not know.
        cost_usd_micros: Option<u64>,
    },
    /// Something failed, and the loop goes on.
    Error(String),
}

/// What becomes of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopThen {
    /// The loop goes on.
    Keep,
    /// Others are to have their turn.
    Yield,
    /// The turn is over.
    Idle,
    /// The session waits.
    Wait {
        /// For an outside job; for the time alone without one.
        callback: Option<CallbackId>,
        /// At most so long.
        until: Option<Until>,
    },
    /// The session has ended for good.
    Finish,
}

/// When a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// So long after the commit.
    After(Millis),
    /// At this time.
    At(Timestamp),
}

impl CheckpointRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.required("seq")?;
        let events = fields.list("events", MAX_CHECKPOINT_EVENTS)?.unwrap_or_default();
        let events =
            events.into_iter().map(|(path, value)| read_event(&Fields::at(value, &path)?)).collect::<Result<_, _>>()?;
        Ok(Self {
            seq: fields.number("seq")?.unwrap_or_default(),
            events,
            then: match fields.get("then") {
                None => LoopThen::Keep,
                Some(Value::String(word)) => read_word(word, &fields.path("then"))?,
                Some(value) => read_then(&Fields::at(value, &fields.path("then"))?)?,
            },
            span: read_span(fields)?,
        })
    }
}

fn read_word(word: &str, path: &str) -> Result<LoopThen, Problem> {
    match word {
        "keep" => Ok(LoopThen::Keep),
        "yield" => Ok(LoopThen::Yield),
        "idle" => Ok(LoopThen::Idle),
        "finish" => Ok(LoopThen::Finish),
        _ => Err(Problem::invalid(path, "expected keep, yield, idle, finish, or an object of type wait")),
    }
}

fn read_then(fields: &Fields<'_>) -> Result<LoopThen, Problem> {
    if fields.kind()? != "wait" {
        return read_word(fields.kind()?, &fields.path("type"));
    }
    let callback = match fields.text("callback_id", 128)? {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|_| Problem::invalid(&fields.path("callback_id"), "is no id of a callback"))?)
        }
    };
    let until = match (fields.number("seconds")?, fields.text("until", 64)?) {
        (Some(_), Some(_)) => return Err(Problem::invalid(&fields.path("until"), "name either seconds or until")),
        (Some(seconds), None) => {
            let millis = seconds.saturating_mul(1_000);
            if millis > MAX_WAIT {
                return Err(Problem::invalid(&fields.path("seconds"), "is longer than ten years"));
            }
            Some(Until::After(millis))
        }
        (None, Some(text)) => {
            let at = time::read(&text);
            Some(Until::At(at.ok_or_else(|| {
                Problem::invalid(&fields.path("until"), "expected a time such as 2026-01-31T12:00:00Z")
            })?))
        }
        (None, None) if callback.is_none() => {
            return Err(Problem::invalid(&fields.path("seconds"), "a wait needs seconds, until or callback_id"));
        }
        (None, None) => None,
    };
    Ok(LoopThen::Wait { callback, until })
}

fn read_event(event: &Fields<'_>) -> Result<LoopEvent, Problem> {
    let input = |event: &Fields<'_>| match event.get("input") {
        None => Ok(Json::object()),
        Some(value @ Value::Object(_)) => Ok(Json::from_value(value)),
        Some(_) => Err(Problem::invalid(&event.path("input"), "expected an object")),
    };
    let call = |event: &Fields<'_>| {
        let text = event.required_text("tool_use_id", 128)?;
        text.parse::<EventId>().map_err(|_| Problem::invalid(&event.path("tool_use_id"), "is no id of a call"))
    };
    Ok(match event.kind()? {
        "agent.message" => {
            event.required("content")?;
            let content = read_message(event, "content")?;
            if !content.iter().all(|block| matches!(block, Block::Text(_))) {
                return Err(Problem::invalid(&event.path("content"), "a message of a loop is text only"));
            }
            LoopEvent::Message(content)
        }
        "agent.thinking" => LoopEvent::Thinking(event.required_text("text", usize::MAX)?),
        "agent.tool_use" => LoopEvent::ToolUse {
            name: event.required_text("name", MAX_NAME)?,
            input: input(event)?,
            effect: match event.text("effect", 16)?.as_deref() {
                Some("pure") => Effect::Pure,
                Some("idempotent") => Effect::Idempotent,
                None | Some("once") => Effect::Once,
                Some(_) => return Err(Problem::invalid(&event.path("effect"), "expected pure, idempotent or once")),
            },
            asks: match event.text("evaluated_permission", 16)?.as_deref() {
                None | Some("allow") => false,
                Some("ask") => true,
                Some(_) => return Err(Problem::invalid(&event.path("evaluated_permission"), "expected allow or ask")),
            },
        },
        "agent.custom_tool_use" => {
            LoopEvent::CustomToolUse { name: event.required_text("name", MAX_NAME)?, input: input(event)? }
        }
        "session.tool_started" => LoopEvent::ToolStarted(call(event)?),
        "agent.tool_result" => LoopEvent::ToolResult {
            call: call(event)?,
            content: read_content(event, "content")?,
            is_error: event.flag("is_error")?.unwrap_or(false),
        },
        "session.callback_created" => LoopEvent::Callback {
            label: event.text("label", MAX_NAME)?.unwrap_or_default(),
            life: event
                .number("expires_seconds")?
                .map_or(CALLBACK_LIFE, |seconds| seconds.saturating_mul(1_000).min(MAX_WAIT)),
        },
        "span.model_request_end" => LoopEvent::Usage {
            model: event.required_text("model", MAX_NAME)?,
            usage: event.inner("model_usage")?.map(|usage| read_usage(&usage)).transpose()?.unwrap_or_default(),
            cost_usd_micros: event.get("cost_usd").map(|value| micros(value, &event.path("cost_usd"))).transpose()?,
        },
        "session.error" => LoopEvent::Error(event.required_text("message", MAX_TEXT)?),
        kind => {
            let what = format!("{kind:?} is no event that a loop commits");
            return Err(Problem::invalid(&event.path("type"), what));
        }
    })
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireCall {
    /// The id of its event.
    pub tool_use_id: String,
    /// The tool.
    pub name: String,
    /// `ready` to be run, `needs_answer` of a person or client, `started`, or `waiting`.
    pub state: String,
}

/// A lease, or what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireLease {
    /// Names it in every request; whoever has it may use it.
    pub id: String,
    /// Whose.
    pub session_id: String,
    /// Whether the caller still has it. Without it nothing more can be committed, and the session waits, is
    /// idle, has ended or stands in its queue again.
    pub held: bool,
    /// Until when, unless it is renewed; null once it is not held.
    pub expires_at: Option<String>,
    /// Grows with each lease of the session.
    pub epoch: u64,
    /// The newest row of the log; the next checkpoint names it.
    pub seq: u64,
    /// What is due: `model` (the loop's next thought), `tools` (calls to run), or `nothing`.
    pub due: String,
    /// Calls without a result.
    pub calls: Vec<WireCall>,
    /// Rows of the log. With a new lease its newest ones, oldest first; else those that this checkpoint added.
    pub events: Vec<Value>,
    /// Those of them that came from the inbox now: messages, answers, callbacks.
    pub inbox: Vec<Value>,
    /// Addresses of the callbacks that this checkpoint made.
    pub callbacks: Vec<WireCallback>,
}

/// A callback that a loop made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireCallback {
    /// Its id.
    pub callback_id: String,
    /// Where the outside job answers. A secret: whoever knows it can answer.
    pub url: String,
}

/// Leases that were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireLeases {
    /// None if nothing became runnable in time.
    pub data: Vec<WireLease>,
}

/// A lease that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRenewed {
    /// Until when.
    pub expires_at: String,
    /// Whether a cancel, an archive or an interrupt waits: stop, and let go.
    pub urgent: bool,
}

/// What a queue holds, for autoscalers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireQueue {
    /// Its name.
    pub queue: String,
    /// Sessions that wait for a lease.
    pub depth: u64,
    /// When the one that waits longest became runnable.
    pub oldest: Option<String>,
    /// For how long it has waited.
    pub oldest_ms: Option<u64>,
    /// Sessions that are leased.
    pub working: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_id_comes_back_and_other_texts_are_none() {
        let ticket =
            LeaseTicket { session: SessionId::from_bits(u128::MAX - 5), epoch: u64::MAX, nonce: LeaseId::from_bits(7) };
        let id = ticket.to_id();
        assert_eq!(LeaseTicket::parse(&id), Some(ticket));
        let long = "lease_".to_owned() + &"A".repeat(1_000_000);
        for text in ["", "lease_", "lease_AAAA", &id[6..], &id[..id.len() - 1], "lease_=", &long] {
            assert_eq!(LeaseTicket::parse(text), None);
        }
    }

    #[test]
    fn a_mistake_in_a_checkpoint_is_named_with_its_place() {
        let wrong = [
            (json!({}), "seq: this field is required"),
            (json!({"seq": -1}), "seq: expected a whole number"),
            (json!({"seq": 1, "then": "sleep"}), "then: expected keep"),
            (json!({"seq": 1, "then": {"type": "wait"}}), "then.seconds: a wait needs"),
            (json!({"seq": 1, "then": {"type": "wait", "seconds": 1, "until": "x"}}), "then.until: name either"),
            (
                json!({"seq": 1, "then": {"type": "wait", "seconds": u64::MAX}}),
                "then.seconds: is longer than ten years",
            ),
            (json!({"seq": 1, "then": {"type": "wait", "until": "tomorrow"}}), "then.until: expected a time"),
            (json!({"seq": 1, "lease_ms": 1}), "lease_ms: expected 1000 to 3600000"),
            (json!({"seq": 1, "events": [{"type": "user.message"}]}), "events[0].type: \"user.message\" is no event"),
            (
                json!({"seq": 1, "events": [{"type": "agent.tool_use", "name": "x", "input": 1}]}),
                "events[0].input: expected an object",
            ),
            (
                json!({"seq": 1, "events": [{"type": "agent.tool_result", "tool_use_id": "x"}]}),
                "events[0].tool_use_id: is no id",
            ),
            (
                json!({"seq": 1, "events": [{"type": "span.model_request_end", "model": "m", "model_usage": {"input_tokens": -3}}]}),
                "events[0].model_usage.input_tokens",
            ),
            (json!({"seq": 1, "events": vec![json!({}); 257]}), "events: 257 entries, at most 256"),
        ];
        for (value, expected) in wrong {
            let problem = CheckpointRequest::read(&Fields::root(&value).unwrap()).unwrap_err();
            assert!(problem.message.starts_with(expected), "{}", problem.message);
        }
    }

    #[test]
    fn names_of_queues_are_plain() {
        for name in ["a", "reviews.eu-1_x", &"x".repeat(64)] {
            assert_eq!(check_queue(name), Ok(()));
        }
        for name in ["", "..", ".a", "a b", "a/b", "ü", "a\0", &"x".repeat(65)] {
            check_queue(name).unwrap_err();
        }
    }
}
