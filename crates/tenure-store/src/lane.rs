//! Who may lease what: workers, and external loops with their queues (design 4.9).
//!
//! A session of an external loop stands in the queue that its head names. Something urgent in its inbox
//! hands it to the workers until it parks or yields, so that a cancel is carried out although no program
//! of the user's is there (promise P15).

use tenure_core::{Millis, NodeId, TenantId, Timestamp};

/// Holds all leases of external loops. It is never registered, and does not die: each of its leases has
/// a time of its own, at which the next sweep takes it back.
pub const EXTERNAL: NodeId = NodeId::from_bits(0);

/// What a claim asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Sessions of the built-in loop, and those of external loops with something urgent in their inbox.
    Workers,
    /// Sessions of one queue, of one tenant.
    Queue {
        /// Whose.
        tenant: TenantId,
        /// Which.
        name: String,
        /// How long each lease holds if it is not renewed, in milliseconds.
        span: Millis,
    },
}

/// A lease that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Until when, by the store's clock.
    pub until: Timestamp,
    /// Whether the inbox holds something urgent, such as a cancel.
    pub is_urgent: bool,
}

/// What a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Sessions that wait for a lease.
    pub queued: u64,
    /// When the one that waits longest became runnable.
    pub oldest: Option<Timestamp>,
    /// Sessions that are leased by loops of this queue.
    pub leased: u64,
}
