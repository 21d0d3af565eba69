//! The store's clock, as a worker knows it between two replies.
//!
//! Every reply of the store carries its time. In between, the worker adds what its own monotonic
//! clock counted; no wall clock of this machine enters a comparison (design 7.5).

use std::sync::Mutex;
use std::time::{Duration, Instant};
use tenure_core::{Millis, Timestamp};

/// An estimate of the store's time that never goes back.
#[derive(Debug)]
pub(crate) struct StoreClock {
    newest: Mutex<(Timestamp, Instant)>,
}

impl StoreClock {
    /// Starts from a reply of the store.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { newest: Mutex::new((now, Instant::now())) }
    }

    /// Takes a newer reply into account.
    pub(crate) fn observe(&self, now: Timestamp) {
        let mut newest = self.newest.lock().expect("nobody panics while holding it");
        if now > estimate(*newest) {
            *newest = (now, Instant::now());
        }
    }

    /// The store's time, as far as it is known here.
    pub(crate) fn now(&self) -> Timestamp {
        estimate(*self.newest.lock().expect("nobody panics while holding it"))
    }

    /// How long until `at`; zero if it is over.
    pub(crate) fn until(&self, at: Timestamp) -> Duration {
        Duration::from_millis(at.since(self.now()))
    }
}

fn estimate((now, read_at): (Timestamp, Instant)) -> Timestamp {
    now.after(Millis::try_from(read_at.elapsed().as_millis()).unwrap_or(Millis::MAX))
}
