//! Why a session does not run now, and what needs a person.

use crate::time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_core::{Explanation, SessionId};

/// Why a session does not run now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireExplanation {
    /// One word.
    pub phase: String,
    /// The kind of the wait, or the phase if there is none.
    pub kind: String,
    /// One sentence.
    pub text: String,
    /// Since when.
    pub since: Option<String>,
    /// When it goes on by itself.
    pub until: Option<String>,
    /// Whether a worker is held by it.
    pub holds_worker: bool,
    /// Which one.
    pub node: Option<String>,
    /// Sessions that are queued before it.
    pub queue_position: Option<u64>,
    /// Inputs that wait.
    pub inbox_len: u64,
    /// What would make it go on.
    pub unblock: Vec<WireUnblock>,
}

/// A request that would make a session go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireUnblock {
    /// What it does.
    pub text: String,
    /// HTTP method.
    pub method: String,
    /// Path on this server.
    pub path: String,
    /// Body.
    pub body: Value,
}

impl WireExplanation {
    /// An explanation of the head, without what only the store knows.
    pub fn of(session: SessionId, explanation: &Explanation) -> Self {
        let unblock = explanation.unblock.iter().map(|unblock| WireUnblock {
            text: unblock.text.clone(),
            method: "POST".into(),
            path: format!("/v1/sessions/{session}/{}", unblock.path),
            body: serde_json::from_str(&unblock.body).unwrap_or(Value::Null),
        });
        Self {
            phase: explanation.phase.name().into(),
            kind: explanation.kind.clone(),
            text: explanation.text.clone(),
            since: explanation.since.map(time::write),
            until: explanation.until.map(time::write),
            holds_worker: false,
            node: None,
            queue_position: None,
            inbox_len: 0,
            unblock: unblock.collect(),
        }
    }
}

/// A call that needs a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireApproval {
    /// Whose.
    pub session_id: String,
    /// For people.
    pub session_title: Option<String>,
    /// The agent that asks.
    pub agent_id: String,
    /// The call, as answers name it.
    pub tool_use_id: String,
    /// `approval`, `custom_tool` or `question`.
    pub kind: String,
    /// The tool.
    pub name: String,
    /// What it would do.
    pub input: Value,
    /// Since when it waits.
    pub since: Option<String>,
    /// When it is denied by itself.
    pub until: Option<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireNode {
    /// One start of one process.
    pub id: String,
    /// For people.
    pub label: String,
    /// Where other nodes reach it.
    pub address: String,
    /// When it last said that it lives.
    pub beat_at: String,
    /// Dead is final.
    pub is_dead: bool,
    /// Sessions that it works on.
    pub leases: u64,
}
