//! Events: the entries of a session's log, and the only thing that changes a session.
//!
//! A row of the log is one event that clients see, one to one (design 7.1). What only we need, such
//! as the provider's verbatim block, rides along in [`Origin`] and is not shown.

use crate::agent::{Effect, ModelChoice, Permission};
use crate::budget::{Estimate, Limits};
use crate::call::CallKind;
use crate::fork::ForkedFrom;
use crate::id::{CallbackId, ConditionId, EventId, SnapshotId};
use crate::json::Json;
use crate::size::Size;
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::wait::{Resolution, Wait};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// One entry of a session's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Unique; for a tool call this is also the `tool_use_id` of its answer.
    pub id: EventId,
    /// Position in the log: 1, 2, 3 … without gaps.
    pub seq: u64,
    /// When it was committed, by the store's clock.
    pub at: Timestamp,
    /// The model or tool call it belongs to, counted from 1; 0 for none.
    pub step: u64,
    /// What happened.
    pub body: Body,
}

impl Body {
    /// The call that it answers or closes; found again when its answer is repeated.
    pub fn answers(&self) -> Option<EventId> {
        match self {
            Self::UserToolConfirmation { tool_use_id, .. }
            | Self::UserCustomToolResult { tool_use_id, .. }
            | Self::AgentToolResult { tool_use_id, .. } => Some(*tool_use_id),
            _ => None,
        }
    }

    /// Whether the step that its session is at is done with it, or is another one from now on.
    ///
    /// What a worker records before an effect, and what a new holder records about a lost one, moves
    /// nothing: a step that ends its worker each time would otherwise look as if it moved (promise P13).
    pub fn is_progress(&self) -> bool {
        match self {
            Self::StatusRunning
            | Self::SpanStart { .. }
            | Self::ToolStarted { .. }
            | Self::EnvironmentStarted { .. }
            | Self::EnvironmentReset { .. }
            | Self::SnapshotCreated { .. }
            | Self::UsageSnapshot { .. }
            | Self::Updated { .. } => false,
            // Without a model: the holder was lost.
            Self::SpanEnd { is_error, model, .. } => !*is_error || !model.is_empty(),
            Self::AgentToolResult { outcome, .. } => *outcome != Outcome::Unknown,
            Self::UserMessage { .. }
            | Self::UserInterrupt
            | Self::UserToolConfirmation { .. }
            | Self::UserCustomToolResult { .. }
            | Self::SystemMessage { .. }
            | Self::AgentMessage { .. }
            | Self::AgentThinking { .. }
            | Self::AgentToolUse { .. }
            | Self::AgentCustomToolUse { .. }
            | Self::StatusIdle { .. }
            | Self::StatusRescheduled
            | Self::StatusTerminated { .. }
            | Self::Error { .. }
            | Self::Condition { .. }
            | Self::WaitStarted { .. }
            | Self::WaitResolved { .. }
            | Self::CallbackCreated { .. }
            | Self::CallbackReceived { .. }
            | Self::BudgetUpdated { .. }
            | Self::Forked { .. }
            | Self::ContextCompacted { .. } => true,
        }
    }
}

/// An event before it has a position: the id is set only where a preview already showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The id that clients may already know.
    pub id: Option<EventId>,
    /// The model or tool call it belongs to; 0 for none.
    pub step: u64,
    /// What happened.
    pub body: Body,
}

impl Draft {
    /// An event that belongs to no step.
    pub fn new(body: Body) -> Self {
        Self { id: None, step: 0, body }
    }

