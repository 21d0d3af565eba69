//! Snapshots on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::{Consistency, SnapshotReason};

/// What the files of a session were at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshot {
    /// Its id.
    pub id: String,
    /// Whose files they are.
    pub session_id: String,
    /// The event of the session's log that tells of it.
    pub seq: u64,
    /// When it was taken.
    pub created_at: String,
    /// `frozen`, `fuzzy` or `torn`: how far its files belong to one moment.
    pub consistency: String,
    /// Files, folders, links and FIFOs in it.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that were stored for it.
    pub new_bytes: u64,
    /// What could not be kept: at most 1,000 paths, each with its reason.
    pub left_out: Vec<WireLeftOut>,
    /// How much could not be kept.
    pub left_out_count: u64,
    /// The snapshot before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
}

/// Something that is not in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireLeftOut {
    /// Where.
    pub path: String,
    /// `socket`, `device` or `attribute`.
    pub reason: String,
}

/// One difference between two states of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireChange {
    /// `added`, `removed` or `changed`.
    pub change: String,
    /// What it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<crate::files::WireFile>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<crate::files::WireFile>,
}

/// The word for what asked for a snapshot.
pub fn reason(reason: SnapshotReason) -> &'static str {
    match reason {
        SnapshotReason::Step => "step",
        SnapshotReason::Lease => "lease",
        SnapshotReason::Wait => "wait",
        SnapshotReason::Turn => "turn",
        SnapshotReason::Manual => "manual",
    }
}

/// The word for how far the files of a snapshot belong to one moment.
pub fn consistency(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Frozen => "frozen",
        Consistency::Fuzzy => "fuzzy",
        Consistency::Torn => "torn",
    }
}
