//! The tools as a model meets them: inputs, results, and what goes wrong.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod definitions;
mod inputs;
mod results;
mod sandbox;
mod waits;
