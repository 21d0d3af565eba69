//! Wakes parked sessions whose time has come.

use crate::services::Services;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::Timestamp;
use tokio::sync::Notify;

/// Sessions that one look may wake.
const BATCH: usize = 256;

/// Longest time between two looks: timers set by other processes are found by looking.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Shortest time until the next look for a session that the last look did not wake: what is due by the
/// clock of this node is not yet due by that of a store that stands still, because it was set back
/// (hazard Z-24), and asking all the time makes it no quicker.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The earliest time that this node knows of.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    earliest: Mutex<Option<Timestamp>>,
    changed: Notify,
}

impl Timers {
    /// Says that a session was parked until `at`.
    pub(crate) fn note(&self, at: Timestamp) {
        let mut earliest = self.earliest.lock().expect("nobody panics while holding it");
        if earliest.is_none_or(|known| at < known) {
            *earliest = Some(at);
            self.changed.notify_one();
        }
    }

    fn set(&self, at: Option<Timestamp>) {
        *self.earliest.lock().expect("nobody panics while holding it") = at;
    }

    fn earliest(&self) -> Option<Timestamp> {
        *self.earliest.lock().expect("nobody panics while holding it")
    }
}

/// Looks for due sessions until the worker stops.
pub(crate) async fn run(services: Arc<Services>) {
    loop {
        let most = match services.store.due(BATCH).await {
            Ok(due) => {
                services.clock.observe(due.now);
                services.timers.set(due.next);
                if due.woken == BATCH { Duration::ZERO } else { MAX_PAUSE }
            }
            Err(error) => {
                tracing::warn!(%error, "look for due sessions");
                MAX_PAUSE
            }
        };
        let pause = pause(most, services.timers.earliest().map(|at| services.clock.until(at)));
        tokio::select! {
            biased;
            () = services.stopping.cancelled() => return,
            () = services.timers.changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// How long until the next look: at most `most`, and not before the next session is due.
fn pause(most: Duration, until_next: Option<Duration>) -> Duration {
    most.min(until_next.unwrap_or(MAX_PAUSE).max(MIN_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_24_a_store_whose_clock_stands_still_is_not_asked_all_the_time() {
        // Due by the clock of this node, and not woken by the store.
        assert_eq!(pause(MAX_PAUSE, Some(Duration::ZERO)), MIN_PAUSE);
        assert_eq!(pause(MAX_PAUSE, Some(Duration::from_millis(80))), Duration::from_millis(80));
        assert_eq!(pause(MAX_PAUSE, Some(Duration::from_secs(80))), MAX_PAUSE);
        assert_eq!(pause(MAX_PAUSE, None), MAX_PAUSE);
        assert_eq!(pause(Duration::ZERO, Some(Duration::from_secs(1))), Duration::ZERO, "there are more of them");
    }
}
