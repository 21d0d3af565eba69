//! Conditions of upstreams: what is known, and what operators do about it.

use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::{JsonBody, Path};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::condition::WireCondition;
use tenure_api::error::Code;
use tenure_api::page::Rows;
use tenure_core::ConditionId;
use tenure_core::condition::{Condition, Stage};
use tenure_store::ConditionView;

type Shared = State<Arc<ServerState>>;

/// `GET /v1/conditions`: those that are over are left out.
pub(crate) async fn list(State(state): Shared, caller: Caller) -> Result<Json<Rows<WireCondition>>> {
    let views = state.store().conditions(Some(caller.tenant.clone())).await?;
    let shown = views.iter().filter(|view| view.condition.stage != Stage::Over);
    Ok(Json(Rows { data: shown.map(show).collect() }))
}

/// `POST /v1/conditions/{condition_id}/probe`: one session tries at once.
pub(crate) async fn probe(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: JsonBody,
) -> Result<Json<WireCondition>> {
    let id = condition_id(&id)?;
    let found = state.store().hasten_condition(id).await?;
    reply(&state, &caller, id, found).await
}

/// `POST /v1/conditions/{condition_id}/clear`: those who wait are let go, one after the other.
pub(crate) async fn clear(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: JsonBody,
) -> Result<Json<WireCondition>> {
    let id = condition_id(&id)?;
    let found = state.store().clear_condition(id).await?;
    reply(&state, &caller, id, found).await
}

async fn reply(
    state: &ServerState,
    caller: &Caller,
    id: ConditionId,
    found: Option<Condition>,
) -> Result<Json<WireCondition>> {
    let condition = found.ok_or_else(|| missing(&id.to_string()))?;
    let views = state.store().conditions(Some(caller.tenant.clone())).await?;
    let waiting = views.iter().find(|view| view.condition.id == id).map_or(0, |view| view.waiting);
    Ok(Json(WireCondition::of(&condition, waiting)))
}

fn show(view: &ConditionView) -> WireCondition {
    WireCondition::of(&view.condition, view.waiting)
}

fn condition_id(text: &str) -> Result<ConditionId> {
    text.parse().map_err(|_| missing(text))
}

fn missing(id: &str) -> ApiError {
    ApiError::new(Code::ConditionNotFound, format!("there is no condition {id:?}"))
}
