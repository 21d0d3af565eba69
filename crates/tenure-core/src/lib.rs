//! The pure heart of tenure: sessions, events, what to do next, and policies.
//!
//! Two functions carry the product: [`apply`] folds one event into the head of a session, and
//! [`next`] says what to do now. Everything else here decides something for them as data: which
//! events an input, a model answer, a failure or a tool result becomes.
//!
//! Absent on purpose: clocks, randomness, input and output, `async`. Time, ids and random numbers
//! come in as arguments, which is why the same functions run in the worker, in tests and in a
//! simulator.
#![no_std]

extern crate alloc;

mod accept;
mod agent;
mod answer;
mod apply;
mod budget;
mod call;
mod compact;
mod environment;
mod event;
mod explain;
mod fork;
mod id;
mod input;
mod json;
mod next;
mod session;
mod size;
mod time;
mod transcript;
mod usage;
mod wait;

pub mod condition;
pub mod failure;
pub mod pace;
pub mod redact;
pub mod retry;
pub mod stored;
pub mod validate;

pub use accept::{Accepted, MAX_INBOX, MAX_INBOX_ANSWERS, Refused, accept};
pub use agent::{
    Agent, AgentRef, CompactionMode, CompactionPolicy, CustomTool, Effect, Loop, ModelChoice, Permission, Policies,
    SnapshotPolicy, Tool, ToolConfig, UnknownOutcome,
};
pub use answer::{Answer, AnswerBlock, AnswerStop, Attempt, BlockKind, ToolFacts, answered, cut_at_window, failed};
pub use apply::{Invalid, apply};
pub use budget::{Budget, Estimate, Limits, Price, Which, usage_due};
pub use call::{
    Call, CallKind, CallState, Done, MAX_IDENTICAL_CALLS, MAX_IDENTICAL_FAILURES, MAX_LOSSES, finished, out_of_time,
    recover, set_aside, wait_tool,
};
pub use compact::{
    MAX_COMPACTIONS, Plan, Request, compaction, futile, plan, reserve_summary, summary_of, summary_prompt,
};
pub use environment::{DriverName, Environment, Network, SandboxLimits};
pub use event::{
    Block, Body, Compacted, Consistency, Decision, Draft, End, Event, InsteadOf, Measured, MediaKind, Origin, Outcome,
    Purpose, Sent, SnapshotReason, SnapshotTaken, Stop, Summary, Update,
};
pub use explain::{Explanation, Unblock, class_text, explain};
pub use fork::{ForkedFrom, NewFork, fork, undone};
pub use id::{
    AgentId, CallbackId, ConditionId, EnvironmentId, EventId, IdError, LeaseId, NodeId, SHARDS, SessionId, Shard,
    SnapshotId, TenantId,
};
pub use input::{Input, InputBody, callback_result, cancelled, ended, intake};
pub use json::{Json, JsonError, MAX_JSON_DEPTH, clean_surrogates};
pub use next::{Action, next};
pub use session::{
    Callback, Compaction, Files, MAX_OPEN_CALLBACKS, Phase, Position, Repeats, Retry, Session, Status, TooLarge,
};
pub use size::{Learnt, ModelFacts, Size};
pub use time::{Millis, Timestamp};
pub use transcript::{AssistantPart, Message, Prompt, ToolSpec, UserPart, transcript};
pub use usage::Usage;
pub use wait::{MAX_WAIT, Resolution, Wait, WaitKind};
