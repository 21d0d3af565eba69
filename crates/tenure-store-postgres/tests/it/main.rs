//! The adapter on a private PostgreSQL server.
//!
//! The server is the one that this machine has installed (Debian: `postgresql`), started for these tests
//! alone in a temporary folder, as a user without rights, on a socket. Without one the tests are left out,
//! and `cargo xtask test` says so.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod faults;
mod nodes;
mod opening;
mod proxy;
mod server;
mod suite;
mod tls;
