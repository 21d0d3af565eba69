//! The conformance suite on the SQLite store, and what only this adapter has: files, processes, a disk.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod backup;
mod damage;
mod forks;
mod kill;
mod place;
mod processes;
mod space;
mod suite;
mod upgrade;
