//! Files of a session on the wire.

use serde::{Deserialize, Serialize};

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireFile {
    /// Path inside the workspace.
    pub path: String,
    /// The path percent-encoded, where it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_encoded: Option<String>,
    /// Last part of the path.
    pub name: String,
    /// `file`, `folder`, `link` or `other`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes of a file.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was last changed.
    pub modified_at: String,
    /// Where a link leads, as it is written in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireFolder {
    /// Path inside the workspace.
    pub path: String,
    /// `live`, or the snapshot that has it so.
    pub at: String,
    /// Entries, by name.
    pub data: Vec<WireFile>,
    /// Whether there are more entries than one reply takes.
    pub is_cut: bool,
}
