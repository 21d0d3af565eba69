//! Claims under way, so that the heartbeat does not give back what a claim just brought (hazard Z-03).

use std::collections::BTreeMap;
use std::sync::Mutex;
use tenure_core::Timestamp;

/// Claims whose leases are not registered as held yet.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    open: Mutex<(u64, BTreeMap<u64, Timestamp>)>,
    newest: Mutex<Timestamp>,
}

/// One claim under way; dropped once its leases are held.
pub(crate) struct OpenClaim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Claims {
    /// Begins a claim at `now`.
    pub(crate) fn begin(&self, now: Timestamp) -> OpenClaim<'_> {
        let mut open = self.open.lock().expect("nobody panics while holding it");
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, now);
        *self.newest.lock().expect("nobody panics while holding it") = now;
        OpenClaim { claims: self, number }
    }

    /// Leases given before this time are all registered as held.
    pub(crate) fn settled_before(&self) -> Timestamp {
        let open = self.open.lock().expect("nobody panics while holding it");
        let newest = *self.newest.lock().expect("nobody panics while holding it");
        open.1.values().copied().min().unwrap_or(newest)
    }
}

impl Drop for OpenClaim<'_> {
    fn drop(&mut self) {
        self.claims.open.lock().expect("nobody panics while holding it").1.remove(&self.number);
    }
}
