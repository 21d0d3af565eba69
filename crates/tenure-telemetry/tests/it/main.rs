//! Spans against a receiver that is shaped like a collector, and the text against its grammar.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod collector;
mod export;
mod spans;
mod text;
