//! Agents as clients send them.

use super::tool;
use crate::error::Code;
use crate::fields::{Fields, Problem, change_metadata, text};
use crate::lease::{EXTERNAL_MODEL, MAX_QUEUE_NAME, check_queue};
use crate::limits::LimitsChange;
use serde_json::Value;
use std::collections::BTreeMap;
use tenure_core::{
    Agent, AgentId, CompactionMode, CompactionPolicy, Limits, Loop, ModelChoice, Policies, SnapshotPolicy, TenantId,
    Timestamp, Tool, UnknownOutcome,
};

/// Longest name, in characters.
const MAX_NAME: usize = 256;

/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 4_096;

/// Longest instructions, in characters.
const MAX_SYSTEM: usize = 400_000;

/// Most fallback models.
const MAX_FALLBACKS: usize = 8;

/// Fewest tokens at which a conversation is summarised; below it there is nothing to summarise.
const MIN_TRIGGER_TOKENS: u64 = 1_000;

/// Longest name of a model.
const MAX_MODEL: usize = 256;

/// What a request says about an agent; all fields may be left out.
#[derive(Clone, Debug, Default)]
pub struct AgentChange {
    /// The version that is changed; refused if there is a newer one.
    pub version: Option<u64>,
    /// The model as it was written.
    pub model: Option<String>,
    name: Option<String>,
    description: Option<Option<String>>,
    system: Option<Option<String>>,
    tools: Option<Vec<Tool>>,
    fallback_models: Option<Vec<String>>,
    limits: LimitsChange,
    policies: Option<PoliciesChange>,
    metadata: BTreeMap<String, Option<String>>,
    run_loop: Option<Loop>,
}

