//! The leases that this node holds, and the signals that reach their holders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::SessionId;
use tenure_store::Lease;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// One lease that is held here.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
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
    pub(crate) fn add(&self, lease: Lease) -> Arc<HeldLease> {
        let held =
            Arc::new(HeldLease { lease, urgent: Notify::new(), input: Notify::new(), lost: CancellationToken::new() });
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

    /// Takes the lease of `session` away from its holder.
    pub(crate) fn lose(&self, session: SessionId) {
        if let Some(held) = self.get(session) {
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
