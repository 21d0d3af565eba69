//! How long this node may believe that its leases are its own, without asking (design 7.6).

use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Runs out some time after the newest good heartbeat was sent, by the monotonic clock of this machine.
///
/// Asked right before each effect: a process that was stopped goes on where it was, and its other
/// threads may not have noticed yet (hazard Z-12).
#[derive(Debug)]
pub(crate) struct Trust {
    from: Mutex<Instant>,
    span: Duration,
}

impl Trust {
    /// Trusts for `span` from now on.
    pub(crate) fn new(span: Duration) -> Self {
        Self { from: Mutex::new(Instant::now()), span }
    }

    /// The heartbeat that was sent then was stored.
    pub(crate) fn renew(&self, sent: Instant) {
        *self.from.lock().expect("nobody panics while holding it") = sent;
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.span.saturating_sub(self.from.lock().expect("nobody panics while holding it").elapsed())
    }

    /// Whether an effect may start.
    pub(crate) fn holds(&self) -> bool {
        !self.left().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_12_trust_runs_out_from_when_the_heartbeat_was_sent_and_not_from_its_answer() {
        let trust = Trust::new(Duration::from_secs(3_600));
        assert!(trust.holds());
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3_601));
        // A machine that started less than an hour ago has no such time.
        if let Some(long_ago) = long_ago {
            trust.renew(long_ago);
            assert!(!trust.holds());
        }
        assert!(!Trust::new(Duration::ZERO).holds());
    }
}
