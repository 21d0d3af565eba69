//! Stored bodies of events and inputs.

use super::session::{EndForm, EstimateForm, ForkedForm, LimitsForm, SentForm, StopForm, UsageForm, WaitForm, is_zero};
use super::words::Word;
use super::{Form, position};
use crate::agent::ModelChoice;
use crate::event::{Block, Body, Compacted, Decision, InsteadOf, Measured, Origin, SnapshotTaken, Summary, Update};
use crate::id::{CallbackId, ConditionId, EventId, SnapshotId};
use crate::input::InputBody;
use crate::json::Json;
use crate::time::Timestamp;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(tag = "b", rename_all = "snake_case")]
pub(super) enum BlockForm {
    Text { t: String },
    Media { k: String, j: String },
}

impl Form<Block> for BlockForm {
    fn of(value: &Block) -> Self {
        match value {
            Block::Text(text) => Self::Text { t: text.clone() },
            Block::Media { kind, json } => Self::Media { k: word(*kind), j: json.as_str().to_string() },
        }
    }

    fn to(self) -> Result<Block, String> {
        Ok(match self {
            Self::Text { t } => Block::Text(t),
            Self::Media { k, j } => Block::Media { kind: Word::of_word(&k)?, json: json(&j)? },
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct OriginForm {
    d: String,
    m: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    r: Vec<String>,
}

impl Form<Origin> for OriginForm {
    fn of(value: &Origin) -> Self {
        let r = value.blocks.iter().map(|block| block.as_str().to_string()).collect();
        Self { d: value.dialect.clone(), m: value.model.clone(), r }
    }

    fn to(self) -> Result<Origin, String> {
        let blocks = self.r.iter().map(|block| json(block)).collect::<Result<_, _>>()?;
        Ok(Origin { dialect: self.d, model: self.m, blocks })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct SummaryForm {
    x: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    i: Vec<BlockForm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    r: Vec<BlockForm>,
}

impl Form<Summary> for SummaryForm {
    fn of(value: &Summary) -> Self {
        Self { x: value.text.clone(), i: blocks_of(&value.instructions), r: blocks_of(&value.request) }
    }

    fn to(self) -> Result<Summary, String> {
        Ok(Summary { text: self.x, instructions: to_blocks(self.i)?, request: to_blocks(self.r)? })
    }
}

fn word<T: Word>(value: T) -> String {
    value.word().to_string()
}

pub(super) fn json(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|error| error.to_string())
}

fn blocks_of(blocks: &[Block]) -> Vec<BlockForm> {
    blocks.iter().map(BlockForm::of).collect()
}

fn to_blocks(forms: Vec<BlockForm>) -> Result<Vec<Block>, String> {
    forms.into_iter().map(Form::to).collect()
}

pub(super) fn event_id(text: &str) -> Result<EventId, String> {
    text.parse().map_err(|error: crate::IdError| error.to_string())
}

pub(super) fn condition_id(text: &str) -> Result<ConditionId, String> {
    text.parse().map_err(|error: crate::IdError| error.to_string())
}

pub(super) fn callback_id(text: &str) -> Result<CallbackId, String> {
    text.parse().map_err(|error: crate::IdError| error.to_string())
}

pub(super) fn snapshot_id(text: &str) -> Result<SnapshotId, String> {
    text.parse().map_err(|error: crate::IdError| error.to_string())
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub(super) enum DecisionForm {
    Allow,
    Deny { m: Option<String> },
}

impl Form<Decision> for DecisionForm {
    fn of(value: &Decision) -> Self {
        match value {
            Decision::Allow => Self::Allow,
            Decision::Deny { message } => Self::Deny { m: message.clone() },
        }
    }

    fn to(self) -> Result<Decision, String> {
        Ok(match self {
            Self::Allow => Decision::Allow,
            Self::Deny { m } => Decision::Deny { message: m },
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub(super) enum UpdateForm {
    Paused,
    Resumed,
    Title { t: String },
    Metadata { m: BTreeMap<String, String> },
    Models { c: ModelChoiceForm },
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelChoiceForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<Vec<String>>,
}

impl Form<ModelChoice> for ModelChoiceForm {
    fn of(value: &ModelChoice) -> Self {
        Self { m: value.model.clone(), f: value.fallback_models.clone() }
    }

    fn to(self) -> Result<ModelChoice, String> {
        Ok(ModelChoice { model: self.m, fallback_models: self.f })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct InsteadOfForm {
    m: String,
    c: String,
}

impl Form<InsteadOf> for InsteadOfForm {
    fn of(value: &InsteadOf) -> Self {
        Self { m: value.model.clone(), c: word(value.class) }
    }

    fn to(self) -> Result<InsteadOf, String> {
        Ok(InsteadOf { model: self.m, class: Word::of_word(&self.c)? })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(super) enum BodyForm {
    UserMessage {
        c: Vec<BlockForm>,
    },
    UserInterrupt,
    UserToolConfirmation {
        u: String,
        d: DecisionForm,
    },
    UserCustomToolResult {
        u: String,
        c: Vec<BlockForm>,
        e: bool,
    },
    SystemMessage {
        c: Vec<BlockForm>,
    },
    AgentMessage {
        x: String,
        o: OriginForm,
    },
    AgentThinking {
        x: String,
        o: OriginForm,
    },
    AgentToolUse {
        n: String,
        i: String,
        k: String,
        f: String,
        p: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        m: Option<String>,
        o: OriginForm,
    },
    AgentCustomToolUse {
        n: String,
        i: String,
        k: String,
        o: OriginForm,
    },
    AgentToolResult {
        u: String,
        c: Vec<BlockForm>,
        r: String,
    },
    ToolStarted {
        u: String,
    },
    StatusRunning,
    StatusIdle {
        s: StopForm,
    },
    StatusRescheduled,
    StatusTerminated {
        e: EndForm,
    },
    Error {
        c: String,
        m: String,
        r: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        q: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        l: Option<u64>,
    },
    SpanStart {
        m: String,
        a: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        i: Option<InsteadOfForm>,
        #[serde(default, skip_serializing_if = "SentForm::is_none")]
        s: SentForm,
    },
    SpanEnd {
        s: String,
        m: String,
        e: bool,
        u: UsageForm,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        c: Option<u64>,
        #[serde(default, skip_serializing_if = "EstimateForm::is_none")]
        g: EstimateForm,
    },
    ContextCompacted {
        f: u64,
        k: u64,
        #[serde(default)]
        d: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        s: Option<SummaryForm>,
        /// Tokens and bytes before, tokens and bytes afterwards.
        z: [u64; 4],
    },
    Condition {
        i: String,
        c: String,
        m: String,
        x: String,
    },
    WaitStarted {
        w: WaitForm,
    },
    WaitResolved {
        r: String,
    },
    CallbackCreated {
        c: String,
        l: String,
        x: i64,
    },
    CallbackReceived {
        c: String,
        x: String,
    },
    BudgetUpdated {
        l: LimitsForm,
    },
    Updated {
        u: UpdateForm,
    },
    UsageSnapshot {
        u: UsageForm,
        c: u64,
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        n: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        l: Option<u64>,
        #[serde(default, skip_serializing_if = "EstimateForm::is_none")]
        e: EstimateForm,
    },
    EnvironmentStarted {
        d: String,
        m: Vec<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        e: u64,
    },
    EnvironmentReset {
        r: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        s: Option<String>,
    },
    Forked {
        f: ForkedForm,
        l: LimitsForm,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        s: Option<String>,
    },
    SnapshotCreated {
        s: String,
        r: String,
        c: String,
        n: u64,
        b: u64,
        w: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        l: u64,
    },
}

impl Form<Body> for BodyForm {
    fn of(value: &Body) -> Self {
        match value {
            Body::UserMessage { content } => Self::UserMessage { c: blocks_of(content) },
            Body::UserInterrupt => Self::UserInterrupt,
            Body::UserToolConfirmation { tool_use_id, decision } => {
                Self::UserToolConfirmation { u: tool_use_id.to_string(), d: DecisionForm::of(decision) }
            }
            Body::UserCustomToolResult { tool_use_id, content, is_error } => {
                Self::UserCustomToolResult { u: tool_use_id.to_string(), c: blocks_of(content), e: *is_error }
            }
            Body::SystemMessage { content } => Self::SystemMessage { c: blocks_of(content) },
            Body::AgentMessage { text, origin } => Self::AgentMessage { x: text.clone(), o: OriginForm::of(origin) },
            Body::AgentThinking { text, origin } => Self::AgentThinking { x: text.clone(), o: OriginForm::of(origin) },
            Body::AgentToolUse { name, input, kind, effect, permission, malformed, origin } => Self::AgentToolUse {
                n: name.clone(),
                i: input.as_str().to_string(),
                k: word(*kind),
                f: word(*effect),
                p: word(*permission),
                m: malformed.clone(),
                o: OriginForm::of(origin),
            },
            Body::AgentCustomToolUse { name, input, kind, origin } => Self::AgentCustomToolUse {
                n: name.clone(),
                i: input.as_str().to_string(),
                k: word(*kind),
                o: OriginForm::of(origin),
            },
            Body::AgentToolResult { tool_use_id, content, outcome } => {
                Self::AgentToolResult { u: tool_use_id.to_string(), c: blocks_of(content), r: word(*outcome) }
            }
            Body::ToolStarted { tool_use_id } => Self::ToolStarted { u: tool_use_id.to_string() },
            Body::StatusRunning => Self::StatusRunning,
            Body::StatusIdle { stop } => Self::StatusIdle { s: StopForm::of(stop) },
            Body::StatusRescheduled => Self::StatusRescheduled,
            Body::StatusTerminated { end } => Self::StatusTerminated { e: EndForm::of(end) },
            Body::Error { class, message, retrying, request_id, limit } => {
                Self::Error { c: word(*class), m: message.clone(), r: *retrying, q: request_id.clone(), l: *limit }
            }
            Body::SpanStart { model, attempt, instead_of, sent } => Self::SpanStart {
                m: model.clone(),
                a: *attempt,
                i: instead_of.as_ref().map(InsteadOfForm::of),
                s: SentForm::of(sent),
            },
            Body::SpanEnd { span, model, is_error, usage, cost_usd_micros, assumed } => Self::SpanEnd {
                s: span.to_string(),
                m: model.clone(),
                e: *is_error,
                u: UsageForm::of(usage),
                c: *cost_usd_micros,
                g: EstimateForm::of(assumed),
            },
            Body::ContextCompacted { compacted } => Self::ContextCompacted {
                f: compacted.from,
                k: compacted.keep_from,
                d: compacted.media_from,
                s: compacted.summary.as_ref().map(SummaryForm::of),
                z: [compacted.before.tokens, compacted.before.bytes, compacted.after.tokens, compacted.after.bytes],
            },
            Body::Condition { condition, class, model, message } => {
                Self::Condition { i: condition.to_string(), c: word(*class), m: model.clone(), x: message.clone() }
            }
            Body::WaitStarted { wait } => Self::WaitStarted { w: WaitForm::of(wait) },
            Body::WaitResolved { resolution } => Self::WaitResolved { r: word(*resolution) },
            Body::CallbackCreated { callback, label, expires_at } => {
                Self::CallbackCreated { c: callback.to_string(), l: label.clone(), x: expires_at.0 }
            }
            Body::CallbackReceived { callback, body } => {
                Self::CallbackReceived { c: callback.to_string(), x: body.clone() }
            }
            Body::BudgetUpdated { limits } => Self::BudgetUpdated { l: LimitsForm::of(limits) },
            Body::Updated { update } => Self::Updated {
                u: match update {
                    Update::Paused => UpdateForm::Paused,
                    Update::Resumed => UpdateForm::Resumed,
                    Update::Title(title) => UpdateForm::Title { t: title.clone() },
                    Update::Metadata(notes) => UpdateForm::Metadata { m: notes.clone() },
                    Update::Models(choice) => UpdateForm::Models { c: ModelChoiceForm::of(choice) },
                },
            },
            Body::UsageSnapshot { usage, cost_usd_micros, has_unpriced, estimated, limit_usd_micros } => {
                Self::UsageSnapshot {
                    e: EstimateForm::of(estimated),
                    u: UsageForm::of(usage),
                    c: *cost_usd_micros,
                    n: *has_unpriced,
                    l: *limit_usd_micros,
                }
            }
            Body::EnvironmentStarted { driver, missing, epoch } => {
                Self::EnvironmentStarted { d: driver.clone(), m: missing.clone(), e: *epoch }
            }
            Body::Forked { from, snapshot, limits } => Self::Forked {
                f: ForkedForm::of(from),
                l: LimitsForm::of(limits),
                s: snapshot.map(|id| id.to_string()),
            },
            Body::SnapshotCreated { snapshot, taken } => Self::SnapshotCreated {
                s: snapshot.to_string(),
                r: taken.reason.word().to_string(),
                c: taken.consistency.word().to_string(),
                n: taken.entries,
                b: taken.bytes,
                w: taken.new_bytes,
                l: taken.left_out,
            },
            Body::EnvironmentReset { reason, snapshot } => {
                Self::EnvironmentReset { r: reason.clone(), s: snapshot.map(|id| id.to_string()) }
            }
        }
    }

    fn to(self) -> Result<Body, String> {
        Ok(match self {
            Self::UserMessage { c } => Body::UserMessage { content: to_blocks(c)? },
            Self::UserInterrupt => Body::UserInterrupt,
            Self::UserToolConfirmation { u, d } => {
                Body::UserToolConfirmation { tool_use_id: event_id(&u)?, decision: d.to()? }
            }
            Self::UserCustomToolResult { u, c, e } => {
                Body::UserCustomToolResult { tool_use_id: event_id(&u)?, content: to_blocks(c)?, is_error: e }
            }
            Self::SystemMessage { c } => Body::SystemMessage { content: to_blocks(c)? },
            Self::AgentMessage { x, o } => Body::AgentMessage { text: x, origin: o.to()? },
            Self::AgentThinking { x, o } => Body::AgentThinking { text: x, origin: o.to()? },
            Self::AgentToolUse { n, i, k, f, p, m, o } => Body::AgentToolUse {
                name: n,
                input: json(&i)?,
                kind: Word::of_word(&k)?,
                effect: Word::of_word(&f)?,
                permission: Word::of_word(&p)?,
                malformed: m,
                origin: o.to()?,
            },
            Self::AgentCustomToolUse { n, i, k, o } => {
                Body::AgentCustomToolUse { name: n, input: json(&i)?, kind: Word::of_word(&k)?, origin: o.to()? }
            }
            Self::AgentToolResult { u, c, r } => Body::AgentToolResult {
                tool_use_id: event_id(&u)?,
                content: to_blocks(c)?,
                outcome: Word::of_word(&r)?,
            },
            Self::ToolStarted { u } => Body::ToolStarted { tool_use_id: event_id(&u)? },
            Self::StatusRunning => Body::StatusRunning,
            Self::StatusIdle { s } => Body::StatusIdle { stop: s.to()? },
            Self::StatusRescheduled => Body::StatusRescheduled,
            Self::StatusTerminated { e } => Body::StatusTerminated { end: e.to()? },
            Self::Error { c, m, r, q, l } => {
                Body::Error { class: Word::of_word(&c)?, message: m, retrying: r, request_id: q, limit: l }
            }
            Self::SpanStart { m, a, i, s } => {
                Body::SpanStart { model: m, attempt: a, instead_of: i.map(Form::to).transpose()?, sent: s.to()? }
            }
            Self::SpanEnd { s, m, e, u, c, g } => Body::SpanEnd {
                span: event_id(&s)?,
                model: m,
                is_error: e,
                usage: u.to()?,
                cost_usd_micros: c,
                assumed: g.to()?,
            },
            Self::ContextCompacted { f, k, d, s, z: [tokens, bytes, tokens_after, bytes_after] } => {
                Body::ContextCompacted {
                    compacted: Compacted {
                        from: position("from", f)?,
                        keep_from: position("keep_from", k)?,
                        media_from: position("media_from", d)?,
                        summary: s.map(Form::to).transpose()?,
                        before: Measured { tokens, bytes },
                        after: Measured { tokens: tokens_after, bytes: bytes_after },
                    },
                }
            }
            Self::Condition { i, c, m, x } => {
                Body::Condition { condition: condition_id(&i)?, class: Word::of_word(&c)?, model: m, message: x }
            }
            Self::WaitStarted { w } => Body::WaitStarted { wait: w.to()? },
            Self::WaitResolved { r } => Body::WaitResolved { resolution: Word::of_word(&r)? },
            Self::CallbackCreated { c, l, x } => {
                Body::CallbackCreated { callback: callback_id(&c)?, label: l, expires_at: Timestamp(x) }
            }
            Self::CallbackReceived { c, x } => Body::CallbackReceived { callback: callback_id(&c)?, body: x },
            Self::BudgetUpdated { l } => Body::BudgetUpdated { limits: l.to()? },
            Self::Updated { u } => Body::Updated {
                update: match u {
                    UpdateForm::Paused => Update::Paused,
                    UpdateForm::Resumed => Update::Resumed,
                    UpdateForm::Title { t } => Update::Title(t),
                    UpdateForm::Metadata { m } => Update::Metadata(m),
                    UpdateForm::Models { c } => Update::Models(c.to()?),
                },
            },
            Self::UsageSnapshot { u, c, n, l, e } => Body::UsageSnapshot {
                usage: u.to()?,
                cost_usd_micros: c,
                has_unpriced: n,
                estimated: e.to()?,
                limit_usd_micros: l,
            },
            Self::EnvironmentStarted { d, m, e } => Body::EnvironmentStarted { driver: d, missing: m, epoch: e },
            Self::EnvironmentReset { r, s } => {
                Body::EnvironmentReset { reason: r, snapshot: s.map(|id| snapshot_id(&id)).transpose()? }
            }
            Self::Forked { f, l, s } => {
                Body::Forked { from: f.to()?, snapshot: s.map(|id| snapshot_id(&id)).transpose()?, limits: l.to()? }
            }
            Self::SnapshotCreated { s, r, c, n, b, w, l } => Body::SnapshotCreated {
                snapshot: snapshot_id(&s)?,
                taken: SnapshotTaken {
                    reason: Word::of_word(&r)?,
                    consistency: Word::of_word(&c)?,
                    entries: n,
                    bytes: b,
                    new_bytes: w,
                    left_out: l,
                },
            },
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(super) enum InputForm {
    Message { c: Vec<BlockForm> },
    System { c: Vec<BlockForm> },
    Interrupt,
    Confirmation { u: String, d: DecisionForm },
    CustomResult { u: String, c: Vec<BlockForm>, e: bool },
    Callback { c: String, x: String },
    Pause,
    Resume,
    Cancel,
    Archive,
    Limits { l: LimitsForm },
    Title { x: String },
    Metadata { m: BTreeMap<String, String> },
    Models { c: ModelChoiceForm },
    Snapshot,
}

impl Form<InputBody> for InputForm {
    fn of(value: &InputBody) -> Self {
        match value {
            InputBody::Message { content } => Self::Message { c: blocks_of(content) },
            InputBody::System { content } => Self::System { c: blocks_of(content) },
            InputBody::Interrupt => Self::Interrupt,
            InputBody::Confirmation { tool_use_id, decision } => {
                Self::Confirmation { u: tool_use_id.to_string(), d: DecisionForm::of(decision) }
            }
            InputBody::CustomResult { tool_use_id, content, is_error } => {
                Self::CustomResult { u: tool_use_id.to_string(), c: blocks_of(content), e: *is_error }
            }
            InputBody::Callback { callback, body } => Self::Callback { c: callback.to_string(), x: body.clone() },
            InputBody::Pause => Self::Pause,
            InputBody::Resume => Self::Resume,
            InputBody::Cancel => Self::Cancel,
            InputBody::Archive => Self::Archive,
            InputBody::Limits(limits) => Self::Limits { l: LimitsForm::of(limits) },
            InputBody::Title(title) => Self::Title { x: title.clone() },
            InputBody::Metadata(notes) => Self::Metadata { m: notes.clone() },
            InputBody::Models(choice) => Self::Models { c: ModelChoiceForm::of(choice) },
            InputBody::Snapshot => Self::Snapshot,
        }
    }

    fn to(self) -> Result<InputBody, String> {
        Ok(match self {
            Self::Message { c } => InputBody::Message { content: to_blocks(c)? },
            Self::System { c } => InputBody::System { content: to_blocks(c)? },
            Self::Interrupt => InputBody::Interrupt,
            Self::Confirmation { u, d } => InputBody::Confirmation { tool_use_id: event_id(&u)?, decision: d.to()? },
            Self::CustomResult { u, c, e } => {
                InputBody::CustomResult { tool_use_id: event_id(&u)?, content: to_blocks(c)?, is_error: e }
            }
            Self::Callback { c, x } => InputBody::Callback { callback: callback_id(&c)?, body: x },
            Self::Pause => InputBody::Pause,
            Self::Resume => InputBody::Resume,
            Self::Cancel => InputBody::Cancel,
            Self::Archive => InputBody::Archive,
            Self::Limits { l } => InputBody::Limits(l.to()?),
            Self::Title { x } => InputBody::Title(x),
            Self::Metadata { m } => InputBody::Metadata(m),
            Self::Models { c } => InputBody::Models(c.to()?),
            Self::Snapshot => InputBody::Snapshot,
        })
    }
}