impl AgentChange {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong or not served.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.refuse("skills", "skills are not served yet")?;
        fields.refuse("mcp_servers", "MCP servers are not served yet")?;
        fields.refuse("multiagent", "agents of several parts are not served yet")?;
        if let Some(identity) = fields.inner("execution_identity")?
            && identity.kind()? != "service_account"
        {
            return Err(Problem::new(
                Code::UnsupportedFeature,
                format!("{}: only service_account is served", identity.path("type")),
            ));
        }
        let described = |name: &str, max| -> Result<Option<Option<String>>, Problem> {
            // An empty text takes it away, as null does.
            let text = |_| fields.text(name, max).map(|text| text.filter(|text| !text.is_empty()));
            fields.change(name).map(text).transpose()
        };
        let name = match fields.get("name") {
            Some(_) => Some(fields.required_text("name", MAX_NAME)?),
            None => None,
        };
        let limits = match fields.inner("limits")? {
            Some(limits) => LimitsChange::read_fields(&limits)?,
            None => LimitsChange::default(),
        };
        Ok(Self {
            version: fields.number("version")?,
            model: fields.get("model").map(|value| read_model(value, &fields.path("model"))).transpose()?,
            name,
            description: described("description", MAX_DESCRIPTION)?,
            system: described("system", MAX_SYSTEM)?,
            tools: fields.change("tools").map(|_| tool::read_all(fields)).transpose()?,
            fallback_models: fields.change("fallback_models").map(|_| read_models(fields)).transpose()?,
            limits,
            policies: fields.inner("policies")?.map(|policies| PoliciesChange::read(&policies)).transpose()?,
            metadata: fields.metadata()?,
            run_loop: fields.get("loop").map(|value| read_loop(value, &fields.path("loop"))).transpose()?,
        })
    }

    /// A new agent.
    ///
    /// # Errors
    /// When name or model are missing.
    pub fn create(self, id: AgentId, tenant: TenantId, now: Timestamp) -> Result<Agent, Problem> {
        let missing = |name: &str| Problem::new(Code::MissingField, format!("{name}: this field is required"));
        let mut agent = Agent {
            id,
            version: 1,
            tenant,
            name: self.name.clone().ok_or_else(|| missing("name"))?,
            description: None,
            model: match (&self.model, &self.run_loop) {
                (Some(model), _) => model.clone(),
                // It calls models itself, and says which when it reports their use.
                (None, Some(Loop::External { .. })) => EXTERNAL_MODEL.to_owned(),
                (None, Some(Loop::BuiltIn) | None) => return Err(missing("model")),
            },
            fallback_models: Vec::new(),
            system: None,
            tools: Vec::new(),
            limits: Limits::default(),
            policies: Policies::default(),
            run_loop: Loop::BuiltIn,
            metadata: BTreeMap::new(),
            created_at: now,
            updated_at: now,
            archived_at: None,
        };
        self.apply(&mut agent)?;
        Ok(agent)
    }

    /// Changes an agent; version and times are the caller's.
    ///
    /// # Errors
    /// When the result breaks a bound.
    pub fn apply(self, agent: &mut Agent) -> Result<(), Problem> {
        let Self {
            version: _,
            model,
            name,
            description,
            system,
            tools,
            fallback_models,
            limits,
            policies,
            metadata,
            run_loop,
        } = self;
        agent.run_loop = run_loop.unwrap_or_else(|| agent.run_loop.clone());
        agent.model = model.unwrap_or_else(|| agent.model.clone());
        agent.name = name.unwrap_or_else(|| agent.name.clone());
        agent.description = description.unwrap_or_else(|| agent.description.clone());
        agent.system = system.unwrap_or_else(|| agent.system.clone());
        agent.tools = tools.unwrap_or_else(|| agent.tools.clone());
        agent.fallback_models = fallback_models.unwrap_or_else(|| agent.fallback_models.clone());
        agent.limits = limits.apply(agent.limits);
        if let Some(policies) = policies {
            policies.apply(&mut agent.policies);
        }
        change_metadata(&mut agent.metadata, metadata)
    }

    /// The models that it names, each with its place.
    pub fn models(&self) -> Vec<(String, String)> {
        let main = self.model.iter().map(|model| ("model".to_owned(), model.clone()));
        let others = self.fallback_models.iter().flatten().enumerate();
        let of_summaries =
            self.policies.iter().filter_map(|policies| policies.compaction.as_ref()?.model.clone().flatten());
        main.chain(others.map(|(place, model)| (format!("fallback_models[{place}]"), model.clone())))
            .chain(of_summaries.map(|model| ("policies.compaction.model".to_owned(), model)))
            .collect()
    }

    /// Whether the loop is external after the change of `base`: then its models are none of ours.
    pub fn is_external(&self, base: Option<&Agent>) -> bool {
        let run_loop = self.run_loop.as_ref().or(base.map(|agent| &agent.run_loop));
        run_loop.is_some_and(|run_loop| run_loop.queue().is_some())
    }

    /// Whether a limit of money is asked for.
    pub fn limits_money(&self) -> bool {
        self.limits.limits_money()
    }

    /// Drops the limit of money, which cannot bind for a model without a price.
    pub fn without_money(agent: &mut Agent) {
        agent.limits.cost_usd_micros = None;
    }
}

