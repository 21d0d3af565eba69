//! Agents.

use super::agent_id;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::page;
use crate::request::{JsonBody, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::agent::{AgentChange, WireAgent};
use tenure_api::error::Code;
use tenure_api::page::Page;
use tenure_core::{Agent, AgentId};
use tenure_store::{CatalogQuery, Kind};

type Shared = State<Arc<ServerState>>;

/// `POST /v1/agents`
pub(crate) async fn create(State(state): Shared, caller: Caller, body: JsonBody) -> Result<Json<WireAgent>> {
    let change = AgentChange::read(&body.fields()?)?;
    let is_priced = check_models(&state, &change, None)?;
    let id = AgentId::from_bits(state.new_bits());
    let mut agent = change.create(id, caller.tenant.clone(), state.store().now().await?)?;
    if !is_priced {
        AgentChange::without_money(&mut agent);
    }
    let agent = state.store().put_agent(agent, body.idempotency(&caller)).await?;
    Ok(Json(WireAgent::of(&agent)))
}

/// `GET /v1/agents/{agent_id}`
pub(crate) async fn get(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<WireAgent>> {
    let version = query.number("version", 1, u64::from(u32::MAX))?;
    let version = version.map(|version| u32::try_from(version).expect("not above the largest version"));
    find(&state, &caller, agent_id(&id)?, version).await.map(|agent| Json(WireAgent::of(&agent)))
}

/// `POST /v1/agents/{agent_id}`: a new version.
pub(crate) async fn update(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireAgent>> {
    let id = agent_id(&id)?;
    let change = AgentChange::read(&body.fields()?)?;
    let newest = find(&state, &caller, id, None).await?;
    if newest.archived_at.is_some() {
        return Err(archived(id));
    }
    // Of a repeated request the version is older by the one that it made: the store knows its key.
    let base = match (change.version, body.idempotency(&caller)) {
        (Some(version), Some(_)) if version < u64::from(newest.version) => {
            let version = u32::try_from(version).expect("below the newest version");
            find(&state, &caller, id, Some(version)).await?
        }
        (Some(version), _) if version != u64::from(newest.version) => {
            let message = format!("version: agent {id} is at version {}, not {version}", newest.version);
            return Err(ApiError::new(Code::VersionConflict, message));
        }
        _ => newest,
    };
    let is_priced = check_models(&state, &change, Some(&base))?;
    let mut agent = base;
    change.apply(&mut agent)?;
    if !is_priced {
        AgentChange::without_money(&mut agent);
    }
    agent.version += 1;
    agent.updated_at = state.store().now().await?;
    match state.store().put_agent(agent, body.idempotency(&caller)).await {
        Ok(agent) => Ok(Json(WireAgent::of(&agent))),
        Err(error) if error.kind == Kind::Conflict => Err(ApiError::new(Code::VersionConflict, error.message)),
        Err(error) => Err(error.into()),
    }
}

/// `POST /v1/agents/{agent_id}/archive`
pub(crate) async fn archive(State(state): Shared, caller: Caller, Path(id): Path<String>) -> Result<Json<WireAgent>> {
    let id = agent_id(&id)?;
    let agent = state.store().archive_agent(&caller.tenant, id).await.map_err(|error| missing(error, id))?;
    Ok(Json(WireAgent::of(&agent)))
}

/// `GET /v1/agents`
pub(crate) async fn list(State(state): Shared, caller: Caller, query: Query) -> Result<Json<Page<WireAgent>>> {
    let (catalog, limit) = catalog(&caller, &query)?;
    let rows = state.store().agents(catalog).await?;
    Ok(Json(page::page(rows, limit, |agent| agent.id.bits(), WireAgent::of)))
}

/// `GET /v1/agents/{agent_id}/versions`
pub(crate) async fn versions(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Page<WireAgent>>> {
    let id = agent_id(&id)?;
    find(&state, &caller, id, None).await?;
    let (catalog, limit) = catalog(&caller, &query)?;
    let rows = state.store().agent_versions(&caller.tenant, id, catalog).await?;
    Ok(Json(page::page(rows, limit, |agent| u128::from(agent.version), WireAgent::of)))
}

/// The query of a list of agents or environments; reads one row more than it shows.
pub(crate) fn catalog(caller: &Caller, query: &Query) -> Result<(CatalogQuery, usize)> {
    let limit = page::limit(query)?;
    // A full page has one row less, so that the row after it can be read too.
    let limit = limit.min(tenure_store::MAX_PAGE - 1);
    let catalog = CatalogQuery {
        tenant: caller.tenant.clone(),
        with_archived: query.flag("include_archived")?,
        below: page::cursor(query)?,
        limit: limit + 1,
    };
    Ok((catalog, limit))
}

/// An agent of the caller.
pub(crate) async fn find(state: &ServerState, caller: &Caller, id: AgentId, version: Option<u32>) -> Result<Agent> {
    let agent = state.store().agent(&caller.tenant, id, version).await?;
    agent.ok_or_else(|| match version {
        Some(version) => ApiError::new(Code::AgentNotFound, format!("there is no version {version} of agent {id}")),
        None => ApiError::new(Code::AgentNotFound, format!("there is no agent {id}")),
    })
}

pub(crate) fn archived(id: AgentId) -> ApiError {
    ApiError::new(Code::AgentArchived, format!("agent {id} is archived"))
}

fn missing(error: tenure_store::Error, id: AgentId) -> ApiError {
    if error.kind == Kind::NotFound {
        return ApiError::new(Code::AgentNotFound, format!("there is no agent {id}"));
    }
    error.into()
}

/// Checks the models of a change; says whether a limit of money can bind.
fn check_models(state: &ServerState, change: &AgentChange, before: Option<&Agent>) -> Result<bool> {
    let mut is_priced = true;
    for (path, model) in change.models() {
        let known = state
            .config
            .models
            .check(&model)
            .map_err(|reason| ApiError::new(Code::UnknownModel, format!("{path}: {reason}")))?;
        is_priced &= known.has_price;
    }
    if let (Some(before), None) = (before, &change.model) {
        is_priced &= state.config.models.check(&before.model).is_ok_and(|known| known.has_price);
    }
    if !is_priced && change.limits_money() {
        return Err(ApiError::new(
            Code::ModelWithoutPrice,
            "limits.cost_usd: the price of the model is not known, so this limit could not bind",
        ));
    }
    Ok(is_priced)
}
