//! What a row of the log means for the spans of a timeline.

use tenure_api::event::{class_word, outcome_word, resolution_word};
use tenure_core::{Body, Event, EventId, Purpose, Stop, WaitKind};

/// Which span is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Turn,
    Attempt(EventId),
    Tool(EventId),
    Wait,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Attempt(_) => "attempt",
            Self::Tool(_) => "tool",
            Self::Wait => "wait",
        }
    }
}

/// What a row does to a span.
pub(super) enum Change {
    /// It begins, unless it is open: a turn is said to run more than once.
    Opens { kind: Kind, name: String, attempt: Option<u32> },
    /// It ends, if it is open.
    Closes { kind: Kind, outcome: &'static str },
}

/// What a row does, in this order.
pub(super) fn changes(row: &Event) -> Vec<Change> {
    let opens = |kind, name: &str, attempt| Change::Opens { kind, name: name.to_owned(), attempt };
    let closes = |kind, outcome| Change::Closes { kind, outcome };
    match &row.body {
        Body::StatusRunning => vec![opens(Kind::Turn, "turn", None)],
        Body::StatusIdle { stop: Stop::EndTurn } => vec![closes(Kind::Turn, "end_turn")],
        Body::StatusIdle { stop: Stop::Refusal } => vec![closes(Kind::Turn, "refusal")],
        Body::StatusTerminated { .. } => {
            vec![closes(Kind::Turn, "terminated"), closes(Kind::Wait, "terminated")]
        }
        Body::SpanStart { model, attempt, sent, .. } => {
            let name = match sent.purpose {
                Purpose::Answer => model.clone(),
                Purpose::Summary { .. } => format!("summary: {model}"),
            };
            vec![opens(Kind::Attempt(row.id), &name, Some(*attempt))]
        }
        Body::SpanEnd { span, is_error, .. } => {
            vec![closes(Kind::Attempt(*span), if *is_error { "failed" } else { "done" })]
        }
        Body::AgentToolUse { name, .. } | Body::AgentCustomToolUse { name, .. } => {
            vec![opens(Kind::Tool(row.id), name, None)]
        }
        Body::AgentToolResult { tool_use_id, outcome, .. } => {
            vec![closes(Kind::Tool(*tool_use_id), outcome_word(*outcome))]
        }
        Body::UserCustomToolResult { tool_use_id, is_error, .. } => {
            vec![closes(Kind::Tool(*tool_use_id), if *is_error { "failed" } else { "done" })]
        }
        Body::WaitStarted { wait } => {
            let name = match &wait.kind {
                WaitKind::Backoff { class, .. } => format!("backoff: {}", class_word(*class)),
                WaitKind::Condition { class, .. } => format!("condition: {}", class_word(*class)),
                WaitKind::Upstream { class } => format!("upstream: {}", class_word(*class)),
                kind => kind.name().to_owned(),
            };
            vec![closes(Kind::Wait, "replaced"), opens(Kind::Wait, &name, None)]
        }
        Body::WaitResolved { resolution } => vec![closes(Kind::Wait, resolution_word(*resolution))],
        // What the parent had open is not open here.
        Body::Forked { .. } => vec![closes(Kind::Wait, "forked")],
        Body::StatusIdle { stop: Stop::RequiresAction(_) | Stop::RetriesExhausted | Stop::BudgetReached }
        | Body::UserMessage { .. }
        | Body::UserInterrupt
        | Body::UserToolConfirmation { .. }
        | Body::SystemMessage { .. }
        | Body::AgentMessage { .. }
        | Body::AgentThinking { .. }
        | Body::ToolStarted { .. }
        | Body::StatusRescheduled
        | Body::Error { .. }
        | Body::CallbackCreated { .. }
        | Body::CallbackReceived { .. }
        | Body::BudgetUpdated { .. }
        | Body::ContextCompacted { .. }
        | Body::Updated { .. }
        | Body::UsageSnapshot { .. }
        | Body::EnvironmentStarted { .. }
        | Body::Condition { .. }
        | Body::SnapshotCreated { .. }
        | Body::EnvironmentReset { .. } => Vec::new(),
    }
}
