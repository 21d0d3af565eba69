//! The embedded store: one SQLite file, one writer, group commit.
//!
//! [`Sqlite::open`] opens (or makes) the store of a data folder. Writes of all callers go through
//! one thread, which commits what is waiting as one transaction (`writer`); reads use connections of
//! their own (`reader`). Several processes may open the same folder (`wake`).

mod blobs;
mod errors;
mod open;
mod reader;
mod rows;
mod sqlite;
mod wake;
mod writer;

pub mod bench;

pub use open::Options;
pub use sqlite::Sqlite;
