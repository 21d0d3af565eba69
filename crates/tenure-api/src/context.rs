//! What a model saw at a step.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The request of a model call that was made, built again from the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenContext {
    /// Always `context`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The session.
    pub session_id: String,
    /// `seq` of the row that begins the call.
    pub seq: u64,
    /// The id of that row.
    pub event_id: String,
    /// The step.
    pub step: u64,
    /// Which attempt of it, counted from 1.
    pub attempt: u32,
    /// `answer` or `summary`.
    pub purpose: String,
    /// `provider/name`.
    pub model: String,
    /// The first row that the model saw as it is.
    pub from_seq: u64,
    /// Input tokens, as they were estimated before it was sent.
    pub input_tokens: u64,
    /// The form of `request`; null if it cannot be built any more.
    pub dialect: Option<String>,
    /// The body of the request, with secrets and links of callbacks taken out.
    pub request: Option<Value>,
    /// Whether it is as large as what was sent; the configuration or a definition may have changed since.
    pub is_exact: bool,
    /// Why there is no request.
    pub reason: Option<String>,
}
