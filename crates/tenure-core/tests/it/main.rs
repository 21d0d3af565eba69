//! Tests of the core: inputs in, expected events and actions out.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod condition;
mod failure;
mod fork;
mod long;
mod loop_of_a_turn;
mod random_log;
mod script;
mod stored;
mod transcript;
