//! What needs a person, across sessions.

use crate::error::Result;
use crate::keys::Caller;
use crate::page;
use crate::request::Query;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::json;
use std::sync::Arc;
use tenure_api::explain::WireApproval;
use tenure_api::page::Page;
use tenure_api::time;
use tenure_core::{Body, Call, CallKind, CallState, Phase, SessionId};
use tenure_store::{EventQuery, Order, SessionQuery, SessionView};

/// Most sessions that one page looks at.
const MAX_SESSIONS: u64 = 200;

/// `GET /v1/approvals`: pages are of sessions, each with all its open calls.
pub(crate) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    query: Query,
) -> Result<Json<Page<WireApproval>>> {
    let limit = query.number("limit", 1, MAX_SESSIONS)?.unwrap_or(page::PAGE);
    let limit = usize::try_from(limit).expect("not above the most sessions");
    let sessions = SessionQuery {
        tenant: caller.tenant.clone(),
        agent: None,
        // Also while another call of the session runs: the answer is taken then too.
        phases: vec![Phase::NeedsYou, Phase::Paused, Phase::Working, Phase::Queued],
        with_archived: false,
        created_from: None,
        created_before: None,
        after: page::cursor::<SessionId>(&query)?,
        order: Order::Descending,
        limit: limit + 1,
    };
    let sessions = page::page(state.store().sessions(sessions).await?, limit, |view| view.session.id, Clone::clone);
    let mut data = Vec::new();
    for view in &sessions.data {
        for call in &view.session.calls {
            if let CallState::NeedsAnswer { deadline } = call.state {
                data.push(approval(&state, &caller, view, call, deadline.map(time::write)).await?);
            }
        }
    }
    Ok(Json(Page { data, next_page: sessions.next_page }))
}

async fn approval(
    state: &ServerState,
    caller: &Caller,
    view: &SessionView,
    call: &Call,
    until: Option<String>,
) -> Result<WireApproval> {
    let session = &view.session;
    let row = EventQuery {
        tenant: caller.tenant.clone(),
        session: session.id,
        after: Some(call.seq.saturating_sub(1)),
        order: Order::Ascending,
        limit: 1,
    };
    let row = state.store().events(row).await?.into_iter().next().filter(|row| row.id == call.id);
    let since = row.as_ref().map(|row| time::write(row.at));
    let input = match row.map(|row| row.body) {
        Some(Body::AgentToolUse { input, .. } | Body::AgentCustomToolUse { input, .. }) => input.to_value(),
        _ => json!({}),
    };
    let kind = match call.kind {
        CallKind::Custom => "custom_tool",
        CallKind::AskUser => "question",
        CallKind::Sandbox | CallKind::Sleep | CallKind::CreateCallback | CallKind::WaitForCallback => "approval",
    };
    Ok(WireApproval {
        session_id: session.id.to_string(),
        session_title: (!session.title.is_empty()).then(|| session.title.clone()),
        agent_id: session.agent.id.to_string(),
        tool_use_id: call.id.to_string(),
        kind: kind.into(),
        name: call.name.clone(),
        input,
        since,
        until,
    })
}
