//! Events on the wire: rows of the log, inputs that wait, and previews.
//!
//! What only we need of a row, such as the provider's own blocks, is never shown.

mod read;
mod wait;

pub use read::{MAX_EVENTS, read_events, read_message};
pub(crate) use read::{read_content, read_usage};
pub use wait::WireWait;

use crate::limits::{WireBudget, WireLimits, dollars};
use crate::session::WireUsage;
use crate::time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_core::failure::Class;
use tenure_core::{
    Block, Body, Budget, Decision, Effect, End, Event, Input, InputBody, InsteadOf, Json, Limits, Measured, Outcome,
    Permission, Purpose, Resolution, Stop, Update, Usage,
};

/// Header of a stream's reply: the `seq` after which the stream begins. A reader of a live stream
/// that is cut before its first row knows from it where it was.
pub const STREAM_FROM_HEADER: &str = "tenure-stream-from";

/// An event as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireEvent {
    /// For a tool call also the `tool_use_id` of its answer.
    pub id: String,
    /// What happened.
    #[serde(flatten)]
    pub body: WireBody,
    /// Position in the log; null while it is queued.
    pub seq: Option<u64>,
    /// The model or tool call that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// When it was committed; null while it is queued.
    pub processed_at: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[allow(missing_docs, reason = "the names are those of the events, and the reference explains them")]
pub enum WireBody {
    #[serde(rename = "user.message")]
    UserMessage { content: Vec<Value> },
    #[serde(rename = "user.interrupt")]
    UserInterrupt,
    #[serde(rename = "user.tool_confirmation")]
    UserToolConfirmation {
        tool_use_id: String,
        result: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deny_message: Option<String>,
    },
    #[serde(rename = "user.custom_tool_result")]
    UserCustomToolResult { custom_tool_use_id: String, content: Vec<Value>, is_error: bool },
    #[serde(rename = "system.message")]
    SystemMessage { content: Vec<Value> },
    #[serde(rename = "agent.message")]
    AgentMessage { content: Vec<Value> },
    #[serde(rename = "agent.thinking")]
    AgentThinking { text: String },
    #[serde(rename = "agent.tool_use")]
    AgentToolUse {
        name: String,
        input: Value,
        evaluated_permission: String,
        effect: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        malformed: Option<String>,
    },
    #[serde(rename = "agent.custom_tool_use")]
    AgentCustomToolUse { name: String, input: Value },
    #[serde(rename = "agent.tool_result")]
    AgentToolResult { tool_use_id: String, content: Vec<Value>, is_error: bool, outcome: String },
    #[serde(rename = "session.tool_started")]
    ToolStarted { tool_use_id: String },
    #[serde(rename = "session.status_running")]
    StatusRunning,
    #[serde(rename = "session.status_idle")]
    StatusIdle { stop_reason: StopReason },
    #[serde(rename = "session.status_rescheduled")]
    StatusRescheduled,
    #[serde(rename = "session.status_terminated")]
    StatusTerminated { end: WireEnd },
    #[serde(rename = "session.error")]
    Error {
        error: WireError,
        class: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upstream_request_id: Option<String>,
        /// What a refusal taught: tokens of an overflow, bytes of a request that was too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    #[serde(rename = "span.model_request_start")]
    SpanStart {
        model: String,
        attempt: u32,
        /// The model that would have been called, if another one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<WireInsteadOf>,
        /// `answer` or `summary`.
        #[serde(default)]
        purpose: String,
        /// Input tokens of the request, estimated.
        #[serde(default)]
        estimated_input_tokens: u64,
        /// Bytes of the request.
        #[serde(default)]
        request_bytes: u64,
    },
    #[serde(rename = "span.model_request_end")]
    SpanEnd {
        model_request_start_id: String,
        is_error: bool,
        model_usage: ModelUsage,
        model: String,
        cost_usd: Option<f64>,
        /// What an attempt without an answer is charged, in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charged_tokens: Option<u64>,
    },
    #[serde(rename = "agent.thread_context_compacted")]
    ContextCompacted {
        /// `summary`, or `media` if only images and documents were left out.
        kind: String,
        /// The first row that the model saw as it is until now.
        from_seq: u64,
        /// The first row that it sees as it is from now on.
        keep_from_seq: u64,
        /// Images and documents of rows before this one are named only; 0 for none.
        media_from_seq: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        before: WireSize,
        after: WireSize,
    },
    #[serde(rename = "session.condition")]
    Condition { condition_id: String, class: String, model: String, message: String },
    #[serde(rename = "session.wait_started")]
    WaitStarted { wait: WireWait },
    #[serde(rename = "session.wait_resolved")]
    WaitResolved { resolution: String },
    #[serde(rename = "session.callback_created")]
    CallbackCreated { callback_id: String, label: String, expires_at: String },
    #[serde(rename = "session.callback_received")]
    CallbackReceived { callback_id: String, body: String },
    #[serde(rename = "session.budget_updated")]
    BudgetUpdated { limits: WireLimits },
    #[serde(rename = "session.updated")]
    Updated {
        update: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<BTreeMap<String, String>>,
        /// Ours: the model that was chosen; absent if it is the agent's again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Ours: the models to try after it; absent if they are the agent's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback_models: Option<Vec<String>>,
    },
    #[serde(rename = "session.usage")]
    Usage { usage: WireUsage, budget: Option<WireBudget> },
    #[serde(rename = "environment.started")]
    EnvironmentStarted { driver: String, missing: Vec<String> },
    #[serde(rename = "environment.reset")]
    EnvironmentReset {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot_id: Option<String>,
    },
    /// Rows up to here are shared with another session.
    #[serde(rename = "session.forked")]
    Forked {
        from_session_id: String,
        at_seq: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot_id: Option<String>,
        limits: WireLimits,
    },
    #[serde(rename = "session.snapshot_created")]
    SnapshotCreated {
        snapshot_id: String,
        reason: String,
        consistency: String,
        entries: u64,
        bytes: u64,
        new_bytes: u64,
        left_out: u64,
    },
    /// A type that this release does not know; never written.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// Why a session is idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum StopReason {
    EndTurn,
    RequiresAction { event_ids: Vec<String> },
    RetriesExhausted,
    BudgetReached,
    Refusal,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum WireEnd {
    Done,
    Failed { reason: String },
    Cancelled { processes: String },
}

/// An error of an upstream, with the types that the SDKs know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    /// Such as `model_overloaded_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub message: String,
    /// What is done about it.
    pub retry_status: RetryStatus,
}

/// What is done about an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum RetryStatus {
    Retrying,
    Exhausted,
    Terminal,
}

