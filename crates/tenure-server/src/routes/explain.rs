//! Why a session does not run now (promise P20).

use super::{find_session, session_id};
use crate::error::Result;
use crate::keys::Caller;
use crate::request::Path;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::json;
use std::sync::Arc;
use tenure_api::condition;
use tenure_api::explain::{WireExplanation, WireUnblock};
use tenure_api::limits::dollars;
use tenure_api::time;
use tenure_core::condition::Stage;
use tenure_core::{Phase, Position, Session, Timestamp, WaitKind, Which, explain};
use tenure_store::{ConditionView, Node, SessionView, State as Queue};

/// `GET /v1/sessions/{session_id}/explain`
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WireExplanation>> {
    let view = find_session(&state, &caller, session_id(&id)?).await?;
    let nodes =
        if matches!(view.state, Queue::Queued | Queue::Leased) { state.store().nodes().await? } else { Vec::new() };
    let mut wire = explain_view(&view, &nodes);
    if let Some(WaitKind::Budget { which }) = view.session.wait.as_ref().map(|wait| &wait.kind) {
        raise_limit(&view.session, *which, state.store().now().await?, &mut wire);
    }
    if let Some(id) = view.session.waits_on().filter(|_| view.state == Queue::Parked) {
        let views = state.store().conditions(Some(caller.tenant.clone())).await?;
        if let Some(condition) = views.iter().find(|view| view.condition.id == id) {
            name_condition(condition, &mut wire);
        }
    }
    if let Some(why) = view.node.filter(|_| view.state == Queue::Leased).and_then(|node| state.previews.silence(node)) {
        wire.text.push_str(&format!(" Its previews do not come here: {why}; its events do."));
    }
    Ok(Json(wire))
}

/// Names the shared condition, and what ends it.
fn name_condition(view: &ConditionView, wire: &mut WireExplanation) {
    let condition = &view.condition;
    let others = match view.waiting {
        0 | 1 => String::new(),
        count => format!(" {} other sessions wait too.", count - 1),
    };
    let said = if condition.message.is_empty() {
        String::new()
    } else {
        format!(" It said: {}.", condition.message.trim_end_matches('.'))
    };
    wire.text = format!("{}{said}{others} Everything is kept.", condition::sentence(condition));
    wire.until = (condition.stage == Stage::Open).then(|| time::write(condition.probe_at));
    for (text, path) in [("have one session try now", "probe"), ("let all go, because it is mended", "clear")] {
        wire.unblock.push(WireUnblock {
            text: text.into(),
            method: "POST".into(),
            path: format!("/v1/conditions/{}/{path}", condition.id),
            body: json!({}),
        });
    }
}

/// Names a limit that would do, so that the request can be sent as it is: twice the one that is
/// reached, or twice what was used beyond it.
fn raise_limit(session: &Session, which: Which, now: Timestamp, wire: &mut WireExplanation) {
    let (budget, limits) = (&session.budget, session.budget.limits);
    let twice = |used: u64, limit: Option<u64>| limit.unwrap_or_default().max(used).max(1).saturating_mul(2);
    let raised = match which {
        Which::Steps => json!(twice(budget.steps, limits.steps)),
        Which::Tokens => json!(twice(budget.tokens(), limits.tokens)),
        Which::Wall => json!(twice(now.since(session.created_at), limits.wall).div_ceil(1_000)),
        Which::Failures => json!(twice(budget.failures, limits.failures)),
        Which::IdenticalCalls => json!(twice(u64::from(session.repeats.calls), limits.identical_calls)),
        // The core says what to do: no higher limit would bind.
        Which::Price => return,
        Which::Cost => json!(dollars(twice(budget.cost_usd_micros(), limits.cost_usd_micros))),
    };
    for unblock in wire.unblock.iter_mut().filter(|unblock| unblock.path.ends_with("/budget")) {
        unblock.body = json!({which.name(): raised});
    }
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
            wire.text = match (&view.session.queue, is_alone) {
                (Some(queue), _) => format!("Runnable: {before}, in the queue {queue} of external loops."),
                (None, true) => "Runnable, but no worker is running.".to_owned(),
                (None, false) => format!("Runnable: {before}."),
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
