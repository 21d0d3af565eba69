//! The leases that this node holds, and the signals that reach their holders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::SessionId;
use tenure_store::Lease;
use tenure_telemetry::SpanContext;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// One lease that is held here.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    /// The span of the whole lease.
    pub(crate) trace: SpanContext,
    /// Something urgent waits in the inbox: look at it now.
    pub(crate) urgent: Notify,
    /// Something waits in the inbox.
    pub(crate) input: Notify,
    /// The lease is gone: stop, discard, start no effect.
    pub(crate) lost: CancellationToken,
}

/// All leases that this node holds, by session.
#[derive(Debug, Default)]
pub(crate) struct Held {
    leases: Mutex<BTreeMap<SessionId, Arc<HeldLease>>>,
}

impl Held {
    pub(crate) fn add(&self, lease: Lease, trace: SpanContext) -> Arc<HeldLease> {
        let (urgent, input, lost) = (Notify::new(), Notify::new(), CancellationToken::new());
        let held = Arc::new(HeldLease { lease, trace, urgent, input, lost });
        self.lock().insert(held.lease.session, held.clone());
        held
    }

    /// Forgets a lease, unless a newer one of the same session took its place.
    pub(crate) fn remove(&self, held: &Arc<HeldLease>) {
        let mut leases = self.lock();
        if leases.get(&held.lease.session).is_some_and(|current| Arc::ptr_eq(current, held)) {
            leases.remove(&held.lease.session);
        }
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<HeldLease>> {
        self.lock().get(&session).cloned()
    }

    /// Sessions and epochs, for the heartbeat.
    pub(crate) fn epochs(&self) -> Vec<(SessionId, u64)> {
        self.lock().values().map(|held| (held.lease.session, held.lease.epoch)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Wakes the holder of `session` because of something urgent.
    pub(crate) fn urgent(&self, session: SessionId) {
        if let Some(held) = self.get(session) {
            held.urgent.notify_one();
        }
    }

    /// Takes the lease of `session` with this epoch away from its holder. A newer one stays: the
    /// session may have been let go and leased again while the question was on its way.
    pub(crate) fn lose(&self, session: SessionId, epoch: u64) {
        if let Some(held) = self.get(session).filter(|held| held.lease.epoch == epoch) {
            held.lost.cancel();
        }
    }

    /// Takes all leases away: this node can no longer be sure of any (hazard Z-12).
    pub(crate) fn lose_all(&self) {
        for held in self.lock().values() {
            held.lost.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Arc<HeldLease>>> {
        self.leases.lock().expect("nobody panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{LeaseId, NodeId, TenantId};

    #[test]
    fn a_late_answer_about_an_older_lease_does_not_take_the_newer_one_away() {
        let lease = |epoch| Lease {
            tenant: TenantId::default_tenant(),
            session: SessionId::from_bits(1),
            epoch,
            nonce: LeaseId::from_bits(1),
            node: NodeId::from_bits(1),
        };
        let (held, trace) = (Held::default(), SpanContext::of(&[]));
        let old = held.add(lease(3), trace);
        let new = held.add(lease(4), trace);
        held.lose(SessionId::from_bits(1), 3);
        assert!(!new.lost.is_cancelled());
        held.remove(&old);
        held.lose(SessionId::from_bits(1), 4);
        assert!(new.lost.is_cancelled());
    }
}
