//! Stored agents and environments.

use super::Form;
use super::event::json;
use super::session::LimitsForm;
use super::words::Word;
use crate::agent::{Agent, CompactionPolicy, CustomTool, Loop, Policies, Tool, ToolConfig};
use crate::environment::{Environment, SandboxLimits};
use crate::id::TenantId;
use crate::retry::Policy;
use crate::time::Timestamp;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct ConfigForm {
    on: bool,
    ask: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
}

impl Form<ToolConfig> for ConfigForm {
    fn of(value: &ToolConfig) -> Self {
        let effect = value.effect.map(|effect| effect.word().to_string());
        Self { on: value.enabled, ask: value.permission.word().to_string(), effect }
    }

    fn to(self) -> Result<ToolConfig, String> {
        let effect = self.effect.map(|word| Word::of_word(&word)).transpose()?;
        Ok(ToolConfig { enabled: self.on, permission: Word::of_word(&self.ask)?, effect })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum ToolForm {
    Sandbox { default: ConfigForm, configs: BTreeMap<String, ConfigForm> },
    Waits { default: ConfigForm, configs: BTreeMap<String, ConfigForm> },
    Custom { name: String, text: String, schema: String },
}

fn configs_of(configs: &BTreeMap<String, ToolConfig>) -> BTreeMap<String, ConfigForm> {
    configs.iter().map(|(name, config)| (name.clone(), ConfigForm::of(config))).collect()
}

fn to_configs(forms: BTreeMap<String, ConfigForm>) -> Result<BTreeMap<String, ToolConfig>, String> {
    forms.into_iter().map(|(name, form)| Ok((name, form.to()?))).collect()
}

impl Form<Tool> for ToolForm {
    fn of(value: &Tool) -> Self {
        match value {
            Tool::Sandbox { default, configs } => {
                Self::Sandbox { default: ConfigForm::of(default), configs: configs_of(configs) }
            }
            Tool::Waits { default, configs } => {
                Self::Waits { default: ConfigForm::of(default), configs: configs_of(configs) }
            }
            Tool::Custom(custom) => Self::Custom {
                name: custom.name.clone(),
                text: custom.description.clone(),
                schema: custom.input_schema.as_str().to_string(),
            },
        }
    }

    fn to(self) -> Result<Tool, String> {
        Ok(match self {
            Self::Sandbox { default, configs } => {
                Tool::Sandbox { default: default.to()?, configs: to_configs(configs)? }
            }
            Self::Waits { default, configs } => Tool::Waits { default: default.to()?, configs: to_configs(configs)? },
            Self::Custom { name, text, schema } => {
                Tool::Custom(CustomTool { name, description: text, input_schema: json(&schema)? })
            }
        })
    }
}

#[derive(Serialize, Deserialize)]
struct PoliciesForm {
    attempts: u32,
    base: u64,
    cap: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<u64>,
    unknown: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compaction: Option<CompactionForm>,
}

#[derive(Serialize, Deserialize)]
struct CompactionForm {
    mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trigger: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

impl Form<CompactionPolicy> for CompactionForm {
    fn of(value: &CompactionPolicy) -> Self {
        let mode = value.mode.word().to_string();
        Self { mode, trigger: value.trigger_tokens, keep: value.keep_tokens, model: value.model.clone() }
    }

    fn to(self) -> Result<CompactionPolicy, String> {
        let mode = Word::of_word(&self.mode)?;
        Ok(CompactionPolicy { mode, trigger_tokens: self.trigger, keep_tokens: self.keep, model: self.model })
    }
}

impl Form<Policies> for PoliciesForm {
    fn of(value: &Policies) -> Self {
        Self {
            attempts: value.retry.max_attempts,
            base: value.retry.base,
            cap: value.retry.cap,
            approval: value.approval_timeout,
            unknown: value.unknown_outcome.word().to_string(),
            output: value.max_output_tokens,
            // Agents of before had no such policy; the default is what they get.
            compaction: (value.compaction != CompactionPolicy::default())
                .then(|| CompactionForm::of(&value.compaction)),
        }
    }

    fn to(self) -> Result<Policies, String> {
        Ok(Policies {
            retry: Policy { max_attempts: self.attempts, base: self.base, cap: self.cap },
            approval_timeout: self.approval,
            unknown_outcome: Word::of_word(&self.unknown)?,
            max_output_tokens: self.output,
            compaction: self.compaction.map(Form::to).transpose()?.unwrap_or_default(),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct AgentForm {
    id: String,
    version: u32,
    tenant: String,
    name: String,
    description: Option<String>,
    model: String,
    #[serde(default)]
    fallback: Vec<String>,
    system: Option<String>,
    tools: Vec<ToolForm>,
    limits: LimitsForm,
    policies: PoliciesForm,
    /// The queue of an external loop; the loop is the built-in one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    created: i64,
    updated: i64,
    archived: Option<i64>,
}

impl Form<Agent> for AgentForm {
    fn of(value: &Agent) -> Self {
        Self {
            id: value.id.to_string(),
            version: value.version,
            tenant: value.tenant.0.clone(),
            name: value.name.clone(),
            description: value.description.clone(),
            model: value.model.clone(),
            fallback: value.fallback_models.clone(),
            system: value.system.clone(),
            tools: value.tools.iter().map(ToolForm::of).collect(),
            limits: LimitsForm::of(&value.limits),
            policies: PoliciesForm::of(&value.policies),
            queue: value.run_loop.queue().map(ToString::to_string),
            metadata: value.metadata.clone(),
            created: value.created_at.0,
            updated: value.updated_at.0,
            archived: value.archived_at.map(|at| at.0),
        }
    }

    fn to(self) -> Result<Agent, String> {
        Ok(Agent {
            id: self.id.parse().map_err(|error: crate::IdError| error.to_string())?,
            version: self.version,
            tenant: TenantId(self.tenant),
            name: self.name,
            description: self.description,
            model: self.model,
            fallback_models: self.fallback,
            system: self.system,
            tools: self.tools.into_iter().map(Form::to).collect::<Result<_, _>>()?,
            limits: self.limits.to()?,
            policies: self.policies.to()?,
            run_loop: self.queue.map_or(Loop::BuiltIn, |queue| Loop::External { queue }),
            metadata: self.metadata,
            created_at: Timestamp(self.created),
            updated_at: Timestamp(self.updated),
            archived_at: self.archived.map(Timestamp),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct EnvironmentForm {
    id: String,
    tenant: String,
    name: String,
    description: Option<String>,
    driver: String,
    network: String,
    #[serde(default)]
    memory: Option<u64>,
    #[serde(default)]
    processes: Option<u32>,
    #[serde(default)]
    cpu: Option<u32>,
    #[serde(default)]
    disk: Option<u64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    created: i64,
    updated: i64,
    archived: Option<i64>,
}

impl Form<Environment> for EnvironmentForm {
    fn of(value: &Environment) -> Self {
        Self {
            id: value.id.to_string(),
            tenant: value.tenant.0.clone(),
            name: value.name.clone(),
            description: value.description.clone(),
            driver: value.driver.word().to_string(),
            network: value.network.word().to_string(),
            memory: value.limits.memory_bytes,
            processes: value.limits.processes,
            cpu: value.limits.cpu_millis,
            disk: value.limits.disk_bytes,
            metadata: value.metadata.clone(),
            created: value.created_at.0,
            updated: value.updated_at.0,
            archived: value.archived_at.map(|at| at.0),
        }
    }

    fn to(self) -> Result<Environment, String> {
        Ok(Environment {
            id: self.id.parse().map_err(|error: crate::IdError| error.to_string())?,
            tenant: TenantId(self.tenant),
            name: self.name,
            description: self.description,
            driver: Word::of_word(&self.driver)?,
            network: Word::of_word(&self.network)?,
            limits: SandboxLimits {
                memory_bytes: self.memory,
                processes: self.processes,
                cpu_millis: self.cpu,
                disk_bytes: self.disk,
            },
            metadata: self.metadata,
            created_at: Timestamp(self.created),
            updated_at: Timestamp(self.updated),
            archived_at: self.archived.map(Timestamp),
        })
    }
}
