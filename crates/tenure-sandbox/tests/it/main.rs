//! Integration tests: one conformance suite, run against every driver that works here.
//!
//! The whole program runs in a control group of its own (`contain.rs`), so a bare `cargo test` is safe.
//! As root the suite also runs again as an unprivileged user (`unprivileged.rs`).

mod choice;
mod contain;
mod escape;
mod files;
mod limits;
mod machine;
mod shell;
mod takeover;
mod unprivileged;
