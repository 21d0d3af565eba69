//! The store's clock: wall time, never below what was stored (hazard Z-24).
//!
//! The stored high water runs ahead of the clock by up to [`HIGH_WATER_STEP`], so that it is written
//! at most once in that time and still lies above every time that any row carries. A process that
//! opens the store starts at the high water; a running one only stays above what must be past.

use crate::errors;
use crate::statements as sql;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tenure_core::Timestamp;
use tenure_store::Error;

/// How far the stored high water may run ahead of the clock, in milliseconds.
const HIGH_WATER_STEP: i64 = 1_000;

/// Where time comes from.
#[derive(Clone, Debug, Default)]
pub enum Wall {
    /// The machine's wall clock.
    #[default]
    System,
    /// The machine's wall clock plus so many milliseconds, for tests that move time.
    Shifted(Arc<AtomicI64>),
}

impl Wall {
    #[allow(clippy::disallowed_methods, reason = "this is the store's clock")]
    fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        match self {
            Self::System => now,
            Self::Shifted(by) => now.saturating_add(by.load(Ordering::Relaxed)),
        }
    }
}

/// The clock of one opened store.
#[derive(Debug)]
pub(crate) struct Clock {
    wall: Wall,
    newest: AtomicI64,
}

impl Clock {
    /// Starts at the stored high water.
    pub(crate) fn load(wall: Wall, connection: &Connection) -> Result<Self, Error> {
        let stored = high_water(connection).map_err(|error| errors::sqlite("read the clock", error))?;
        Ok(Self { wall, newest: AtomicI64::new(stored) })
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        self.at_least(i64::MIN)
    }

    /// The time now, in a transaction; stores the high water when it is reached.
    pub(crate) fn now_in(&self, connection: &Connection) -> rusqlite::Result<Timestamp> {
        let stored = high_water(connection)?;
        // Another process may have stored it; its rows are at least a step older than that.
        let now = self.at_least(stored - HIGH_WATER_STEP);
        if now.0 > stored {
            connection.prepare_cached(sql::SET_META)?.execute(("now", now.0.saturating_add(HIGH_WATER_STEP)))?;
        }
        Ok(now)
    }

    fn at_least(&self, floor: i64) -> Timestamp {
        let now = self.wall.now().max(floor);
        Timestamp(self.newest.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

fn high_water(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached(sql::GET_META)?.query_row(["now"], |row| row.get(0))
}