    /// An event of `step`.
    pub fn of_step(step: u64, body: Body) -> Self {
        Self { id: None, step, body }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is documented; its fields say what they are")]
pub enum Body {
    /// A person or program said something.
    UserMessage { content: Vec<Block> },
    /// Stop what runs now; queued inputs stay.
    UserInterrupt,
    /// An answer to a call that asked for permission.
    UserToolConfirmation { tool_use_id: EventId, decision: Decision },
    /// The client's result of a custom tool.
    UserCustomToolResult { tool_use_id: EventId, content: Vec<Block>, is_error: bool },
    /// More instructions from the operator, in the place of a user message.
    SystemMessage { content: Vec<Block> },

    /// One text block of a model answer.
    AgentMessage { text: String, origin: Origin },
    /// One reasoning block of a model answer.
    AgentThinking { text: String, origin: Origin },
    /// A call of a tool that we run. `malformed` says why its input could not be read.
    AgentToolUse {
        name: String,
        input: Json,
        kind: CallKind,
        effect: Effect,
        permission: Permission,
        malformed: Option<String>,
        origin: Origin,
    },
    /// A call that the client or a person answers.
    AgentCustomToolUse { name: String, input: Json, kind: CallKind, origin: Origin },
    /// The result of a call; exactly one per call.
    AgentToolResult { tool_use_id: EventId, content: Vec<Block>, outcome: Outcome },
    /// Recorded right before an effect that must not happen twice is dispatched (promise P3).
    ToolStarted { tool_use_id: EventId },

    /// The session works on a turn.
    StatusRunning,
    /// The session needs nothing more, or needs somebody.
    StatusIdle { stop: Stop },
    /// The session waits for an upstream and will go on by itself.
    StatusRescheduled,
    /// The session has ended for good.
    StatusTerminated { end: End },
    /// Something failed; not the end of the session.
    ///
    /// `limit` is what a refusal taught: tokens of an overflow, bytes of a request that was too large.
    Error {
        class: crate::failure::Class,
        message: String,
        retrying: bool,
        request_id: Option<String>,
        limit: Option<u64>,
    },
    /// A model call begins.
    SpanStart { model: String, attempt: u32, instead_of: Option<InsteadOf>, sent: Sent },
    /// A model call has ended; `is_error` drops its preview.
    ///
    /// `usage` is what the provider counted; `assumed` is what a call that broke off probably used
    /// beyond that.
    SpanEnd {
        span: EventId,
        model: String,
        is_error: bool,
        usage: Usage,
        cost_usd_micros: Option<u64>,
        assumed: Estimate,
    },
    /// The model sees less of the log from now on; the log itself keeps everything.
    ContextCompacted { compacted: Compacted },

    /// The upstream refuses everybody; right before the wait for it.
    Condition { condition: ConditionId, class: crate::failure::Class, model: String, message: String },
    /// The session parks.
    WaitStarted { wait: Wait },
    /// What it waited for has come, or will not come any more.
    WaitResolved { resolution: Resolution },
    /// A token for an outside job exists from now on; the id only, never the token.
    CallbackCreated { callback: CallbackId, label: String, expires_at: Timestamp },
    /// An outside job answered; the body is untrusted text.
    CallbackReceived { callback: CallbackId, body: String },
    /// Limits were changed.
    BudgetUpdated { limits: Limits },
    /// The session was changed by an operator.
    Updated { update: Update },
    /// What the session has used so far, said before it becomes idle or ends (see [`crate::usage_due`]).
    UsageSnapshot {
        usage: Usage,
        cost_usd_micros: u64,
        has_unpriced: bool,
        estimated: Estimate,
        limit_usd_micros: Option<u64>,
    },
    /// A live sandbox was made for the session; lists what this machine cannot enforce.
    /// `epoch` is that of its lease; 0 in logs of before there were snapshots.
    EnvironmentStarted { driver: String, missing: Vec<String>, epoch: u64 },
    /// The sandbox came back without something it had; says what to the model too. With a snapshot: files
    /// went back to it.
    EnvironmentReset { reason: String, snapshot: Option<SnapshotId> },
    /// The session is a fork of another one: rows up to here are shared with it, later ones are its own. What
    /// was under way is not, and use starts at zero. `snapshot` are the files that it starts with.
    Forked { from: ForkedFrom, snapshot: Option<SnapshotId>, limits: Limits },
    /// The files are stored as they were at this moment.
    SnapshotCreated { snapshot: SnapshotId, taken: SnapshotTaken },
}

/// What is told of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// What asked for it.
    pub reason: SnapshotReason,
    /// How far its files belong to one moment.
    pub consistency: Consistency,
    /// Files, folders, links and FIFOs in it.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that were stored for it.
    pub new_bytes: u64,
    /// Entries and attributes that could not be kept.
    pub left_out: u64,
}

/// What asked for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotReason {
    /// A step changed files.
    Step,
    /// The lease ends.
    Lease,
    /// The session waits for something.
    Wait,
    /// The turn ends.
    Turn,
    /// Somebody asked.
    Manual,
}

