//! The PostgreSQL adapter of the store port: several nodes on one database.
//!
//! ```text
//! operation ─▶ a connection of the pool ─▶ BEGIN ─▶ guarded writes ─▶ COMMIT ─▶ hints
//!                    ▲                                   │
//!                    └── serialization failure, deadlock, lost connection: again, at most a few times
//! ```
//! Statements are unnamed and transactions hold no state of a session, so that a pooler in transaction
//! mode may stand between. Notifications only make things faster; everything is found without them.
//! `schema.sql` says what lies where and what holds.

mod clock;
mod conditions;
mod hints;
mod link;
mod migrate;
mod operations;
mod options;
mod params;
mod payloads;
mod postgres;
mod rows;
mod statements;
mod tls;
mod transact;
mod trouble;

pub use options::{Options, POOL_SIZE};
pub use postgres::{Facts, Postgres};
