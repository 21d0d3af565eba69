//! The leases that a session had: who advanced it when, and how each lease ended.
//!
//! A lease is written down when it ends, in the transaction that ends it, so that taking one up costs
//! nothing. The one that is out now comes from the head.

use tenure_core::{NodeId, SessionId, TenantId, Timestamp};

/// Epochs whose leases a session keeps, counted back from the lease that ended last. An epoch is used
/// up by each lease, and one more by each that was released or lost.
pub const KEPT_EPOCHS: u64 = 2_000;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseEnd {
    /// The session waits for something.
    Parked,
    /// Others were to have their turn.
    Yielded,
    /// The holder gave it back, or ended in good order.
    Released,
    /// The holder died, or did not know that it had it.
    Lost,
    /// The session ended.
    Ended,
}

impl LeaseEnd {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Parked, Self::Yielded, Self::Released, Self::Lost, Self::Ended];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Yielded => "yielded",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Ended => "ended",
        }
    }
}

/// A lease that a session had, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastLease {
    /// Its epoch.
    pub epoch: u64,
    /// Who held it.
    pub node: NodeId,
    /// When it was given.
    pub from: Timestamp,
    /// The last row of the log when it was given.
    pub from_seq: u64,
    /// `None` while it is out.
    pub end: Option<PastEnd>,
}

/// The end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastEnd {
    /// When.
    pub at: Timestamp,
    /// The last row of the log then.
    pub seq: u64,
    /// How.
    pub how: LeaseEnd,
}

/// Which leases to read.
#[derive(Clone, Debug)]
pub struct LeaseQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Of which session.
    pub session: SessionId,
    /// Above this epoch.
    pub after: u64,
    /// Most rows; at most [`crate::MAX_PAGE`].
    pub limit: usize,
}