/// How large a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSize {
    /// Input tokens, estimated.
    pub tokens: u64,
    /// Bytes.
    pub bytes: u64,
}

impl WireSize {
    fn of(measured: Measured) -> Self {
        Self { tokens: measured.tokens, bytes: measured.bytes }
    }
}

/// Tokens of one model call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ModelUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
}

impl ModelUsage {
    pub(crate) fn of(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_input_tokens: usage.cache_read,
            cache_creation_input_tokens: usage.cache_write,
        }
    }
}

impl WireEvent {
    /// A row of the log.
    pub fn of(event: &Event) -> Self {
        Self {
            id: event.id.to_string(),
            body: WireBody::of(&event.body),
            seq: Some(event.seq),
            step: (event.step > 0).then_some(event.step),
            processed_at: Some(time::write(event.at)),
        }
    }

    /// An input that waits; `None` for those that clients do not see as events.
    pub fn queued(input: &Input) -> Option<Self> {
        let body = WireBody::of_input(&input.body)?;
        Some(Self { id: input.id.to_string(), body, seq: None, step: None, processed_at: None })
    }

    /// The word in `type`.
    pub fn type_name(&self) -> &'static str {
        self.body.type_name()
    }
}

impl WireBody {
    /// What a row says.
    pub fn of(body: &Body) -> Self {
        match body {
            Body::UserMessage { content } => Self::UserMessage { content: blocks(content) },
            Body::UserInterrupt => Self::UserInterrupt,
            Body::UserToolConfirmation { tool_use_id, decision } => confirmation(tool_use_id.to_string(), decision),
            Body::UserCustomToolResult { tool_use_id, content, is_error } => Self::UserCustomToolResult {
                custom_tool_use_id: tool_use_id.to_string(),
                content: blocks(content),
                is_error: *is_error,
            },
            Body::SystemMessage { content } => Self::SystemMessage { content: blocks(content) },
            Body::AgentMessage { text, origin: _ } => Self::AgentMessage { content: vec![text_block(text)] },
            Body::AgentThinking { text, origin: _ } => Self::AgentThinking { text: text.clone() },
            Body::AgentToolUse { name, input, kind: _, effect, permission, malformed, origin: _ } => {
                Self::AgentToolUse {
                    name: name.clone(),
                    input: input.to_value(),
                    evaluated_permission: permission_word(*permission).into(),
                    effect: effect_word(*effect).into(),
                    malformed: malformed.clone(),
                }
            }
            Body::AgentCustomToolUse { name, input, kind: _, origin: _ } => {
                Self::AgentCustomToolUse { name: name.clone(), input: input.to_value() }
            }
            Body::AgentToolResult { tool_use_id, content, outcome } => Self::AgentToolResult {
                tool_use_id: tool_use_id.to_string(),
                content: blocks(content),
                is_error: outcome.is_error(),
                outcome: outcome_word(*outcome).into(),
            },
            Body::ToolStarted { tool_use_id } => Self::ToolStarted { tool_use_id: tool_use_id.to_string() },
            Body::StatusRunning => Self::StatusRunning,
            Body::StatusIdle { stop } => Self::StatusIdle { stop_reason: StopReason::of(stop) },
            Body::StatusRescheduled => Self::StatusRescheduled,
            Body::StatusTerminated { end } => Self::StatusTerminated { end: WireEnd::of(end) },
            Body::Error { class, message, retrying, request_id, limit } => Self::Error {
                error: WireError {
                    kind: error_type(*class).into(),
                    message: message.clone(),
                    retry_status: if *retrying { RetryStatus::Retrying } else { RetryStatus::Exhausted },
                },
                class: class_word(*class).into(),
                upstream_request_id: request_id.clone(),
                limit: *limit,
            },
            Body::SpanStart { model, attempt, instead_of, sent } => Self::SpanStart {
                model: model.clone(),
                attempt: *attempt,
                instead_of: instead_of.as_ref().map(WireInsteadOf::of),
                purpose: match sent.purpose {
                    Purpose::Answer => "answer".into(),
                    Purpose::Summary { .. } => "summary".into(),
                },
                estimated_input_tokens: sent.input_tokens,
                request_bytes: sent.size.bytes(),
            },
            Body::SpanEnd { span, model, is_error, usage, cost_usd_micros, assumed } => Self::SpanEnd {
                model_request_start_id: span.to_string(),
                is_error: *is_error,
                // Clients add these up for answers alone.
                model_usage: if *is_error { ModelUsage::default() } else { ModelUsage::of(*usage) },
                model: model.clone(),
                cost_usd: match (cost_usd_micros, assumed.cost_usd_micros) {
                    (None, None) => None,
                    (counted, assumed) => Some(dollars(counted.unwrap_or(0).saturating_add(assumed.unwrap_or(0)))),
                },
                charged_tokens: is_error.then(|| usage.total().saturating_add(assumed.tokens)),
            },
            Body::ContextCompacted { compacted } => Self::ContextCompacted {
                kind: if compacted.summary.is_some() { "summary".into() } else { "media".into() },
                from_seq: compacted.from,
                keep_from_seq: compacted.keep_from,
                media_from_seq: compacted.media_from,
                summary: compacted.summary.as_ref().map(|summary| summary.text.clone()),
                before: WireSize::of(compacted.before),
                after: WireSize::of(compacted.after),
            },
            Body::Condition { condition, class, model, message } => Self::Condition {
                condition_id: condition.to_string(),
                class: class_word(*class).into(),
                model: model.clone(),
                message: message.clone(),
            },
            Body::WaitStarted { wait } => Self::WaitStarted { wait: WireWait::of(wait) },
            Body::WaitResolved { resolution } => Self::WaitResolved { resolution: resolution_word(*resolution).into() },
            Body::CallbackCreated { callback, label, expires_at } => Self::CallbackCreated {
                callback_id: callback.to_string(),
                label: label.clone(),
                expires_at: time::write(*expires_at),
            },
            Body::CallbackReceived { callback, body } => {
                Self::CallbackReceived { callback_id: callback.to_string(), body: body.clone() }
            }
            Body::BudgetUpdated { limits } => Self::BudgetUpdated { limits: WireLimits::of(*limits) },
            Body::Updated { update } => updated(update),
            Body::UsageSnapshot { usage, cost_usd_micros, has_unpriced, estimated, limit_usd_micros } => {
                let used = Budget {
                    usage: *usage,
                    cost_usd_micros: *cost_usd_micros,
                    has_unpriced: *has_unpriced,
                    estimated_tokens: estimated.tokens,
                    estimated_cost_usd_micros: estimated.cost_usd_micros.unwrap_or(0),
                    ..Budget::default()
                };
                let limits = Limits { cost_usd_micros: *limit_usd_micros, ..Limits::NONE };
                Self::Usage { usage: WireUsage::of(&used), budget: WireBudget::of(limits) }
            }
            Body::EnvironmentStarted { driver, missing, epoch: _ } => {
                Self::EnvironmentStarted { driver: driver.clone(), missing: missing.clone() }
            }
            Body::EnvironmentReset { reason, snapshot } => {
                Self::EnvironmentReset { reason: reason.clone(), snapshot_id: snapshot.map(|id| id.to_string()) }
            }
            Body::Forked { from, snapshot, limits } => Self::Forked {
                from_session_id: from.session.to_string(),
                at_seq: from.seq,
                snapshot_id: snapshot.map(|id| id.to_string()),
                limits: WireLimits::of(*limits),
            },
            Body::SnapshotCreated { snapshot, taken } => Self::SnapshotCreated {
                snapshot_id: snapshot.to_string(),
                reason: crate::snapshot::reason(taken.reason).to_owned(),
                consistency: crate::snapshot::consistency(taken.consistency).to_owned(),
                entries: taken.entries,
                bytes: taken.bytes,
                new_bytes: taken.new_bytes,
                left_out: taken.left_out,
            },
        }
    }

