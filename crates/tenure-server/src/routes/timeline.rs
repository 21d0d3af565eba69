//! The timeline of a session: spans made of its log.

use super::{find_session, session_id};
use crate::error::Result;
use crate::keys::Caller;
use crate::page;
use crate::request::{Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::event::{class_word, outcome_word, resolution_word};
use tenure_api::page::Page;
use tenure_api::time;
use tenure_api::timeline::WireSpan;
use tenure_core::{Body, Event, EventId, SessionId, Stop, WaitKind};
use tenure_store::{EventQuery, Order};

/// Rows whose spans one page shows unless the request says otherwise.
const ROWS: u64 = 2_000;

/// Most rows whose spans one page shows.
const MAX_ROWS: u64 = 20_000;

/// Most rows after a page that are looked through for the ends of its spans; beyond them a span is
/// shown as open, with the same id on no later page.
const MAX_LOOK_AHEAD: usize = 5_000;

/// `GET /v1/sessions/{session_id}/timeline`: `limit` counts rows of the log.
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Page<WireSpan>>> {
    let id = session_id(&id)?;
    find_session(&state, &caller, id).await?;
    let limit = query.number("limit", 1, MAX_ROWS)?.unwrap_or(ROWS);
    let after: u64 = page::cursor(&query)?.unwrap_or(0);
    let last = after.saturating_add(limit);
    let mut spans = Spans { last, spans: Vec::new() };
    let mut seq = after;
    loop {
        let rows = rows(&state, &caller, id, seq).await?;
        for row in &rows {
            spans.take(row);
            seq = row.seq;
        }
        let is_end = rows.len() < tenure_store::MAX_PAGE;
        let is_done = seq > last && (!spans.has_open() || seq - last > MAX_LOOK_AHEAD as u64);
        if is_end || is_done {
            let next_page = (seq > last).then(|| page::next(last));
            return Ok(Json(Page { data: spans.spans.into_iter().map(Span::show).collect(), next_page }));
        }
    }
}

async fn rows(state: &ServerState, caller: &Caller, session: SessionId, after: u64) -> Result<Vec<Event>> {
    let query = EventQuery {
        tenant: caller.tenant.clone(),
        session,
        after: Some(after),
        order: Order::Ascending,
        limit: tenure_store::MAX_PAGE,
    };
    Ok(state.store().events(query).await?)
}

/// Spans that begin in a range of rows, and those rows after it that end them.
struct Spans {
    /// The last row whose spans are shown.
    last: u64,
    spans: Vec<Span>,
}

struct Span {
    wire: WireSpan,
    kind: Kind,
    started: tenure_core::Timestamp,
}

/// What ends a span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Turn,
    Attempt(EventId),
    Tool(EventId),
    Wait,
}

impl Span {
    fn show(self) -> WireSpan {
        self.wire
    }
}

impl Spans {
    fn has_open(&self) -> bool {
        self.spans.iter().any(|span| span.wire.to_seq.is_none())
    }

    fn take(&mut self, row: &Event) {
        match &row.body {
            Body::StatusRunning => {
                if !self.is_open(Kind::Turn) {
                    self.open(row, Kind::Turn, "turn", "turn".into(), None);
                }
            }
            Body::StatusIdle { stop } => {
                if matches!(stop, Stop::EndTurn | Stop::Refusal) {
                    self.close(row, Kind::Turn, if *stop == Stop::Refusal { "refusal" } else { "end_turn" });
                }
            }
            Body::StatusTerminated { .. } => {
                for kind in [Kind::Turn, Kind::Wait] {
                    self.close(row, kind, "terminated");
                }
            }
            Body::SpanStart { model, attempt } => {
                self.open(row, Kind::Attempt(row.id), "attempt", model.clone(), Some(*attempt))
            }
            Body::SpanEnd { span, is_error, .. } => {
                self.close(row, Kind::Attempt(*span), if *is_error { "failed" } else { "done" })
            }
            Body::AgentToolUse { name, .. } | Body::AgentCustomToolUse { name, .. } => {
                self.open(row, Kind::Tool(row.id), "tool", name.clone(), None);
            }
            Body::AgentToolResult { tool_use_id, outcome, .. } => {
                self.close(row, Kind::Tool(*tool_use_id), outcome_word(*outcome))
            }
            Body::UserCustomToolResult { tool_use_id, is_error, .. } => {
                self.close(row, Kind::Tool(*tool_use_id), if *is_error { "failed" } else { "done" });
            }
            Body::WaitStarted { wait } => {
                self.close(row, Kind::Wait, "replaced");
                let name = match &wait.kind {
                    WaitKind::Backoff { class, .. } => format!("backoff: {}", class_word(*class)),
                    WaitKind::Condition { class, .. } => {
                        format!("condition: {}", class_word(*class))
                    }
                    WaitKind::Upstream { class } => format!("upstream: {}", class_word(*class)),
                    kind => kind.name().to_owned(),
                };
                self.open(row, Kind::Wait, "wait", name, None);
            }
            Body::WaitResolved { resolution } => self.close(row, Kind::Wait, resolution_word(*resolution)),
            Body::UserMessage { .. }
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
            | Body::Updated { .. }
            | Body::EnvironmentStarted { .. }
            | Body::EnvironmentReset { .. } => {}
        }
    }

    fn is_open(&self, kind: Kind) -> bool {
        self.spans.iter().rev().any(|span| span.kind == kind && span.wire.to_seq.is_none())
    }

    fn open(&mut self, row: &Event, kind: Kind, word: &str, name: String, attempt: Option<u32>) {
        if row.seq > self.last {
            return;
        }
        let wire = WireSpan {
            kind: word.into(),
            name,
            id: row.id.to_string(),
            from_seq: row.seq,
            to_seq: None,
            start: time::write(row.at),
            end: None,
            duration_ms: None,
            step: (row.step > 0).then_some(row.step),
            attempt,
            outcome: None,
        };
        self.spans.push(Span { wire, kind, started: row.at });
    }

    fn close(&mut self, row: &Event, kind: Kind, outcome: &str) {
        let Some(span) = self.spans.iter_mut().rev().find(|span| span.kind == kind && span.wire.to_seq.is_none())
        else {
            return;
        };
        span.wire.to_seq = Some(row.seq);
        span.wire.end = Some(time::write(row.at));
        span.wire.duration_ms = Some(row.at.since(span.started));
        span.wire.outcome = Some(outcome.into());
    }
}
