//! Agents: versioned definitions of who works on a session, with which tools and under which limits.

use crate::budget::Limits;
use crate::id::{AgentId, TenantId};
use crate::json::Json;
use crate::time::{Millis, Timestamp};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// One version of an agent; never changed once stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Shared by all versions.
    pub id: AgentId,
    /// Counted from 1.
    pub version: u32,
    /// Who owns it.
    pub tenant: TenantId,
    /// For people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// `provider/name`, or a bare name that the configuration resolves.
    pub model: String,
    /// Models to try in order when the first one cannot answer; empty for none.
    pub fallback_models: Vec<String>,
    /// Instructions for the model.
    pub system: Option<String>,
    /// What it may use.
    pub tools: Vec<Tool>,
    /// Limits of each of its sessions, unless the session says otherwise.
    pub limits: Limits,
    /// How it behaves when something is in doubt.
    pub policies: Policies,
    /// Who decides the next action.
    pub run_loop: Loop,
    /// Free notes of the client; bounded by the API.
    pub metadata: BTreeMap<String, String>,
    /// When the first version was made.
    pub created_at: Timestamp,
    /// When this version was made.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
}

/// Models that a session uses instead of its agent's: the user's choice between steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelChoice {
    /// In place of [`Agent::model`]; `None` takes that one.
    pub model: Option<String>,
    /// In place of [`Agent::fallback_models`]; `None` takes those.
    pub fallback_models: Option<Vec<String>>,
}

impl Agent {
    /// The agent with the models that were chosen for a session.
    pub fn with_models(&self, choice: &ModelChoice) -> Self {
        let model = choice.model.clone().unwrap_or_else(|| self.model.clone());
        let fallback_models = choice.fallback_models.clone().unwrap_or_else(|| self.fallback_models.clone());
        Self { model, fallback_models, ..self.clone() }
    }

    /// The models in the order in which they are tried, each once.
    pub fn models(&self) -> Vec<&str> {
        let mut models = Vec::with_capacity(1 + self.fallback_models.len());
        for name in core::iter::once(&self.model).chain(&self.fallback_models) {
            if !models.contains(&name.as_str()) {
                models.push(name.as_str());
            }
        }
        models
    }
}

/// Names one version of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentRef {
    /// The agent.
    pub id: AgentId,
    /// The version that a session is pinned to.
    pub version: u32,
}

/// Who decides the next action of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Loop {
    /// The tool-use loop of the core.
    #[default]
    BuiltIn,
    /// A program of the user's own, which takes leases over the API (design 4.9).
    External {
        /// Where it takes them from; bounded by the API.
        queue: String,
    },
}

impl Loop {
    /// The queue of an external loop.
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::BuiltIn => None,
            Self::External { queue } => Some(queue),
        }
    }
}

/// A tool or set of tools of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    /// bash, read, write, edit, glob, grep in the sandbox (`agent_toolset_20260401`).
    Sandbox {
        /// For tools without an own entry.
        default: ToolConfig,
        /// By tool name.
        configs: BTreeMap<String, ToolConfig>,
    },
    /// sleep, create_callback, wait_for_callback, ask_user (`tenure_toolset`).
    Waits {
        /// For tools without an own entry.
        default: ToolConfig,
        /// By tool name.
        configs: BTreeMap<String, ToolConfig>,
    },
    /// Answered by the client.
    Custom(CustomTool),
}

/// A tool that the client answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomTool {
    /// What the model calls it.
    pub name: String,
    /// What the model is told about it.
    pub description: String,
    /// JSON schema of its input.
    pub input_schema: Json,
}

/// Settings of one built-in tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolConfig {
    /// Whether the model is offered it.
    pub enabled: bool,
    /// Whether a person is asked first.
    pub permission: Permission,
    /// Overrides the tool's own effect class, for commands that the owner knows to be repeatable.
    pub effect: Option<Effect>,
}

impl Default for ToolConfig {
    fn default() -> Self {
        Self { enabled: true, permission: Permission::Allow, effect: None }
    }
}

/// Whether a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// At once.
    Allow,
    /// After a person said yes.
    Ask,
    /// Never.
    Deny,
}

/// What repeating a call would do (design 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing: may be repeated, and run beside others.
    Pure,
    /// Repeating it leads to the same state.
    Idempotent,
    /// Changes only files: may be repeated after rolling them back; counts as `Once` until then.
    FilesOnly,
    /// Must not happen twice.
    Once,
}

impl Effect {
    /// Whether a call that may have run can be run again.
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::Pure | Self::Idempotent)
    }
}

/// What happens to a call whose outcome is unknown after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownOutcome {
    /// The model is told, and decides.
    #[default]
    TellModel,
    /// A person is asked whether to run it again.
    AskPerson,
}

/// Policies of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Attempts, waits and caps for a failing upstream.
    pub retry: crate::retry::Policy,
    /// How long an approval may take; after it the call is denied. `None` waits for ever.
    pub approval_timeout: Option<Millis>,
    /// What to do about calls with an unknown outcome.
    pub unknown_outcome: UnknownOutcome,
    /// Most output tokens per model call; `None` takes the provider's setting.
    pub max_output_tokens: Option<u32>,
    /// What happens when the conversation becomes too long for the model.
    pub compaction: CompactionPolicy,
}

/// What happens when a conversation becomes too long for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionPolicy {
    /// Whether it is summarised.
    pub mode: CompactionMode,
    /// Input tokens at which it is summarised before the model refuses it; `None` takes four fifths of
    /// what fits.
    pub trigger_tokens: Option<u64>,
    /// Tokens of the newest rows that stay as they are; `None` takes a fifth of what fits.
    pub keep_tokens: Option<u64>,
    /// The model that writes the summary; `None` takes the one that works.
    pub model: Option<String>,
}

/// Whether a conversation that is too long is summarised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionMode {
    /// Before it is too long, and when the provider says that it is.
    #[default]
    Auto,
    /// Never; the session parks when the provider says that it is too long.
    Off,
}