    fn of_input(input: &InputBody) -> Option<Self> {
        Some(match input {
            InputBody::Message { content } => Self::UserMessage { content: blocks(content) },
            InputBody::System { content } => Self::SystemMessage { content: blocks(content) },
            InputBody::Interrupt => Self::UserInterrupt,
            InputBody::Confirmation { tool_use_id, decision } => confirmation(tool_use_id.to_string(), decision),
            InputBody::CustomResult { tool_use_id, content, is_error } => Self::UserCustomToolResult {
                custom_tool_use_id: tool_use_id.to_string(),
                content: blocks(content),
                is_error: *is_error,
            },
            // Controls become events of the server when they are taken; until then clients do not see them.
            InputBody::Callback { .. }
            | InputBody::Limits(_)
            | InputBody::Title(_)
            | InputBody::Metadata(_)
            | InputBody::Models(_)
            | InputBody::Snapshot
            | InputBody::Pause
            | InputBody::Resume
            | InputBody::Cancel
            | InputBody::Archive => return None,
        })
    }

    /// The word in `type`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::UserMessage { .. } => "user.message",
            Self::UserInterrupt => "user.interrupt",
            Self::UserToolConfirmation { .. } => "user.tool_confirmation",
            Self::UserCustomToolResult { .. } => "user.custom_tool_result",
            Self::SystemMessage { .. } => "system.message",
            Self::AgentMessage { .. } => "agent.message",
            Self::AgentThinking { .. } => "agent.thinking",
            Self::AgentToolUse { .. } => "agent.tool_use",
            Self::AgentCustomToolUse { .. } => "agent.custom_tool_use",
            Self::AgentToolResult { .. } => "agent.tool_result",
            Self::ToolStarted { .. } => "session.tool_started",
            Self::StatusRunning => "session.status_running",
            Self::StatusIdle { .. } => "session.status_idle",
            Self::StatusRescheduled => "session.status_rescheduled",
            Self::StatusTerminated { .. } => "session.status_terminated",
            Self::Error { .. } => "session.error",
            Self::SpanStart { .. } => "span.model_request_start",
            Self::SpanEnd { .. } => "span.model_request_end",
            Self::Condition { .. } => "session.condition",
            Self::ContextCompacted { .. } => "agent.thread_context_compacted",
            Self::WaitStarted { .. } => "session.wait_started",
            Self::WaitResolved { .. } => "session.wait_resolved",
            Self::CallbackCreated { .. } => "session.callback_created",
            Self::CallbackReceived { .. } => "session.callback_received",
            Self::BudgetUpdated { .. } => "session.budget_updated",
            Self::Updated { .. } => "session.updated",
            Self::Usage { .. } => "session.usage",
            Self::EnvironmentStarted { .. } => "environment.started",
            Self::EnvironmentReset { .. } => "environment.reset",
            Self::Forked { .. } => "session.forked",
            Self::SnapshotCreated { .. } => "session.snapshot_created",
            Self::Unknown => "unknown",
        }
    }
}

