//! Agents on the wire.

mod read;
mod tool;

pub use read::{AgentChange, ModelsChange};
pub use tool::{WAIT_TOOLS, WORKSPACE_TOOLS, effective_tools};

use crate::event::effect_word;
use crate::limits::WireLimits;
use crate::time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_core::{Agent, CompactionMode, CompactionPolicy, Loop, Policies, UnknownOutcome};

/// One version of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireAgent {
    /// Shared by all versions.
    pub id: String,
    /// Always `agent`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Counted from 1.
    pub version: u32,
    /// What works on sessions; also part of each session.
    #[serde(flatten)]
    pub definition: Definition,
    /// Notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// When the first version was made.
    pub created_at: String,
    /// When this version was made.
    pub updated_at: String,
    /// When it was archived.
    pub archived_at: Option<String>,
}

/// An agent as part of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionAgent {
    /// The agent.
    pub id: String,
    /// Always `agent`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version to which the session is pinned.
    pub version: u32,
    /// What works on the session.
    #[serde(flatten)]
    pub definition: Definition,
}

/// What an agent is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// For people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// Which model.
    pub model: WireModel,
    /// Instructions for the model.
    pub system: Option<String>,
    /// As they were given, with all fields filled in.
    pub tools: Vec<Value>,
    /// Always empty: not served yet.
    pub mcp_servers: Vec<Value>,
    /// Always empty: not served yet.
    pub skills: Vec<Value>,
    /// Always null: not served yet.
    pub multiagent: Option<Value>,
    /// Always the service account, which is the worker's own user: there are no cloud roles here.
    pub execution_identity: ExecutionIdentity,
    /// Ours: models to try in order when the first one cannot answer.
    pub fallback_models: Vec<String>,
    /// Ours: limits of each of its sessions.
    pub limits: WireLimits,
    /// Ours: how it behaves when something is in doubt.
    pub policies: WirePolicies,
    /// Ours: who decides the next action.
    #[serde(rename = "loop")]
    pub run_loop: Value,
    /// Ours: the tools that the model is really offered.
    pub effective: Effective,
    /// Ours: what was asked for and is not in force.
    pub warnings: Vec<String>,
}

/// As whom the agent acts towards clouds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionIdentity {
    /// Always `service_account`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Which model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireModel {
    /// `provider/name`, or a bare name.
    pub id: String,
    /// Always `standard`.
    pub speed: String,
    /// Always null: the provider's own setting.
    pub effort: Option<Value>,
    /// Always null.
    pub inference_geo: Option<String>,
}

/// What is really in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effective {
    /// The tools that the model is offered.
    pub tools: Vec<EffectiveTool>,
}

/// A tool that the model is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveTool {
    /// What the model calls it.
    pub name: String,
    /// `always_allow`, `always_ask` or `always_deny`; `client` for tools that the client answers.
    pub permission: String,
    /// An override of its effect class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// Policies of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WirePolicies {
    /// Attempts and waits for a failing upstream.
    pub retry: WireRetry,
    /// How long an approval may take.
    pub approval: WireApproval,
    /// `tell_model` or `ask_person`.
    pub unknown_outcome: String,
    /// Most output tokens per model call.
    pub max_output_tokens: Option<u32>,
    /// What happens when a conversation becomes too long for the model.
    #[serde(default)]
    pub compaction: WireCompaction,
}

/// What happens when a conversation becomes too long for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireCompaction {
    /// `auto` or `off`.
    pub mode: String,
    /// Input tokens at which it is summarised; null takes four fifths of what fits.
    pub trigger_tokens: Option<u64>,
    /// Tokens of the newest rows that stay as they are; null takes a fifth of what fits.
    pub keep_tokens: Option<u64>,
    /// The model that writes the summary; null takes the one that works.
    pub model: Option<String>,
}

impl WireCompaction {
    fn of(policy: &CompactionPolicy) -> Self {
        let mode = match policy.mode {
            CompactionMode::Auto => "auto",
            CompactionMode::Off => "off",
        };
        Self {
            mode: mode.into(),
            trigger_tokens: policy.trigger_tokens,
            keep_tokens: policy.keep_tokens,
            model: policy.model.clone(),
        }
    }
}

/// Attempts and waits for a failing upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRetry {
    /// Attempts of one model call before a person is asked.
    pub max_attempts: u32,
    /// Upper end of the first wait.
    pub base_ms: u64,
    /// Upper end of every wait of our own.
    pub cap_ms: u64,
}

/// How long an approval may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireApproval {
    /// After it the call is denied; null waits for ever.
    pub timeout_seconds: Option<u64>,
}

impl WireAgent {
    /// An agent as the API shows it.
    pub fn of(agent: &Agent) -> Self {
        Self {
            id: agent.id.to_string(),
            kind: "agent".into(),
            version: agent.version,
            definition: Definition::of(agent),
            metadata: agent.metadata.clone(),
            created_at: time::write(agent.created_at),
            updated_at: time::write(agent.updated_at),
            archived_at: agent.archived_at.map(time::write),
        }
    }
}

impl SessionAgent {
    /// An agent as part of a session.
    pub fn of(agent: &Agent) -> Self {
        Self {
            id: agent.id.to_string(),
            kind: "agent".into(),
            version: agent.version,
            definition: Definition::of(agent),
        }
    }
}

impl Definition {
    fn of(agent: &Agent) -> Self {
        let (tools, warnings) = effective_tools(agent);
        Self {
            name: agent.name.clone(),
            description: agent.description.clone(),
            model: WireModel { id: agent.model.clone(), speed: "standard".into(), effort: None, inference_geo: None },
            system: agent.system.clone(),
            tools: agent.tools.iter().map(tool::write).collect(),
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            multiagent: None,
            execution_identity: ExecutionIdentity { kind: "service_account".into() },
            fallback_models: agent.fallback_models.clone(),
            limits: WireLimits::of(agent.limits),
            policies: WirePolicies::of(&agent.policies),
            run_loop: match &agent.run_loop {
                Loop::BuiltIn => "built_in".into(),
                Loop::External { queue } => json!({"type": "external", "queue": queue}),
            },
            effective: Effective { tools },
            warnings,
        }
    }
}

impl WirePolicies {
    fn of(policies: &Policies) -> Self {
        Self {
            retry: WireRetry {
                max_attempts: policies.retry.max_attempts,
                base_ms: policies.retry.base,
                cap_ms: policies.retry.cap,
            },
            approval: WireApproval { timeout_seconds: policies.approval_timeout.map(|millis| millis / 1_000) },
            unknown_outcome: match policies.unknown_outcome {
                UnknownOutcome::TellModel => "tell_model".into(),
                UnknownOutcome::AskPerson => "ask_person".into(),
            },
            max_output_tokens: policies.max_output_tokens,
            compaction: WireCompaction::of(&policies.compaction),
        }
    }
}

fn effect_text(effect: Option<tenure_core::Effect>) -> Option<String> {
    effect.map(|effect| effect_word(effect).to_owned())
}

#[cfg(test)]
mod tests;
