//! Sessions on the wire.

use crate::agent::{ModelsChange, SessionAgent};
use crate::error::Code;
use crate::event::{StopReason, WireWait, read_events, read_message};
use crate::fields::{Fields, Problem};
use crate::limits::{LimitsChange, Money, WireBudget, WireLimits, dollars};
use crate::time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use tenure_core::{
    Agent, AgentId, Budget, CallState, EnvironmentId, InputBody, Phase, Session, SnapshotId, Status, Timestamp,
};

/// Longest title, in characters.
const MAX_TITLE: usize = 512;

/// Most first events of a new session.
const INITIAL_EVENTS: &str = "initial_events";

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSession {
    /// Its id.
    pub id: String,
    /// Always `session`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version of the agent that works on it.
    pub agent: SessionAgent,
    /// The template of its sandbox.
    pub environment_id: String,
    /// For people.
    pub title: Option<String>,
    /// Notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// idle, running, rescheduling or terminated.
    pub status: String,
    /// When it was made.
    pub created_at: String,
    /// When it last changed.
    pub updated_at: String,
    /// When it was archived.
    pub archived_at: Option<String>,
    /// The money part of its limits.
    pub budget: Option<WireBudget>,
    /// What it has used.
    pub usage: WireUsage,
    /// Times.
    pub stats: WireStats,
    /// Always empty: not served yet.
    pub resources: Vec<Value>,
    /// Always empty: not served yet.
    pub vault_ids: Vec<String>,
    /// Always empty: not served yet.
    pub outcome_evaluations: Vec<Value>,
    /// Always null: not served yet.
    pub deployment_id: Option<String>,
    /// Ours: what it does, in one word.
    pub phase: String,
    /// Ours: why it is parked.
    pub wait: Option<WireWait>,
    /// Ours: why it is idle.
    pub stop_reason: Option<StopReason>,
    /// Ours: limits.
    pub limits: WireLimits,
    /// Ours: model and tool calls so far.
    pub steps: u64,
    /// Ours: tool calls that failed in a row.
    #[serde(default)]
    pub failures: u64,
    /// Ours: how large its context is; null before the first answer.
    #[serde(default)]
    pub context: Option<WireContext>,
    /// Ours: calls without a result.
    pub open_calls: Vec<WireCall>,
    /// Ours: `seq` of the newest event.
    pub last_seq: u64,
    /// Ours: inputs that wait.
    pub inbox_len: u64,
    /// Ours: whether an operator holds it.
    pub is_paused: bool,
    /// Ours: the node that works on it.
    pub node: Option<String>,
    /// Ours: sessions that are queued before it.
    pub queue_position: Option<u64>,
    /// Ours: of which session it is a fork.
    #[serde(default)]
    pub forked_from: Option<WireForkedFrom>,
    /// Ours: what people should know.
    pub warnings: Vec<String>,
}

/// Where a fork comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireForkedFrom {
    /// The session that was forked.
    pub session_id: String,
    /// The last event that both have; 0 for none.
    pub at_seq: u64,
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireCall {
    /// The id of its event.
    pub id: String,
    /// The tool.
    pub name: String,
    /// ready, needs_answer, started or waiting.
    pub state: String,
}

/// What a session has used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the SDKs")]
pub struct WireUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation: CacheCreation,
    pub list_cost: Money,
    /// Ours: dollars, as far as prices are known.
    pub cost_usd: f64,
    /// Ours: whether a model without a price was used, which `cost_usd` leaves out.
    pub has_unpriced: bool,
    /// Ours: tokens of attempts that broke off, which no provider counted; they count against the limit.
    #[serde(default)]
    pub estimated_tokens: u64,
    /// Ours: dollars of those, as far as prices are known; not part of `cost_usd`.
    #[serde(default)]
    pub estimated_cost_usd: f64,
}

/// How large the context of a session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireContext {
    /// The first row that the model sees as it is.
    pub from_seq: u64,
    /// Input tokens of the newest answered request, as the provider counted them.
    pub tokens: u64,
    /// Bytes of that request.
    pub bytes: u64,
    /// The limit of tokens that a refusal taught, if one did.
    pub max_tokens: Option<u64>,
}

impl WireUsage {
    /// What was used.
    pub fn of(budget: &Budget) -> Self {
        let usage = budget.usage;
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_input_tokens: usage.cache_read,
            cache_creation: CacheCreation {
                ephemeral_5m_input_tokens: usage.cache_write,
                ephemeral_1h_input_tokens: 0,
            },
            list_cost: Money::of_micros(budget.cost_usd_micros),
            cost_usd: dollars(budget.cost_usd_micros),
            has_unpriced: budget.has_unpriced,
            estimated_tokens: budget.estimated_tokens,
            estimated_cost_usd: dollars(budget.estimated_cost_usd_micros),
        }
    }
}

