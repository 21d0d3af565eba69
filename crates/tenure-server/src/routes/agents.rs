//! Agents.

use super::agent_id;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::page::{self, Sieve};
use crate::repeat;
use crate::request::{Created, JsonBody, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::agent::{AgentChange, WireAgent};
use tenure_api::error::Code;
use tenure_api::page::Page;
use tenure_core::{Agent, AgentId, TenantId};
use tenure_store::{CatalogQuery, Kind, Remembered};

type Shared = State<Arc<ServerState>>;

/// Most rows that one filtered page looks through.
const MAX_SCAN: usize = 5_000;

/// `POST /v1/agents`
pub(crate) async fn create(State(state): Shared, caller: Caller, body: JsonBody) -> Result<Json<WireAgent>> {
    if let Some(agent) = made_before(&state, &caller, &body).await? {
        return Ok(Json(WireAgent::of(&agent)));
    }
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
    if let Some(agent) = made_before(&state, &caller, &body).await? {
        return Ok(Json(WireAgent::of(&agent)));
    }
    let change = AgentChange::read(&body.fields()?)?;
    let newest = find(&state, &caller, id, None).await?;
    if newest.archived_at.is_some() {
        return Err(archived(id));
    }
    // Of a request that is sent twice at the same time the version is older by the one that the other made:
    // the store knows its key.
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
    let catalog = Catalog::read(&caller, &query)?;
    let takes = |agent: &Agent| catalog.created.takes(agent.created_at);
    let read = async |below, limit| Ok(state.store().agents(catalog.rows(below, limit)).await?);
    catalog.page(&takes, |agent| agent.id.bits(), WireAgent::of, read).await.map(Json)
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
    let catalog = Catalog::read(&caller, &query)?;
    // Of a version it counts when it was made, not when the first one was.
    let takes = |agent: &Agent| catalog.created.takes(agent.updated_at);
    let read = async |below, limit| {
        let rows = catalog.rows(below, limit);
        Ok(state.store().agent_versions(&caller.tenant, id, rows).await?)
    };
    catalog.page(&takes, |agent| u128::from(agent.version), WireAgent::of, read).await.map(Json)
}

/// What a list of agents or environments is asked for.
pub(crate) struct Catalog {
    tenant: TenantId,
    with_archived: bool,
    pub(crate) created: Created,
    below: Option<u128>,
    limit: usize,
}

impl Catalog {
    pub(crate) fn read(caller: &Caller, query: &Query) -> Result<Self> {
        Ok(Self {
            tenant: caller.tenant.clone(),
            with_archived: query.flag("include_archived")?,
            created: Created::read(query)?,
            below: page::cursor(query)?,
            limit: page::limit(query)?,
        })
    }

    /// Rows to read of the store.
    pub(crate) fn rows(&self, below: Option<u128>, limit: usize) -> CatalogQuery {
        CatalogQuery { tenant: self.tenant.clone(), with_archived: self.with_archived, below, limit }
    }

    /// The page that is shown.
    pub(crate) async fn page<R, W, F: Future<Output = Result<Vec<R>>>>(
        &self,
        takes: &(dyn Fn(&R) -> bool + Sync),
        position: impl Fn(&R) -> u128,
        show: impl Fn(&R) -> W,
        read: impl Fn(Option<u128>, usize) -> F,
    ) -> Result<Page<W>> {
        let sieve = Sieve { is_open: self.created.is_all(), max_scan: MAX_SCAN, takes };
        let rows = page::walk(self.limit, self.below, sieve, position, read).await?;
        Ok(Page { data: rows.data.iter().map(show).collect(), next_page: rows.next_page })
    }
}

/// An agent of the caller.
pub(crate) async fn find(state: &ServerState, caller: &Caller, id: AgentId, version: Option<u32>) -> Result<Agent> {
    let agent = state.store().agent(&caller.tenant, id, version).await?;
    agent.ok_or_else(|| match version {
        Some(version) => ApiError::new(Code::AgentNotFound, format!("there is no version {version} of agent {id}")),
        None => ApiError::new(Code::AgentNotFound, format!("there is no agent {id}")),
    })
}

/// The version that an earlier request with the same key made.
async fn made_before(state: &ServerState, caller: &Caller, body: &JsonBody) -> Result<Option<Agent>> {
    match repeat::earlier(state, caller, body.idempotency(caller).as_ref()).await? {
        Some(Remembered::Agent(id, version)) => find(state, caller, id, Some(version)).await.map(Some),
        Some(Remembered::Session(_) | Remembered::Inputs | Remembered::Environment(_)) | None => Ok(None),
    }
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
    if change.is_external(before) {
        return Ok(true);
    }
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
