//! Errors of the port: a coarse kind that says what to do, and words for people.

use std::fmt;

/// What a caller can do about an error. A new kind is a design decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Try the same again: the store is busy or briefly away.
    Retry,
    /// The lease is gone: stop, discard, change nothing (promise P5).
    Fenced,
    /// There is no such row for this tenant.
    NotFound,
    /// The row is not in the state that the request supposes.
    Conflict,
    /// The same idempotency key came with another body.
    IdempotencyMismatch,
    /// The request breaks a rule of the port.
    Invalid,
    /// The inbox is full.
    Full,
    /// The disk is full or a quota is reached; nothing was changed.
    NoSpace,
    /// A stored record cannot be read; its bytes are kept.
    Corrupt,
    /// The store is broken in a way that needs a person.
    Broken,
}

/// An error of the store.
#[derive(Debug)]
pub struct Error {
    /// What to do about it.
    pub kind: Kind,
    /// What failed, with ids and values.
    pub message: String,
    /// What lies below.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a source.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error with what lies below it.
    pub fn caused(
        kind: Kind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}