/// Tokens written to the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the SDKs")]
pub struct CacheCreation {
    pub ephemeral_5m_input_tokens: u64,
    pub ephemeral_1h_input_tokens: u64,
}

/// Times of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the SDKs")]
pub struct WireStats {
    pub duration_seconds: f64,
}

/// What the store knows beside the head.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// Notes of the client.
    pub metadata: &'a BTreeMap<String, String>,
    /// Whether a worker advances it.
    pub is_leased: bool,
    /// Who.
    pub node: Option<String>,
    /// When the head last changed.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
    /// Inputs that wait.
    pub inbox_len: u64,
    /// Sessions that are queued before it.
    pub queue_position: Option<u64>,
}

/// The phase of a session: only the store knows whether somebody works on it, or soon will.
pub fn phase(session: &Session, is_leased: bool, inbox_len: u64) -> Phase {
    let phase = session.phase();
    match phase {
        Phase::Done | Phase::Failed | Phase::Cancelled => phase,
        _ if is_leased => Phase::Working,
        Phase::Idle if inbox_len > 0 => Phase::Queued,
        _ => phase,
    }
}

impl WireSession {
    /// A session as the API shows it.
    pub fn of(session: &Session, agent: &Agent, around: Surroundings<'_>) -> Self {
        let budget = session.budget;
        let stop_reason = match &session.status {
            Status::Idle(stop) => Some(StopReason::of(stop)),
            Status::Running | Status::Rescheduling | Status::Terminated => None,
        };
        let mut warnings = Vec::new();
        if budget.has_unpriced {
            warnings.push("a model without a known price was used; its cost is not counted".to_owned());
        }
        Self {
            id: session.id.to_string(),
            kind: "session".into(),
            agent: SessionAgent::of(&agent.with_models(&session.models)),
            environment_id: session.environment.to_string(),
            title: (!session.title.is_empty()).then(|| session.title.clone()),
            metadata: around.metadata.clone(),
            status: session.status.name().into(),
            created_at: time::write(session.created_at),
            updated_at: time::write(around.updated_at),
            archived_at: around.archived_at.map(time::write),
            budget: WireBudget::of(budget.limits),
            usage: WireUsage::of(&budget),
            stats: WireStats { duration_seconds: around.updated_at.since(session.created_at) as f64 / 1_000.0 },
            resources: Vec::new(),
            vault_ids: Vec::new(),
            outcome_evaluations: Vec::new(),
            deployment_id: None,
            phase: phase(session, around.is_leased, around.inbox_len).name().into(),
            wait: session.wait.as_ref().map(WireWait::of),
            stop_reason,
            limits: WireLimits::of(budget.limits),
            steps: budget.steps,
            failures: budget.failures,
            context: (!session.learnt.model.is_empty()).then(|| WireContext {
                from_seq: session.context_from_seq,
                tokens: session.learnt.usage.all_input(),
                bytes: session.learnt.size.bytes(),
                max_tokens: session.learnt.max_tokens,
            }),
            open_calls: session
                .calls
                .iter()
                .map(|call| WireCall {
                    id: call.id.to_string(),
                    name: call.name.clone(),
                    state: match call.state {
                        CallState::Ready => "ready",
                        CallState::NeedsAnswer { .. } => "needs_answer",
                        CallState::Started => "started",
                        CallState::Waiting { .. } => "waiting",
                    }
                    .into(),
                })
                .collect(),
            last_seq: session.last_seq,
            inbox_len: around.inbox_len,
            is_paused: session.is_paused,
            node: around.node,
            queue_position: around.queue_position,
            forked_from: session
                .forked
                .map(|from| WireForkedFrom { session_id: from.session.to_string(), at_seq: from.seq }),
            warnings,
        }
    }
}

/// A request for a session.
#[derive(Clone, Debug)]
pub struct SessionCreate {
    /// Which agent.
    pub agent: AgentId,
    /// Which version; the newest if left out.
    pub version: Option<u32>,
    /// The template of its sandbox.
    pub environment: EnvironmentId,
    /// For people.
    pub title: String,
    /// Notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// Changes of the agent's limits.
    pub limits: LimitsChange,
    /// First events.
    pub inputs: Vec<InputBody>,
}

