//! A small rate limit for routes without a key.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tenure_core::CallbackId;
use tokio::time::Instant;

/// Requests for one callback in a window.
const MAX_REQUESTS: u32 = 30;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(60);

/// Most callbacks that are counted at a time; beyond it old windows are forgotten.
const MAX_COUNTED: usize = 10_000;

/// Counts requests by callback. Only tokens that are valid are counted, so strangers fill nothing.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    windows: Mutex<BTreeMap<CallbackId, (Instant, u32)>>,
}

impl Rate {
    /// Counts a request; gives the time to wait if it is one too many.
    pub(crate) fn count(&self, callback: CallbackId) -> Option<Duration> {
        let now = Instant::now();
        let mut windows = self.windows.lock().expect("nobody panics while holding it");
        if windows.len() >= MAX_COUNTED {
            windows.retain(|_, (start, _)| now.duration_since(*start) < WINDOW);
        }
        let (start, count) = windows.entry(callback).or_insert((now, 0));
        if now.duration_since(*start) >= WINDOW {
            (*start, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        (*count > MAX_REQUESTS).then(|| WINDOW.saturating_sub(now.duration_since(*start)))
    }
}