/// The model that would have been called, and why it was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireInsteadOf {
    /// `provider/model`.
    pub model: String,
    /// What is wrong with it.
    pub class: String,
}

impl WireInsteadOf {
    fn of(other: &InsteadOf) -> Self {
        Self { model: other.model.clone(), class: class_word(other.class).into() }
    }
}

impl StopReason {
    /// Why a session is idle.
    pub fn of(stop: &Stop) -> Self {
        match stop {
            Stop::EndTurn => Self::EndTurn,
            Stop::RequiresAction(calls) => {
                Self::RequiresAction { event_ids: calls.iter().map(ToString::to_string).collect() }
            }
            Stop::RetriesExhausted => Self::RetriesExhausted,
            Stop::BudgetReached => Self::BudgetReached,
            Stop::Refusal => Self::Refusal,
        }
    }
}

impl WireEnd {
    /// How a session ended.
    pub fn of(end: &End) -> Self {
        match end {
            End::Done => Self::Done,
            End::Failed { reason } => Self::Failed { reason: reason.clone() },
            End::Cancelled { processes } => Self::Cancelled { processes: processes.clone() },
        }
    }
}

/// A preview: a block of an answer begins. `attempt` is ours: which try of the model call it is.
pub fn preview_start(event_id: &str, event_type: &str, attempt: u32) -> Value {
    json!({"type": "event_start", "event": {"id": event_id, "type": event_type}, "attempt": attempt})
}

