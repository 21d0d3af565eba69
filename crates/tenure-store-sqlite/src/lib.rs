//! The embedded store: one SQLite file, one writer, group commit.
//!
//! [`Sqlite::open`] opens (or makes) the store of a data folder. Writes of all callers go through
//! one thread, which commits what is waiting as one transaction (`writer`); reads use connections of
//! their own (`reader`); the log is copied back by another thread (`log`). Several processes may open
//! the same folder (`wake`).
//!
//! ```text
//! data folder
//!   tenure.db, -wal, -shm   the store (schema.sql)
//!   blobs/ab/abcd…          payloads that are too large for a row
//!   wake/<pid>-<n>.sock     one datagram socket for each process that has the store open
//!   reserve                 space that is freed when the disk is full
//! ```

mod backup;
mod blobs;
mod block;
mod clock;
mod conditions;
mod errors;
mod log;
mod open;
mod operations;
mod reader;
mod reserve;
mod rows;
mod sqlite;
mod statements;
mod wake;
mod writer;

pub mod bench;

pub use block::{WriteBlock, block_writes};
pub use clock::Wall;
pub use open::Options;
pub use sqlite::Sqlite;
