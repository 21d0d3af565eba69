//! The store's clock, as a worker knows it between two replies.
//!
//! Every reply of the store carries its time. In between, the worker adds what its own monotonic
//! clock counted; no wall clock of this machine enters a comparison (design 7.5).

use std::sync::Mutex;
use std::time::Duration;
use tenure_core::{Millis, Timestamp};
use tokio::time::Instant;

/// An estimate of the store's time that never goes back.
#[derive(Debug)]
pub(crate) struct StoreClock {
    newest: Mutex<(Timestamp, Instant)>,
    /// The latest time that a reply carried, without anything added.
    seen: Mutex<Timestamp>,
}

impl StoreClock {
    /// Starts from a reply of the store.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { newest: Mutex::new((now, Instant::now())), seen: Mutex::new(now) }
    }

    /// Takes a newer reply into account.
    pub(crate) fn observe(&self, now: Timestamp) {
        let mut seen = self.seen.lock().expect("nobody panics while holding it");
        *seen = now.max(*seen);
        drop(seen);
        let mut newest = self.newest.lock().expect("nobody panics while holding it");
        if now > estimate(*newest) {
            *newest = (now, Instant::now());
        }
    }

    /// The store's time, as far as it is known here.
    pub(crate) fn now(&self) -> Timestamp {
        estimate(*self.newest.lock().expect("nobody panics while holding it"))
    }

    /// A time that the store has certainly reached: whatever it does from now on is not older.
    ///
    /// [`StoreClock::now`] may run ahead of it: the store's clock stands still after its wall clock
    /// was set back, and for up to a second after the store was opened anew.
    pub(crate) fn seen(&self) -> Timestamp {
        *self.seen.lock().expect("nobody panics while holding it")
    }

    /// How long until `at`; zero if it is over.
    pub(crate) fn until(&self, at: Timestamp) -> Duration {
        Duration::from_millis(at.since(self.now()))
    }
}

fn estimate((now, read_at): (Timestamp, Instant)) -> Timestamp {
    now.after(Millis::try_from(read_at.elapsed().as_millis()).unwrap_or(Millis::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_never_begins_later_than_a_store_whose_clock_stands_still() {
        let clock = StoreClock::new(Timestamp(1_000));
        // An estimate goes on by itself; the store, opened at its high water, may not.
        let started = Instant::now();
        while clock.now() == Timestamp(1_000) && started.elapsed() < Duration::from_secs(10) {
            std::hint::spin_loop();
        }
        clock.observe(Timestamp(1_000));
        assert!(clock.now() > Timestamp(1_000));
        assert_eq!(clock.seen(), Timestamp(1_000), "a lease that the store gives now is from 1,000");
        clock.observe(Timestamp(5_000));
        clock.observe(Timestamp(4_000));
        assert_eq!(clock.seen(), Timestamp(5_000));
    }
}
