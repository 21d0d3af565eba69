//! Conditions in the store: shared by all nodes through it, and through nothing else (promise P10).
//!
//! What a report, a probe or an operator makes of a condition is decided by
//! [`tenure_core::condition`], inside the transaction and by the store's clock. A session waits on a
//! condition if its head says so when it parks; the same commit that parks it makes it one of those
//! who wait, so that nobody can be forgotten in between.

use crate::{Error, Lease};
use async_trait::async_trait;
use tenure_core::condition::{Admission, Condition, Report, Settlement};
use tenure_core::{ConditionId, TenantId, Timestamp};

/// The part of the port that is about upstreams.
#[async_trait]
pub trait Conditions: Send + Sync + 'static {
    /// Opens the condition of a key, or adds to what is known of it.
    async fn report_condition(&self, report: Report) -> Result<Condition, Error>;

    /// Asks whether the holder of a lease may send although there is a condition. Uses up the grant
    /// of a session that was let go, or gives it the right to probe. A condition that is gone is
    /// in nobody's way.
    async fn admit(&self, admit: Admit) -> Result<Admission, Error>;

    /// Says what a probe led to. Returns whether it was the one under way; others change nothing.
    async fn settle_probe(&self, id: ConditionId, number: u64, settlement: Settlement) -> Result<bool, Error>;

    /// Looks after all conditions: has those that are due probed, and lets go of as many waiting
    /// sessions as may leave now. Several nodes may ask at any time; together they let go of no more.
    async fn release_waiting(&self) -> Result<Released, Error>;

    /// All conditions that are not gone, by key; `waiting` counts sessions of this tenant, or of all.
    async fn conditions(&self, tenant: Option<TenantId>) -> Result<Vec<ConditionView>, Error>;

    /// Lets go of those who wait, because an operator says that it is mended. `None` if it is gone.
    async fn clear_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error>;

    /// Has a probe made at once. `None` if it is gone.
    async fn hasten_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error>;
}

/// A question of the holder of a lease.
#[derive(Clone, Debug)]
pub struct Admit {
    /// Who asks.
    pub lease: Lease,
    /// What is in the way.
    pub condition: ConditionId,
    /// Whether an operator told the session to try now.
    pub insists: bool,
}

/// A condition with what only the store knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionView {
    /// The condition.
    pub condition: Condition,
    /// Sessions that are parked on it.
    pub waiting: u64,
}

/// What [`Conditions::release_waiting`] did.
#[derive(Clone, Debug)]
pub struct Released {
    /// All conditions, after it.
    pub conditions: Vec<ConditionView>,
    /// Sessions that became runnable.
    pub woken: u64,
    /// The store's clock.
    pub now: Timestamp,
}
