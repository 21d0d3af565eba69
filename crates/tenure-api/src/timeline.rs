//! The timeline of a session on the wire: spans made of its log.

use serde::{Deserialize, Serialize};

/// A stretch of time with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSpan {
    /// `turn`, `attempt` (one model call), `tool` (one call) or `wait`.
    pub kind: String,
    /// The model, the tool, or the kind of the wait.
    pub name: String,
    /// The id of the event that begins it.
    pub id: String,
    /// `seq` of the event that begins it.
    pub from_seq: u64,
    /// `seq` of the event that ends it; null while it is open.
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
    /// How it ended, in a word.
    pub outcome: Option<String>,
}
