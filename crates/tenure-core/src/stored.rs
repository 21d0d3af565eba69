//! Stored forms: what of the core outlives a release, each with its version.
//!
//! Stored types are separate from core types and converted by hand, so that neither can change the
//! other by accident. A record of a version that this release does not know, or one that cannot be
//! read, gives [`Corrupt`]; its bytes stay where they are (cases O-037, O-038).

pub mod v1;

pub use v1::{
    decode_agent, decode_condition, decode_environment, decode_event, decode_input, decode_session, encode_agent,
    encode_condition, encode_environment, encode_event, encode_input, encode_session,
};

use alloc::string::String;
use core::fmt;

/// A stored record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Which kind of record.
    pub what: &'static str,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stored {} cannot be read: {}", self.what, self.reason)
    }
}

impl core::error::Error for Corrupt {}
