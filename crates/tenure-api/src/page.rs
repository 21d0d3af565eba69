//! Lists on the wire.

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows.
    pub data: Vec<T>,
    /// Given as `page` for the next rows; null at the end.
    pub next_page: Option<String>,
}

/// Rows without pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows<T> {
    /// The rows.
    pub data: Vec<T>,
}

/// Says that something is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// What.
    pub id: String,
    /// `session_deleted` or `environment_deleted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Ours: events of a session that stay because forks share them; left out for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_events: Option<u64>,
}