/// `"built_in"`, or an object with the type and, for `external`, the queue.
fn read_loop(value: &Value, path: &str) -> Result<Loop, Problem> {
    if let Value::String(word) = value {
        return match word.as_str() {
            "built_in" => Ok(Loop::BuiltIn),
            _ => Err(Problem::invalid(path, r#"expected "built_in" or {"type": "external", "queue": NAME}"#)),
        };
    }
    let fields = Fields::at(value, path)?;
    match fields.kind()? {
        "built_in" => Ok(Loop::BuiltIn),
        "external" => {
            let queue = fields.required_text("queue", MAX_QUEUE_NAME)?;
            check_queue(&queue).map_err(|what| Problem::invalid(&fields.path("queue"), what))?;
            Ok(Loop::External { queue })
        }
        _ => Err(Problem::invalid(&fields.path("type"), "expected built_in or external")),
    }
}

fn read_model(value: &Value, path: &str) -> Result<String, Problem> {
    let id = match value {
        Value::String(_) => text(value, path, MAX_MODEL)?,
        _ => {
            let model = Fields::at(value, path)?;
            model.refuse("effort", "effort is not served yet; the provider's setting is used")?;
            model.refuse("inference_geo", "regions are not served")?;
            if let Some(speed) = model.text("speed", 32)?
                && speed != "standard"
            {
                return Err(Problem::new(
                    Code::UnsupportedFeature,
                    format!("{}: only standard is served", model.path("speed")),
                ));
            }
            model.required_text("id", MAX_MODEL)?
        }
    };
    if id.trim().is_empty() {
        return Err(Problem::invalid(path, "must not be empty"));
    }
    Ok(id)
}

/// Changes of the models of one session; a field that is left out stays, null takes the agent's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelsChange {
    model: Option<Option<String>>,
    fallback_models: Option<Option<Vec<String>>>,
}

impl ModelsChange {
    /// Reads the fields of a session's `agent`.
    ///
    /// # Errors
    /// When a name is wrong, or something else of the agent is to be changed.
    pub fn read(agent: &Fields<'_>) -> Result<Self, Problem> {
        for name in ["tools", "mcp_servers", "system", "limits", "policies"] {
            agent.refuse(name, "only model and fallback_models of a session's agent can be changed yet")?;
        }
        let model = match agent.change("model") {
            None => None,
            Some(None) => Some(None),
            Some(Some(value)) => Some(Some(read_model(value, &agent.path("model"))?)),
        };
        let fallback_models = match agent.change("fallback_models") {
            None => None,
            Some(None) => Some(None),
            Some(Some(_)) => Some(Some(read_models(agent)?)),
        };
        Ok(Self { model, fallback_models })
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The choice after the change.
    pub fn apply(&self, choice: &ModelChoice) -> ModelChoice {
        ModelChoice {
            model: self.model.clone().unwrap_or_else(|| choice.model.clone()),
            fallback_models: self.fallback_models.clone().unwrap_or_else(|| choice.fallback_models.clone()),
        }
    }

    /// The names that were written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let fallback_models = self.fallback_models.iter().flatten().flatten();
        self.model.iter().flatten().chain(fallback_models).map(String::as_str)
    }
}

fn read_models(fields: &Fields<'_>) -> Result<Vec<String>, Problem> {
    let list = fields.list("fallback_models", MAX_FALLBACKS)?.unwrap_or_default();
    list.into_iter().map(|(path, value)| read_model(value, &path)).collect()
}

/// Changes of policies; fields that are left out stay.
#[derive(Clone, Debug, Default)]
struct PoliciesChange {
    max_attempts: Option<u64>,
    base_ms: Option<u64>,
    cap_ms: Option<u64>,
    approval_seconds: Option<Option<u64>>,
    unknown_outcome: Option<UnknownOutcome>,
    max_output_tokens: Option<Option<u64>>,
    compaction: Option<CompactionChange>,
    snapshot: Option<SnapshotPolicy>,
}

/// Changes of the compaction policy; fields that are left out stay, null takes the default back.
#[derive(Clone, Debug, Default)]
struct CompactionChange {
    mode: Option<CompactionMode>,
    trigger_tokens: Option<Option<u64>>,
    keep_tokens: Option<Option<u64>>,
    model: Option<Option<String>>,
}

impl CompactionChange {
    fn read(compaction: &Fields<'_>) -> Result<Self, Problem> {
        let mode = match compaction.text("mode", 32)?.as_deref() {
            None => None,
            Some("auto") => Some(CompactionMode::Auto),
            Some("off") => Some(CompactionMode::Off),
            Some(other) => {
                let path = compaction.path("mode");
                return Err(Problem::invalid(&path, format_args!("{other:?} is neither auto nor off")));
            }
        };
        let tokens = |name: &str| -> Result<Option<Option<u64>>, Problem> {
            compaction.change(name).map(|_| compaction.number(name)).transpose()
        };
        let trigger_tokens = tokens("trigger_tokens")?;
        if let Some(Some(trigger)) = trigger_tokens
            && trigger < MIN_TRIGGER_TOKENS
        {
            let path = compaction.path("trigger_tokens");
            return Err(Problem::invalid(&path, format_args!("at least {MIN_TRIGGER_TOKENS}")));
        }
        let model = match compaction.change("model") {
            None => None,
            Some(None) => Some(None),
            Some(Some(value)) => Some(Some(read_model(value, &compaction.path("model"))?)),
        };
        Ok(Self { mode, trigger_tokens, keep_tokens: tokens("keep_tokens")?, model })
    }

    fn apply(self, policy: &mut CompactionPolicy) {
        policy.mode = self.mode.unwrap_or(policy.mode);
        policy.trigger_tokens = self.trigger_tokens.unwrap_or(policy.trigger_tokens);
        policy.keep_tokens = self.keep_tokens.unwrap_or(policy.keep_tokens);
        policy.model = self.model.unwrap_or_else(|| policy.model.take());
    }
}

impl PoliciesChange {
    fn read(policies: &Fields<'_>) -> Result<Self, Problem> {
        let snapshot = match policies.text("snapshot", 32)?.as_deref() {
            None => None,
            Some("manual") => Some(SnapshotPolicy::Manual),
            Some("turn") => Some(SnapshotPolicy::Turn),
            Some("wait") => Some(SnapshotPolicy::Wait),
            Some("lease") => Some(SnapshotPolicy::Lease),
            Some("step") => Some(SnapshotPolicy::Step),
            Some(other) => {
                let path = policies.path("snapshot");
                let message = format_args!("{other:?} is none of manual, turn, wait, lease, step");
                return Err(Problem::invalid(&path, message));
            }
        };
        let mut change = Self { snapshot, ..Self::default() };
        if let Some(retry) = policies.inner("retry")? {
            change.max_attempts = retry.number("max_attempts")?;
            change.base_ms = retry.number("base_ms")?;
            change.cap_ms = retry.number("cap_ms")?;
            if change.max_attempts == Some(0) {
                return Err(Problem::invalid(&retry.path("max_attempts"), "at least 1"));
            }
        }
        if let Some(approval) = policies.inner("approval")? {
            change.approval_seconds =
                approval.change("timeout_seconds").map(|_| approval.number("timeout_seconds")).transpose()?;
        }
        change.unknown_outcome = match policies.text("unknown_outcome", 32)?.as_deref() {
            None => None,
            Some("tell_model") => Some(UnknownOutcome::TellModel),
            Some("ask_person") => Some(UnknownOutcome::AskPerson),
            Some(other) => {
                return Err(Problem::invalid(
                    &policies.path("unknown_outcome"),
                    format_args!("{other:?} is neither tell_model nor ask_person"),
                ));
            }
        };
        change.compaction =
            policies.inner("compaction")?.map(|compaction| CompactionChange::read(&compaction)).transpose()?;
        change.max_output_tokens =
            policies.change("max_output_tokens").map(|_| policies.number("max_output_tokens")).transpose()?;
        Ok(change)
    }

    fn apply(self, policies: &mut Policies) {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let retry = &mut policies.retry;
        retry.max_attempts = self.max_attempts.map_or(retry.max_attempts, small);
        retry.base = self.base_ms.unwrap_or(retry.base);
        retry.cap = self.cap_ms.unwrap_or(retry.cap);
        if let Some(seconds) = self.approval_seconds {
            policies.approval_timeout = seconds.map(|seconds| seconds.saturating_mul(1_000));
        }
        policies.unknown_outcome = self.unknown_outcome.unwrap_or(policies.unknown_outcome);
        if let Some(tokens) = self.max_output_tokens {
            policies.max_output_tokens = tokens.map(small);
        }
        policies.snapshot = self.snapshot.unwrap_or(policies.snapshot);
        if let Some(compaction) = self.compaction {
            compaction.apply(&mut policies.compaction);
        }
    }
}
