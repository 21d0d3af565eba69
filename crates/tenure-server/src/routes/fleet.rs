//! How a fleet is, in a few numbers.

use crate::error::Result;
use crate::keys::Caller;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_api::time;
use tenure_core::Phase;
use tenure_store::{Order, SessionQuery};

/// `GET /v1/fleet`
pub(crate) async fn get(State(state): State<Arc<ServerState>>, caller: Caller) -> Result<Json<Value>> {
    let phases = state.store().phases(&caller.tenant).await?;
    let nodes = state.store().nodes().await?;
    let alive = nodes.iter().filter(|node| !node.is_dead);
    let conditions = state.store().conditions(Some(caller.tenant.clone())).await?;
    Ok(Json(json!({
        "type": "fleet",
        "phases": phases,
        "queued_since": oldest_queued(&state, &caller).await?,
        "nodes": {
            "live": alive.clone().count(),
            "dead": nodes.len() - alive.clone().count(),
            "leases": alive.map(|node| node.leases).sum::<u64>(),
        },
        "conditions": conditions.len(),
    })))
}

/// Since when the oldest session of the tenant waits for a worker, as far as the first rows say.
async fn oldest_queued(state: &ServerState, caller: &Caller) -> Result<Option<String>> {
    let query = SessionQuery {
        tenant: caller.tenant.clone(),
        agent: None,
        phases: vec![Phase::Queued],
        with_archived: true,
        created_from: None,
        created_before: None,
        after: None,
        order: Order::Ascending,
        limit: 100,
    };
    let views = state.store().sessions(query).await?;
    Ok(views.iter().map(|view| view.state_since).min().map(time::write))
}