impl SessionCreate {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong or not served.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.refuse("resources", "resources are not served yet; write files with PUT /v1/sessions/{id}/files")?;
        fields.refuse("vault_ids", "vaults are not served yet")?;
        let (agent, version) = read_agent(fields)?;
        let environment = fields.required_text("environment_id", 128)?;
        let environment = environment.parse().map_err(|_| {
            Problem::new(Code::EnvironmentNotFound, format!("environment_id: there is no environment {environment:?}"))
        })?;
        let inputs = match fields.list(INITIAL_EVENTS, crate::event::MAX_EVENTS)? {
            Some(list) if !list.is_empty() => read_events(fields, INITIAL_EVENTS)?,
            Some(_) | None => Vec::new(),
        };
        if inputs.iter().any(|input| !matches!(input, InputBody::Message { .. } | InputBody::System { .. })) {
            return Err(Problem::new(
                Code::UnsupportedEvent,
                format!("{INITIAL_EVENTS}: a session begins with messages"),
            ));
        }
        let metadata = fields.metadata()?.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        Ok(Self {
            agent,
            version,
            environment,
            title: fields.text("title", MAX_TITLE)?.unwrap_or_default(),
            metadata,
            limits: LimitsChange::read(fields)?,
            inputs,
        })
    }
}

/// The files that a fork begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkFiles {
    /// Those that the event saw at which it leaves.
    Same,
    /// The parent's newest ones.
    Latest,
    /// None.
    None,
    /// Those of a snapshot, of whichever session.
    Snapshot(SnapshotId),
}

/// A request for a fork.
#[derive(Clone, Debug)]
pub struct SessionFork {
    /// The last event that it shares; the newest one if left out.
    pub at_seq: Option<u64>,
    /// Its files.
    pub files: ForkFiles,
    /// For people; that of the parent if left out.
    pub title: Option<String>,
    /// Notes of the client, on top of those of the parent.
    pub metadata: BTreeMap<String, Option<String>>,
    /// Changes of what is left of the parent's limits.
    pub limits: LimitsChange,
    /// Leave before the newest message of the user, and begin with this one.
    pub replacement: Option<InputBody>,
}

impl SessionFork {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        let files = match fields.text("files", 128)?.as_deref() {
            None | Some("same") => ForkFiles::Same,
            Some("latest") => ForkFiles::Latest,
            Some("none") => ForkFiles::None,
            Some(word) => ForkFiles::Snapshot(word.parse().map_err(|_| {
                let expected = "expected same, latest, none or the id of a snapshot";
                Problem::invalid("files", format_args!("{expected}, found {word:?}"))
            })?),
        };
        let replacement = match fields.change("replace_last_input") {
            None | Some(None) => None,
            Some(Some(_)) => Some(InputBody::Message { content: read_message(fields, "replace_last_input")? }),
        };
        Ok(Self {
            at_seq: fields.number("at_seq")?,
            files,
            title: fields.text("title", MAX_TITLE)?,
            metadata: fields.metadata()?,
            limits: LimitsChange::read(fields)?,
            replacement,
        })
    }
}

fn read_agent(fields: &Fields<'_>) -> Result<(AgentId, Option<u32>), Problem> {
    let value = fields.required("agent")?;
    let parse = |text: String, path: &str| {
        text.parse().map_err(|_| Problem::new(Code::AgentNotFound, format!("{path}: there is no agent {text:?}")))
    };
    let path = fields.path("agent");
    if let Value::String(text) = value {
        return Ok((parse(text.clone(), &path)?, None));
    }
    let agent = Fields::at(value, &path)?;
    match agent.text("type", 64)?.as_deref() {
        None | Some("agent") => {}
        Some(kind) => {
            return Err(Problem::new(
                Code::UnsupportedFeature,
                format!("{}: {kind:?} is not served yet; make a version of the agent instead", agent.path("type")),
            ));
        }
    }
    let version = agent.number("version")?.filter(|version| *version > 0);
    let version = version.map(|version| u32::try_from(version).unwrap_or(u32::MAX));
    Ok((parse(agent.required_text("id", 128)?, &agent.path("id"))?, version))
}

/// A change of a session.
#[derive(Clone, Debug)]
pub struct SessionUpdate {
    /// A new title; empty takes it away.
    pub title: Option<String>,
    /// Changes of the notes.
    pub metadata: BTreeMap<String, Option<String>>,
    /// Changes of the limits.
    pub limits: LimitsChange,
    /// Changes of its models.
    pub models: ModelsChange,
}

impl SessionUpdate {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong or not served.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.refuse("vault_ids", "vaults are not served yet")?;
        let models = fields.inner("agent")?.map(|agent| ModelsChange::read(&agent)).transpose()?.unwrap_or_default();
        let title = fields.change("title").map(|_| fields.text("title", MAX_TITLE)).transpose()?;
        Ok(Self {
            title: title.map(Option::unwrap_or_default),
            metadata: fields.metadata()?,
            limits: LimitsChange::read(fields)?,
            models,
        })
    }
}
