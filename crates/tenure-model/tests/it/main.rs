//! Tests of the dialects, of the client over real sockets, and of scenarios.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
