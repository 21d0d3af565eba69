//! What can go wrong between client and server.

use serde_json::Value;
use std::fmt;

/// Why a request has no result.
#[derive(Debug)]
pub enum Error {
    /// The address of the server cannot be used.
    Address {
        /// The address as it was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server did not answer, or the connection broke.
    Unreachable {
        /// The address of the server.
        base: String,
        /// What happened.
        reason: Unreached,
        /// What the network said.
        source: reqwest::Error,
    },
    /// The server refused the request.
    Refused(Box<Refusal>),
    /// The answer is not what this API answers.
    Unreadable {
        /// The address of the server.
        base: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The request cannot be written down.
    Unsendable {
        /// Which part of it.
        what: String,
        /// Why.
        reason: String,
    },
}

/// How a server was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// Nobody listens there.
    NoConnection,
    /// No answer within the time limit.
    TimedOut,
    /// The connection broke before the end of the answer.
    Broken,
}

impl Error {
    /// An error of the transport.
    pub(crate) fn lost(base: &str, source: reqwest::Error) -> Self {
        let reason = if source.is_timeout() {
            Unreached::TimedOut
        } else if source.is_connect() {
            Unreached::NoConnection
        } else {
            Unreached::Broken
        };
        Self::Unreachable { base: base.to_owned(), reason, source }
    }

    /// The refusal of the server, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Address { .. } | Self::Unreachable { .. } | Self::Unreadable { .. } | Self::Unsendable { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, reason } => {
                write!(f, "{address:?} is not the address of a server: {reason}")
            }
            Self::Unreachable { base, reason: Unreached::NoConnection, .. } => write!(f, "nothing answers at {base}"),
            Self::Unreachable { base, reason: Unreached::TimedOut, .. } => {
                write!(f, "server at {base} did not answer in time")
            }
            Self::Unreachable { base, reason: Unreached::Broken, .. } => {
                write!(f, "connection to the server at {base} broke")
            }
            Self::Refused(refusal) => write!(f, "{}", refusal.message),
            Self::Unreadable { base, reason } => {
                write!(f, "cannot read the answer of {base}: {reason}")
            }
            Self::Unsendable { what, reason } => write!(f, "cannot send the {what}: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(source),
            Self::Address { .. } | Self::Refused(_) | Self::Unreadable { .. } | Self::Unsendable { .. } => None,
        }
    }
}

/// An error body of the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Coarse type, such as `not_found_error`.
    pub kind: String,
    /// What is wrong.
    pub message: String,
    /// Stable code, documented in `docs/errors`.
    pub code: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where the code is explained.
    pub docs: Option<String>,
    /// More fields, by code.
    pub details: Value,
    /// Names the request in the log of the server.
    pub request_id: Option<String>,
}

impl Refusal {
    /// Reads an error body; a body of somebody else (a proxy) becomes a message too.
    pub(crate) fn read(status: u16, request_id: Option<String>, body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let error = value.get("error").cloned().unwrap_or(Value::Null);
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        let foreign = || {
            let text = String::from_utf8_lossy(body);
            let first = text
                .lines()
                .map(str::trim)
                .find(|line| !line.is_empty())
                .unwrap_or("")
                .chars()
                .take(200)
                .collect::<String>();
            if first.is_empty() {
                format!("HTTP status {status} without a reason")
            } else {
                format!("HTTP status {status}: {first}")
            }
        };
        Self {
            status,
            kind: text("type").unwrap_or_else(|| "api_error".to_owned()),
            message: text("message").unwrap_or_else(foreign),
            code: text("code"),
            hint: text("hint"),
            docs: text("docs"),
            details: error.get("details").cloned().unwrap_or(Value::Null),
            request_id: value.get("request_id").and_then(Value::as_str).map(str::to_owned).or(request_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_body_of_the_api_keeps_all_its_fields() {
        let body = br#"{"type":"error","error":{"type":"not_found_error","message":"no session x","code":"session_not_found","hint":"list them","docs":"d","details":{"id":"x"}},"request_id":"req_1"}"#;
        let refusal = Refusal::read(404, None, body);
        assert_eq!(
            refusal,
            Refusal {
                status: 404,
                kind: "not_found_error".to_owned(),
                message: "no session x".to_owned(),
                code: Some("session_not_found".to_owned()),
                hint: Some("list them".to_owned()),
                docs: Some("d".to_owned()),
                details: serde_json::json!({"id": "x"}),
                request_id: Some("req_1".to_owned()),
            }
        );
    }

    #[test]
    fn the_page_of_a_proxy_becomes_a_message() {
        let refusal = Refusal::read(502, Some("r".to_owned()), b"\n<html>Bad Gateway</html>\n");
        assert_eq!(refusal.message, "HTTP status 502: <html>Bad Gateway</html>");
        assert_eq!(refusal.request_id.as_deref(), Some("r"));
    }

    #[test]
    fn an_empty_error_body_still_says_the_status() {
        assert_eq!(Refusal::read(503, None, b"").message, "HTTP status 503 without a reason");
    }
}
