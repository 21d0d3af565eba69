//! What the body of an error says, in whichever shape it comes.
//!
//! Providers and the proxies before them wrap errors in objects, arrays and texts that hold JSON again.
//! All of it is walked, within bounds, and what stands deeper counts as more exact: a gateway wraps
//! what its upstream said.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Value};

/// What was found in an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Its codes and types, the most exact first, as they were written.
    pub(super) words: Vec<String>,
    /// Its text for people.
    pub(super) message: String,
    /// Text that is not shown, because it is no error of the API: a line of a proxy.
    pub(super) line: String,
    /// A number in the place of a code: the status that an upstream of a gateway gave.
    pub(super) status: Option<u16>,
    /// The provider's id of the request.
    pub(super) request_id: Option<String>,
    /// Waits that it asks for, as they were written.
    pub(super) delays: Vec<Delay>,
}

/// A wait that stands in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    /// A span, or a number of seconds.
    Span(String),
    /// A number of milliseconds.
    Millis(String),
}

/// How deep errors are followed into each other.
const MAX_NESTING: usize = 5;

/// Most codes and types that are looked at.
const MAX_WORDS: usize = 16;

/// Longest plain text that is searched for words that are known; longer ones are pages.
const MAX_LINE: usize = 2_000;

/// Fields that hold a code or a type, the most exact first.
const CODES: [&str; 10] =
    ["error_code", "errorCode", "errorcode", "code", "reason", "type", "status", "__type", "status_code", "statusCode"];

/// Fields that hold words for people.
const MESSAGES: [&str; 8] =
    ["message", "msg", "Message", "detail", "error_description", "faultstring", "description", "title"];

/// Fields that hold another error, or more about this one.
const INNER: [&str; 16] = [
    "error",
    "errors",
    "err",
    "fault",
    "detail",
    "details",
    "innererror",
    "inner_error",
    "cause",
    "response",
    "metadata",
    "raw",
    "body",
    "data",
    "upstream_error",
    "original_error",
];

/// Words that only say that there is an error.
const SAYS_NOTHING: [&str; 8] = ["error", "err", "failed", "failure", "none", "null", "exception", "object"];

/// Reads a body, or the data of an in-stream error event.
pub(super) fn read(body: &str) -> Said {
    let mut said = Said::default();
    match crate::Json::parse(body) {
        Ok(json) => said.value(&json.to_value(), 0),
        Err(_) => {
            let text = body.trim();
            if text.len() <= MAX_LINE && !text.starts_with('<') {
                said.line = text.to_string();
            }
        }
    }
    said
}

impl Said {
    fn value(&mut self, value: &Value, depth: usize) {
        if depth > MAX_NESTING {
            return;
        }
        match value {
            Value::Object(fields) => self.object(fields, depth),
            // Gemini wraps its errors in an array of one (case O-008); details are an array of some.
            Value::Array(items) => {
                for item in items.iter().take(MAX_WORDS) {
                    self.value(item, depth + 1);
                }
            }
            Value::String(text) => self.text(text, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: usize) {
        // Own words are the ones to show; what is inside is more exact.
        for name in MESSAGES {
            if let Some(Value::String(text)) = fields.get(name)
                && self.message.is_empty()
            {
                self.message.clone_from(text);
            }
        }
        for name in INNER {
            if let Some(inner) = fields.get(name) {
                self.value(inner, depth + 1);
            }
        }
        if let Some(Value::String(text)) = fields.get("message") {
            self.inner_json(text, depth);
        }
        for name in CODES {
            match fields.get(name) {
                Some(Value::String(word)) => self.word(word),
                Some(Value::Number(number)) => self.number(number.as_u64()),
                _ => {}
            }
        }
        for name in ["request_id", "requestId", "requestID"] {
            if let (Some(Value::String(id)), None) = (fields.get(name), &self.request_id) {
                self.request_id = Some(id.clone());
            }
        }
        self.delays(fields);
    }

    fn delays(&mut self, fields: &Map<String, Value>) {
        let text = |name: &str| match fields.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let spans =
            ["retryDelay", "retry_delay", "retry_after", "retryAfter", "retry_after_seconds", "resets_in_seconds"];
        self.delays.extend(spans.iter().filter_map(|name| text(name)).map(Delay::Span));
        let millis = ["retry_after_ms", "retryAfterMs"];
        self.delays.extend(millis.iter().filter_map(|name| text(name)).map(Delay::Millis));
        self.delays.truncate(MAX_WORDS);
    }

    fn text(&mut self, text: &str, depth: usize) {
        if !self.inner_json(text, depth) && self.message.is_empty() {
            self.message = text.to_string();
        }
    }

    /// Follows JSON inside a text: the whole of it, or what a gateway quotes in its own words.
    ///
    /// Gives whether the text is nothing but JSON.
    fn inner_json(&mut self, text: &str, depth: usize) -> bool {
        let (Some(start), Some(end)) = (text.find(['{', '[']), text.rfind(['}', ']'])) else { return false };
        let Some(inner) = text.get(start..=end) else { return false };
        let Ok(json) = crate::Json::parse(inner) else { return false };
        let value = json.to_value();
        let is_whole = text.trim() == inner;
        // What users wrote is quoted in messages too, and is no error for being JSON.
        if !is_whole && !is_error(value.get(0).unwrap_or(&value)) {
            return false;
        }
        self.value(&value, depth + 1);
        is_whole
    }

    fn word(&mut self, word: &str) {
        let word = word.trim();
        if let Ok(number) = word.parse::<u64>() {
            self.number(Some(number));
            return;
        }
        let says_something = !word.is_empty() && !SAYS_NOTHING.iter().any(|known| word.eq_ignore_ascii_case(known));
        if says_something && self.words.len() < MAX_WORDS {
            self.words.push(word.to_string());
        }
    }

    fn number(&mut self, number: Option<u64>) {
        let status = number.and_then(|number| u16::try_from(number).ok()).filter(|status| (400..600).contains(status));
        self.status = self.status.or(status);
    }
}

/// Whether an object has the form of an error.
fn is_error(value: &Value) -> bool {
    let has = |name: &str| value.get(name).is_some();
    has("error") || (has("message") && (has("code") || has("type") || has("status")))
}
