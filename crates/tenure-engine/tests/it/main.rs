//! A worker on a real store with a scripted model.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod house;
mod turns;
