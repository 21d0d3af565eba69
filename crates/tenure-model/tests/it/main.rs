//! Tests of the dialects, of the client over real sockets, and of scenarios.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod decoders;
mod given;
mod hostile;
#[path = "../../../tenure-core/tests/it/random_log.rs"]
mod random_log;
mod requests;
mod scenarios;
mod sockets;
