//! What a model saw at a step.

use super::{AgentsOf, find_session, session_id};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::{Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::Value;
use std::sync::Arc;
use tenure_api::context::SeenContext;
use tenure_api::error::Code;
use tenure_core::{Body, Event, Purpose, Session, apply};
use tenure_store::{EventQuery, MAX_PAGE, Order, SessionView};

/// `GET /v1/sessions/{session_id}/context`
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<SeenContext>> {
    let view = find_session(&state, &caller, session_id(&id)?).await?;
    let asked = query.number("seq", 1, u64::MAX)?.unwrap_or(u64::MAX);
    let _turn = state.deep_reads.acquire().await.map_err(ApiError::internal)?;
    let start = begun(&state, &view, asked).await?;
    let Body::SpanStart { model, attempt, sent, .. } = &start.body else {
        return Err(ApiError::internal("a row that begins no model call was found as one that does"));
    };
    let (session, rows) = before(&state, &view, start.seq).await?;
    let mut agents = AgentsOf::new(&state, &caller);
    let agent = agents.get(&view).await?;
    let (dialect, request, is_exact, reason) = match state.config.requests.seen(agent, &session, &rows, &start) {
        Ok(seen) => {
            let text = (state.config.mask)(&String::from_utf8_lossy(&seen.body));
            let request: Value = serde_json::from_str(&text).map_err(ApiError::internal)?;
            (Some(seen.dialect), Some(request), seen.is_exact, None)
        }
        Err(reason) => (None, None, false, Some((state.config.mask)(&reason))),
    };
    let purpose = match sent.purpose {
        Purpose::Answer => "answer",
        Purpose::Summary { .. } => "summary",
    };
    Ok(Json(SeenContext {
        kind: "context".into(),
        session_id: view.session.id.to_string(),
        seq: start.seq,
        event_id: start.id.to_string(),
        step: start.step,
        attempt: *attempt,
        purpose: purpose.into(),
        model: model.clone(),
        from_seq: session.context_from_seq,
        input_tokens: sent.input_tokens,
        dialect,
        request,
        is_exact,
        reason,
    }))
}

/// The row that begins the newest model call at `asked` or before it.
async fn begun(state: &ServerState, view: &SessionView, asked: u64) -> Result<Event> {
    let mut after = asked.checked_add(1);
    loop {
        let page = page(state, view, after, Order::Descending).await?;
        let Some(last) = page.last() else {
            let message = format!("no model call of session {} began at row {asked} or before it", view.session.id);
            return Err(ApiError::new(Code::ContextNotFound, message));
        };
        after = Some(last.seq);
        if let Some(start) = page.into_iter().find(|row| matches!(row.body, Body::SpanStart { .. })) {
            return Ok(start);
        }
    }
}

/// The head right before row `seq`, and the rows that the model saw then.
async fn before(state: &ServerState, view: &SessionView, seq: u64) -> Result<(Session, Vec<Event>)> {
    let now = &view.session;
    let mut session = Session::new(now.id, now.tenant.clone(), now.agent, now.environment, now.created_at);
    let mut rows: Vec<Event> = Vec::new();
    while session.last_seq + 1 < seq {
        let page = page(state, view, Some(session.last_seq), Order::Ascending).await?;
        if page.is_empty() {
            return Err(ApiError::internal(format!("the log of session {} has a gap", now.id)));
        }
        for row in page.into_iter().take_while(|row| row.seq < seq) {
            apply(&mut session, &row).map_err(ApiError::internal)?;
            rows.push(row);
        }
        let left_out = rows.partition_point(|row| row.seq < session.context_from_seq);
        rows.drain(..left_out);
    }
    Ok((session, rows))
}

async fn page(state: &ServerState, view: &SessionView, after: Option<u64>, order: Order) -> Result<Vec<Event>> {
    let (tenant, session) = (view.session.tenant.clone(), view.session.id);
    Ok(state.store().events(EventQuery { tenant, session, after, order, limit: MAX_PAGE }).await?)
}
