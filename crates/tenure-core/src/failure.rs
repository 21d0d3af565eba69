//! Classes of upstream failure, and which one a reply belongs to (the decision table of promise P9).

use crate::time::Millis;
use alloc::string::String;

/// What to do about a failed attempt; the rows of the decision table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Too many requests or tokens: wait for the hint, then try again.
    RateLimit,
    /// Out of credit: wait for the operator.
    Quota,
    /// Overload, server errors, lost connections: back off and try again.
    Transient,
    /// The key is wrong or may not do this: wait for the operator.
    Credential,
    /// The model or the endpoint does not exist: wait for the operator.
    Config,
    /// The conversation is longer than the model's context.
    Overflow,
    /// The request has too many bytes.
    TooBig,
    /// The provider finds the history invalid.
    BadHistory,
    /// The request is wrong in another way.
    Request,
    /// The stream ended before its terminal marker; nothing of it is kept.
    Incomplete,
    /// The answer holds nothing.
    Empty,
    /// The model or a filter refused.
    Refused,
}

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to do about it.
    pub class: Class,
    /// HTTP status, if there was a reply; a failure inside a stream keeps the stream's 200.
    pub status: Option<u16>,
    /// The provider's own type or code, such as `overloaded_error`; empty if it gave none.
    pub kind: String,
    /// One line for people; never a whole page, never a secret.
    pub message: String,
    /// The shortest wait that the provider asked for.
    pub retry_after: Option<Millis>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}