/// How far the files of a snapshot belong to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing could write while they were read.
    Frozen,
    /// Each file by itself is as it was at one moment.
    Fuzzy,
    /// Some files changed each time they were read.
    Torn,
}

/// The model that would have been called, and why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsteadOf {
    /// `provider/model`.
    pub model: String,
    /// What is wrong with it.
    pub class: crate::failure::Class,
}

/// A piece of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Text; any Unicode, U+0000 included.
    Text(String),
    /// Anything else, kept as the wire form that came in.
    Media {
        /// What it is.
        kind: MediaKind,
        /// The whole block, with its `type`.
        json: Json,
    },
}

/// Kinds of content other than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum MediaKind {
    Image,
    Document,
    SearchResult,
}

/// What a model call sends, known before it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// How large the request is.
    pub size: Size,
    /// Its input tokens, estimated.
    pub input_tokens: u64,
    /// What it will probably use; charged if nobody comes back to say better (promise P11).
    pub reserved: Estimate,
    /// What it is for.
    pub purpose: Purpose,
}

/// What a model call is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The next answer.
    #[default]
    Answer,
    /// A summary of the rows that the model sees before `keep_from`.
    Summary {
        /// The first row that is left out.
        keep_from: u64,
        /// Most input tokens that the request may have; longer parts are cut for it.
        room: u64,
        /// Estimated input tokens of the whole context.
        before: u64,
    },
}

/// A compaction: which part of the log the model sees in another form from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// The first row that the model saw as it is until now.
    pub from: u64,
    /// The first row that it sees as it is from now on; the rows before are summarised.
    pub keep_from: u64,
    /// Images and documents of rows before this one are named instead of shown.
    pub media_from: u64,
    /// Stands for the rows before `keep_from`; `None` if only media were left out.
    pub summary: Option<Summary>,
    /// The size of the request before.
    pub before: Measured,
    /// Its size afterwards.
    pub after: Measured,
}

/// What stands for summarised rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// In the model's words.
    pub text: String,
    /// The operator's instructions among those rows, as they were.
    pub instructions: Vec<Block>,
    /// The newest message of the user among those rows, as it was.
    pub request: Vec<Block>,
}

/// A size as it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Input tokens, estimated.
    pub tokens: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Where a block of a model answer came from, and its verbatim form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The dialect that can read `blocks`.
    pub dialect: String,
    /// `provider/model` that wrote them; reasoning goes back to no other one.
    pub model: String,
    /// The provider's blocks, byte for byte and in order. More than one where blocks that we do
    /// not know stood next to this one.
    pub blocks: Vec<Json>,
}

/// Answer of a person to a call that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run it as it is.
    Allow,
    /// Do not run it, and tell the model why.
    Deny {
        /// What the model is told.
        message: Option<String>,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and succeeded.
    Done,
    /// It ran and failed, or its input was wrong.
    Failed,
    /// It may or may not have happened: whoever ran it died (promise P3).
    Unknown,
    /// A person said no.
    Denied,
    /// It was never started.
    NotRun,
    /// It was stopped on the way.
    Interrupted,
}

impl Outcome {
    /// Whether the model is told that the call failed.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Done)
    }
}

/// Why a session is idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model finished its turn, or nothing was asked yet.
    EndTurn,
    /// These calls need an answer.
    RequiresAction(Vec<EventId>),
    /// The upstream failed too often; everything is kept.
    RetriesExhausted,
    /// A limit of the session is reached.
    BudgetReached,
    /// The model refused.
    Refusal,
}

/// How a session ended for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Archived or finished.
    Done,
    /// Cannot go on.
    Failed {
        /// Why.
        reason: String,
    },
    /// Cancelled; says what became of its processes (hazard Z-30).
    Cancelled {
        /// `killed`, `nothing was running`, or which host could not be reached.
        processes: String,
    },
}

/// What an operator changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// It is held.
    Paused,
    /// It may go on, and whatever it backed off from is tried now.
    Resumed,
    /// Its title.
    Title(String),
    /// The client's notes, all of them as they are now. They are kept beside the head.
    Metadata(BTreeMap<String, String>),
    /// The models that it uses instead of its agent's, from the next request on.
    Models(ModelChoice),
}
