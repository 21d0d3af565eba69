//! The store's clock: the database's, never going back, also over restarts (hazard Z-24).
//!
//! ```text
//! time ≤ ceiling, which is stored ahead of time; a process starts at the stored ceiling
//! ```

use crate::link::Link;
use crate::params::params;
use crate::statements as sql;
use crate::trouble::Trouble;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tenure_core::Timestamp;

/// How far ahead of the time the stored ceiling is put, in milliseconds; a restart may run ahead by so
/// much.
const AHEAD: i64 = 1_000;

/// The clock of one process.
#[derive(Debug)]
pub(crate) struct Clock {
    high: AtomicI64,
    ceiling: AtomicI64,
    shift: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn new(shift: Arc<AtomicI64>) -> Self {
        Self { high: AtomicI64::new(0), ceiling: AtomicI64::new(0), shift }
    }

    /// Reads the clock, outside of a transaction.
    pub(crate) async fn read(&self, link: &Link) -> Result<Timestamp, Trouble> {
        let shift = self.shift.load(Ordering::Relaxed);
        let wall: i64 = link.one(sql::CLOCK, params![]).await?.get(0);
        let now = self.high.load(Ordering::SeqCst).max(wall.saturating_add(shift));
        if now > self.ceiling.load(Ordering::SeqCst) || self.high.load(Ordering::SeqCst) == 0 {
            let before: i64 = link.one(sql::GET_CEILING, params![]).await?.get(0);
            // Only the first look starts at what an earlier process may have shown; later the others' time
            // is the database's as much as ours.
            let now = if self.high.load(Ordering::SeqCst) == 0 { now.max(before) } else { now };
            link.run(sql::RAISE_CEILING, params![now.saturating_add(AHEAD)]).await?;
            self.ceiling.fetch_max(now.saturating_add(AHEAD), Ordering::SeqCst);
            return Ok(self.observe(now));
        }
        Ok(self.observe(now))
    }

    fn observe(&self, now: i64) -> Timestamp {
        Timestamp(self.high.fetch_max(now, Ordering::SeqCst).max(now))
    }
}
