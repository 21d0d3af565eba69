//! Integration tests: one conformance suite, run against every driver that works here.
//!
//! As root the suite also runs again as an unprivileged user (`unprivileged.rs`).

mod escape;
mod files;
mod limits;
mod machine;
mod shell;
mod takeover;
mod unprivileged;
