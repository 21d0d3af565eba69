//! Tests of the simulator itself.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod planted;
mod same;
