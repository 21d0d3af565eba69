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
    /// Begins a claim; the store has reached `seen` already, so that its leases are not older.
    pub(crate) fn begin(&self, seen: Timestamp) -> OpenClaim<'_> {
        let mut open = self.open.lock().expect("nobody panics while holding it");
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, seen);
        *self.newest.lock().expect("nobody panics while holding it") = seen;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_03_leases_of_a_claim_under_way_are_never_settled() {
        let claims = Claims::default();
        let first = claims.begin(Timestamp(10));
        assert_eq!(claims.settled_before(), Timestamp(10), "leases of the first are from 10 on");
        let second = claims.begin(Timestamp(20));
        assert_eq!(claims.settled_before(), Timestamp(10));
        drop(first);
        assert_eq!(claims.settled_before(), Timestamp(20));
        drop(second);
        assert_eq!(claims.settled_before(), Timestamp(20), "nothing is known about what comes after");
    }
}
