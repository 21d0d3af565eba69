//! Why a session does not run now (promise P20).

use super::{find_session, session_id};
use crate::error::Result;
use crate::keys::Caller;
use crate::request::Path;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::explain::WireExplanation;
use tenure_api::time;
use tenure_core::{Phase, Position, explain};
use tenure_store::{Node, SessionView, State as Queue};

/// `GET /v1/sessions/{session_id}/explain`
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WireExplanation>> {
    let view = find_session(&state, &caller, session_id(&id)?).await?;
    let nodes =
        if matches!(view.state, Queue::Queued | Queue::Leased) { state.store().nodes().await? } else { Vec::new() };
    Ok(Json(explain_view(&view, &nodes)))
}

/// The core's sentence about the head, with what only the store knows.
fn explain_view(view: &SessionView, nodes: &[Node]) -> WireExplanation {
    let session = &view.session;
    let mut wire = WireExplanation::of(session.id, &explain(session));
    wire.inbox_len = view.inbox_len;
    wire.node = view.node.map(|node| node.to_string());
    wire.queue_position = view.queue_position;
    match view.state {
        Queue::Leased => {
            let doing = match session.position {
                Position::Calling { .. } => "calls the model",
                Position::Model => "is about to call the model",
                Position::Tools => "runs a tool",
                Position::Idle | Position::Ended(_) => "takes its inputs",
            };
            let on = nodes
                .iter()
                .find(|node| Some(node.id) == view.node)
                .map_or_else(String::new, |node| format!(" on {}", node.label));
            wire.holds_worker = true;
            wire.phase = Phase::Working.name().into();
            wire.kind = Phase::Working.name().into();
            wire.text = format!("Working: it {doing}{on}.");
            wire.since = Some(time::write(view.state_since));
            wire.until = None;
            wire.unblock.clear();
        }
        Queue::Queued => {
            let before = match view.queue_position {
                None | Some(0) => "it is next in line".to_owned(),
                Some(1) => "one session is queued before it".to_owned(),
                Some(count) => format!("{count} sessions are queued before it"),
            };
            let is_alone = nodes.iter().all(|node| node.is_dead);
            wire.phase = Phase::Queued.name().into();
            wire.kind = Phase::Queued.name().into();
            wire.text = match is_alone {
                true => "Runnable, but no worker is running.".to_owned(),
                false => format!("Runnable: {before}."),
            };
            wire.since = Some(time::write(view.state_since));
            wire.until = None;
            wire.unblock.clear();
        }
        Queue::Parked | Queue::Ended => {
            wire.since = wire.since.or_else(|| Some(time::write(view.state_since)));
        }
    }
    wire
}
