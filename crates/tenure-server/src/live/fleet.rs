//! What changed in a fleet: names only. Whoever reads it reads the rows again, so that nothing
//! depends on the order of commits (hazard Z-28).

use crate::state::ServerState;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{SessionId, TenantId};
use tenure_store::Hint;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// Changes of so long are told together.
const EVERY: Duration = Duration::from_secs(1);

/// Most sessions that are named; of more it is only said that there are.
const MAX_NAMED: usize = 64;

/// The changes of the sessions of one tenant.
pub(crate) struct Fleet {
    state: Arc<ServerState>,
    tenant: TenantId,
    hints: broadcast::Receiver<Hint>,
    told_at: Option<Instant>,
}

impl Fleet {
    pub(crate) fn new(state: Arc<ServerState>, tenant: TenantId) -> Self {
        let hints = state.store().hints();
        Self { state, tenant, hints, told_at: None }
    }

    /// The sessions that changed, and whether there are more; `None` when the store closes.
    pub(crate) async fn next(&mut self) -> Option<(Vec<String>, bool)> {
        loop {
            let (mut ids, mut more) = (BTreeSet::new(), false);
            self.take_one(&mut ids, &mut more).await?;
            let until = self.told_at.map_or_else(Instant::now, |told| told + EVERY);
            // What else changes meanwhile goes along.
            while let Ok(taken) = tokio::time::timeout_at(until, self.take_one(&mut ids, &mut more)).await {
                taken?;
            }
            let named = self.of_tenant(ids).await;
            if more || !named.is_empty() {
                self.told_at = Some(Instant::now());
                return Some((named, more));
            }
        }
    }

    async fn take_one(&mut self, ids: &mut BTreeSet<SessionId>, more: &mut bool) -> Option<()> {
        match self.hints.recv().await {
            Ok(Hint::Session(id) | Hint::Control(id)) if ids.len() < MAX_NAMED => {
                ids.insert(id);
            }
            Ok(Hint::Session(_) | Hint::Control(_) | Hint::Anything) | Err(RecvError::Lagged(_)) => *more = true,
            Ok(Hint::Runnable) => {}
            Err(RecvError::Closed) => return None,
        }
        Some(())
    }

    /// Those of this tenant: others learn nothing about them.
    async fn of_tenant(&self, ids: BTreeSet<SessionId>) -> Vec<String> {
        let mut named = Vec::new();
        for id in ids {
            // One that was deleted is named too: it is gone from the rows. Its tenant is not known
            // any more, so it is told as nothing.
            if let Ok(Some(_)) = self.state.store().session(&self.tenant, id).await {
                named.push(id.to_string());
            }
        }
        named
    }
}
