//! The timeline of a session on the wire: spans made of its log and its leases.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A stretch of time with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSpan {
    /// `turn`, `attempt` (one model call; one that shortens the conversation has `summary: ` before its
    /// model), `tool` (one call), `wait`, `lease`, or `bin` for all spans that begin in a stretch of a long log.
    pub kind: String,
    /// The model, the tool, the kind of the wait, or the node that held the lease.
    pub name: String,
    /// The id of the event that begins it; of a lease or a bin one that nothing else has.
    pub id: String,
    /// `seq` of the event that begins it; of a lease the first one that it could write.
    pub from_seq: u64,
    /// `seq` of the event that ends it; null while it is open. Of a lease the last row when it ended,
    /// which is before `from_seq` if it wrote none.
    pub to_seq: Option<u64>,
    /// When it began.
    pub start: String,
    /// When it ended; null while it is open.
    pub end: Option<String>,
    /// Whole milliseconds; null while it is open.
    pub duration_ms: Option<u64>,
    /// The model or tool call that it belongs to.
    pub step: Option<u64>,
    /// Of a model call, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// How it ended, in a word.
    pub outcome: Option<String>,
    /// Of a bin: what begins in it, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spans: BTreeMap<String, WireBinned>,
}

/// The spans of one kind that begin in a bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireBinned {
    /// How many.
    pub count: u64,
    /// The sum of those that have ended.
    pub duration_ms: u64,
    /// How they ended, and how many in each way.
    pub outcomes: BTreeMap<String, u64>,
}
