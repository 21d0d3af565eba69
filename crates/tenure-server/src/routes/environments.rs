//! Environments.

use super::agents::Catalog;
use super::environment_id;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::repeat;
use crate::request::{JsonBody, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::environment::{EnvironmentChange, WireEnvironment};
use tenure_api::error::Code;
use tenure_api::page::{Deleted, Page};
use tenure_api::scope::Scope;
use tenure_core::{DriverName, Environment, EnvironmentId, Network};
use tenure_store::{Kind, Remembered};

type Shared = State<Arc<ServerState>>;

/// `POST /v1/environments`
pub(crate) async fn create(State(state): Shared, caller: Caller, body: JsonBody) -> Result<Json<WireEnvironment>> {
    if let Some(environment) = made_before(&state, &caller, &body).await? {
        return Ok(Json(WireEnvironment::of(&environment)));
    }
    let change = EnvironmentChange::read(&body.fields()?)?;
    let id = EnvironmentId::from_bits(state.new_bits());
    let environment = change.create(id, caller.tenant.clone(), state.store().now().await?)?;
    check_isolation(&caller, None, &environment)?;
    let environment = state.store().put_environment(environment, body.idempotency(&caller)).await?;
    Ok(Json(WireEnvironment::of(&environment)))
}

/// `GET /v1/environments/{environment_id}`
pub(crate) async fn get(State(state): Shared, caller: Caller, Path(id): Path<String>) -> Result<Json<WireEnvironment>> {
    let environment = find(&state, &caller, environment_id(&id)?).await?;
    Ok(Json(WireEnvironment::of(&environment)))
}

/// `POST /v1/environments/{environment_id}`
pub(crate) async fn update(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireEnvironment>> {
    if let Some(environment) = made_before(&state, &caller, &body).await? {
        return Ok(Json(WireEnvironment::of(&environment)));
    }
    let change = EnvironmentChange::read(&body.fields()?)?;
    let mut environment = find(&state, &caller, environment_id(&id)?).await?;
    if environment.archived_at.is_some() {
        return Err(archived(environment.id));
    }
    let before = environment.clone();
    change.apply(&mut environment)?;
    check_isolation(&caller, Some(&before), &environment)?;
    environment.updated_at = state.store().now().await?;
    let environment = state.store().put_environment(environment, body.idempotency(&caller)).await?;
    Ok(Json(WireEnvironment::of(&environment)))
}

/// `POST /v1/environments/{environment_id}/archive`
pub(crate) async fn archive(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WireEnvironment>> {
    let mut environment = find(&state, &caller, environment_id(&id)?).await?;
    if environment.archived_at.is_none() {
        let now = state.store().now().await?;
        environment.archived_at = Some(now);
        environment.updated_at = now;
        environment = state.store().put_environment(environment, None).await?;
    }
    Ok(Json(WireEnvironment::of(&environment)))
}

/// `DELETE /v1/environments/{environment_id}`
pub(crate) async fn delete(State(state): Shared, caller: Caller, Path(id): Path<String>) -> Result<Json<Deleted>> {
    let id = environment_id(&id)?;
    match state.store().delete_environment(&caller.tenant, id).await {
        Ok(()) => Ok(Json(Deleted { id: id.to_string(), kind: "environment_deleted".into(), kept_events: None })),
        Err(error) if error.kind == Kind::NotFound => Err(missing(id)),
        Err(error) if error.kind == Kind::Conflict => Err(ApiError::new(Code::EnvironmentInUse, error.message)),
        Err(error) => Err(error.into()),
    }
}

/// `GET /v1/environments`
pub(crate) async fn list(State(state): Shared, caller: Caller, query: Query) -> Result<Json<Page<WireEnvironment>>> {
    let catalog = Catalog::read(&caller, &query)?;
    let takes = |environment: &Environment| catalog.created.takes(environment.created_at);
    let read = async |below, limit| Ok(state.store().environments(catalog.rows(below, limit)).await?);
    catalog.page(&takes, |environment| environment.id.bits(), WireEnvironment::of, read).await.map(Json)
}

/// An environment of the caller.
pub(crate) async fn find(state: &ServerState, caller: &Caller, id: EnvironmentId) -> Result<Environment> {
    state.store().environment(&caller.tenant, id).await?.ok_or_else(|| missing(id))
}

/// The environment that an earlier request with the same key made or changed, as it is now.
async fn made_before(state: &ServerState, caller: &Caller, body: &JsonBody) -> Result<Option<Environment>> {
    match repeat::earlier(state, caller, body.idempotency(caller).as_ref()).await? {
        Some(Remembered::Environment(id)) => find(state, caller, id).await.map(Some),
        Some(Remembered::Session(_) | Remembered::Inputs | Remembered::Agent(..)) | None => Ok(None),
    }
}

/// A client may not weaken what holds its agents: that gives commands rights of the host
/// (hazard Z-06).
fn check_isolation(caller: &Caller, before: Option<&Environment>, after: &Environment) -> Result<()> {
    let of = |environment: &Environment| (environment.driver, environment.network);
    let is_default = of(after) == (DriverName::default(), Network::default());
    if is_default || before.is_some_and(|before| of(before) == of(after)) {
        return Ok(());
    }
    caller.needs(Scope::Person, "another driver than namespace, or the network of the host,")
}

pub(crate) fn archived(id: EnvironmentId) -> ApiError {
    ApiError::new(Code::EnvironmentArchived, format!("environment {id} is archived"))
}

fn missing(id: EnvironmentId) -> ApiError {
    ApiError::new(Code::EnvironmentNotFound, format!("there is no environment {id}"))
}
