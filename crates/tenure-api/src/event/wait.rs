//! Waits on the wire.

use super::class_word;
use crate::time;
use serde::{Deserialize, Serialize};
use tenure_core::{Wait, WaitKind};

/// Why a session is parked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireWait {
    /// One word: timer, action, callback, backoff, condition, upstream, budget, stuck, set_aside.
    pub kind: String,
    /// Since when.
    pub since: String,
    /// When it goes on by itself.
    pub until: Option<String>,
    /// The calls that are open because of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_use_ids: Vec<String>,
    /// The callback that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_id: Option<String>,
    /// What failed upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Attempts so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The model that cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The shared condition that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition_id: Option<String>,
    /// The limit that is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Why it was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl WireWait {
    /// A wait as the API shows it.
    pub fn of(wait: &Wait) -> Self {
        let mut wire = Self {
            kind: wait.kind.name().into(),
            since: time::write(wait.since),
            until: wait.until.map(time::write),
            tool_use_ids: wait.calls.iter().map(ToString::to_string).collect(),
            ..Self::default()
        };
        match &wait.kind {
            WaitKind::Timer | WaitKind::Action | WaitKind::Stuck => {}
            WaitKind::Callback { callback } => wire.callback_id = Some(callback.to_string()),
            WaitKind::Backoff { class, attempt } => {
                wire.class = Some(class_word(*class).into());
                wire.attempt = Some(*attempt);
            }
            WaitKind::Condition { class, model, condition } => {
                wire.condition_id = condition.map(|id| id.to_string());
                wire.class = Some(class_word(*class).into());
                wire.model = Some(model.clone());
            }
            WaitKind::Upstream { class } => wire.class = Some(class_word(*class).into()),
            WaitKind::SetAside { reason } => wire.reason = Some(reason.clone()),
            WaitKind::Budget { which } => wire.limit = Some(which.name().into()),
        }
        wire
    }
}
