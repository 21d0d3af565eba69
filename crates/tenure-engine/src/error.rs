//! Why work on a lease stops before the session parks.

use std::fmt;
use tenure_core::Invalid;
use tenure_store::{Error, Kind};

/// Why work on a lease stopped.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The lease is gone: nothing may be written any more.
    Lost,
    /// The worker was asked to stop; the session is queued again.
    Draining,
    /// The store failed.
    Store(Error),
    /// An event could not follow the log: a bug, or a damaged head.
    Invalid(Invalid),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the lease is gone"),
            Self::Draining => f.write_str("the worker stops"),
            Self::Store(error) => error.fmt(f),
            Self::Invalid(invalid) => invalid.fmt(f),
        }
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        if error.kind == Kind::Fenced { Self::Lost } else { Self::Store(error) }
    }
}

impl From<Invalid> for Stopped {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}