/// A preview: more text of a block.
pub fn preview_delta(event_id: &str, text: &str, attempt: u32) -> Value {
    json!({
        "type": "event_delta",
        "event_id": event_id,
        "delta": {"type": "content_delta", "index": 0, "content": {"type": "text", "text": text}},
        "attempt": attempt,
    })
}

fn confirmation(tool_use_id: String, decision: &Decision) -> WireBody {
    let (result, deny_message) = match decision {
        Decision::Allow => ("allow", None),
        Decision::Deny { message } => ("deny", message.clone()),
    };
    WireBody::UserToolConfirmation { tool_use_id, result: result.into(), deny_message }
}

fn updated(update: &Update) -> WireBody {
    let plain = |update: &str| WireBody::Updated {
        update: update.into(),
        title: None,
        metadata: None,
        model: None,
        fallback_models: None,
    };
    let mut wire = match update {
        Update::Paused => plain("paused"),
        Update::Resumed => plain("resumed"),
        Update::Title(_) => plain("title"),
        Update::Metadata(_) => plain("metadata"),
        Update::Models(_) => plain("models"),
    };
    if let WireBody::Updated { title, metadata, model, fallback_models, .. } = &mut wire {
        match update {
            Update::Paused | Update::Resumed => {}
            Update::Title(text) => *title = Some(text.clone()),
            // As the clients know it: absent when nothing is left.
            Update::Metadata(notes) => *metadata = (!notes.is_empty()).then(|| notes.clone()),
            Update::Models(choice) => {
                model.clone_from(&choice.model);
                fallback_models.clone_from(&choice.fallback_models);
            }
        }
    }
    wire
}

fn blocks(content: &[Block]) -> Vec<Value> {
    let block = |block: &Block| match block {
        Block::Text(text) => text_block(text),
        Block::Media { kind: _, json } => Json::to_value(json),
    };
    content.iter().map(block).collect()
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn error_type(class: Class) -> &'static str {
    match class {
        Class::RateLimit => "model_rate_limited_error",
        Class::Transient => "model_overloaded_error",
        Class::Quota => "billing_error",
        Class::Credential
        | Class::Config
        | Class::Overflow
        | Class::TooBig
        | Class::BadHistory
        | Class::Request
        | Class::Incomplete
        | Class::Empty
        | Class::Malformed
        | Class::Refused => "model_request_failed_error",
    }
}

/// The word for a class of failure.
pub fn class_word(class: Class) -> &'static str {
    match class {
        Class::RateLimit => "rate_limit",
        Class::Quota => "quota",
        Class::Transient => "transient",
        Class::Credential => "credential",
        Class::Config => "config",
        Class::Overflow => "overflow",
        Class::TooBig => "too_big",
        Class::BadHistory => "bad_history",
        Class::Request => "request",
        Class::Incomplete => "incomplete",
        Class::Empty => "empty",
        Class::Malformed => "malformed",
        Class::Refused => "refused",
    }
}

/// The word for how a call ended.
pub fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::Unknown => "unknown",
        Outcome::Denied => "denied",
        Outcome::NotRun => "not_run",
        Outcome::Interrupted => "interrupted",
    }
}

/// The word for what repeating a call would do.
pub fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::Pure => "pure",
        Effect::Idempotent => "idempotent",
        Effect::FilesOnly => "files_only",
        Effect::Once => "once",
    }
}

fn permission_word(permission: Permission) -> &'static str {
    match permission {
        Permission::Allow => "allow",
        Permission::Ask => "ask",
        Permission::Deny => "deny",
    }
}

/// The word for how a wait ended.
pub fn resolution_word(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Answered => "answered",
        Resolution::Due => "due",
        Resolution::Cleared => "cleared",
    }
}

#[cfg(test)]
mod tests;
