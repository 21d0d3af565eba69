//! Integration tests: one conformance suite, run against every driver that works here.

mod machine;
mod shell;
