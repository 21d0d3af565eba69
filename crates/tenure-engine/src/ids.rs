//! New ids: version 7 UUIDs, so that they sort by time and cannot be guessed.

use tenure_core::{CallbackId, ConditionId, EventId, LeaseId, NodeId, SnapshotId};
use uuid::Uuid;

fn bits() -> u128 {
    Uuid::now_v7().as_u128()
}

/// An id for a new event.
pub(crate) fn event() -> EventId {
    EventId::from_bits(bits())
}

/// An id for a claim or a commit.
pub(crate) fn lease() -> LeaseId {
    LeaseId::from_bits(bits())
}

/// An id for a condition that opens.
pub(crate) fn condition() -> ConditionId {
    ConditionId::from_bits(bits())
}

/// An id for a snapshot.
pub(crate) fn snapshot() -> SnapshotId {
    SnapshotId::from_bits(bits())
}

/// An id for this start of this process.
pub(crate) fn node() -> NodeId {
    NodeId::from_bits(bits())
}

/// An id for a callback; all of it random, because it is half of a secret.
pub(crate) fn callback() -> CallbackId {
    CallbackId::from_bits(rand::random())
}
