//! The nodes of the installation.

use crate::error::Result;
use crate::keys::Caller;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::explain::WireNode;
use tenure_api::page::Rows;
use tenure_api::time;

/// `GET /v1/nodes`
pub(crate) async fn list(State(state): State<Arc<ServerState>>, _: Caller) -> Result<Json<Rows<WireNode>>> {
    let nodes = state.store().nodes().await?;
    let show = |node: &tenure_store::Node| WireNode {
        id: node.id.to_string(),
        label: node.label.clone(),
        address: node.address.clone(),
        beat_at: time::write(node.beat_at),
        is_dead: node.is_dead,
        leases: node.leases,
    };
    Ok(Json(Rows { data: nodes.iter().map(show).collect() }))
}
