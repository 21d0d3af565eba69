//! Conditions of upstreams on the wire.

use crate::event::class_word;
use crate::time;
use serde::{Deserialize, Serialize};
use tenure_core::class_text;
use tenure_core::condition::{Condition, Stage};

/// A shared fact about an upstream that sessions wait on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireCondition {
    /// Always `condition`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id.
    pub id: String,
    /// The provider whose key is meant.
    pub provider: String,
    /// `provider/model`; null for every model of the provider.
    pub model: Option<String>,
    /// What is wrong: rate_limit, transient, quota, credential, config.
    pub class: String,
    /// What the provider said.
    pub message: String,
    /// One sentence: what is wrong, and what ends it.
    pub text: String,
    /// `open`, `releasing` or `over`.
    pub stage: String,
    /// Since when.
    pub opened_at: String,
    /// Since when it is in this stage.
    pub stage_since: String,
    /// While it is open: when one session tries again.
    pub probe_at: Option<String>,
    /// The session that tries now.
    pub probing_session_id: Option<String>,
    /// Probes that were refused.
    pub refusals: u32,
    /// Sessions of the caller that wait on it.
    pub waiting: u64,
    /// Sessions that may leave in a second, while it is releasing.
    pub released_per_second: Option<f64>,
    /// Whether an operator has to mend something.
    pub needs_operator: bool,
}

impl WireCondition {
    /// A condition as the API shows it; `waiting` counts the caller's sessions.
    pub fn of(condition: &Condition, waiting: u64) -> Self {
        let is_open = condition.stage == Stage::Open;
        Self {
            kind: "condition".into(),
            id: condition.id.to_string(),
            provider: condition.key.credential.clone(),
            model: condition.key.model.clone(),
            class: class_word(condition.class).into(),
            message: condition.message.clone(),
            text: sentence(condition),
            stage: condition.stage.name().into(),
            opened_at: time::write(condition.opened_at),
            stage_since: time::write(condition.stage_since),
            probe_at: is_open.then(|| time::write(condition.probe_at)),
            probing_session_id: condition.probe.filter(|_| is_open).map(|probe| probe.session.to_string()),
            refusals: condition.refusals,
            waiting,
            released_per_second: (condition.stage == Stage::Releasing).then(|| condition.flow.rate as f64 / 1_000.0),
            needs_operator: condition.needs_operator(),
        }
    }
}

/// What is wrong, and what ends it.
pub fn sentence(condition: &Condition) -> String {
    let (subject, class) = (condition.key.subject(), class_text(condition.class));
    match condition.stage {
        Stage::Open if condition.needs_operator() => format!(
            "{subject}: {class}. It ends when that is mended and one session got through: ask for a probe, or wait for the next one."
        ),
        Stage::Open => {
            format!(
                "{subject}: {class}. One session tries again when its time has come; if it gets through, the others follow."
            )
        }
        Stage::Releasing => format!("{subject} answers again; those who waited leave one after the other."),
        Stage::Over => format!("{subject} answers again."),
    }
}
