//! Agents and environments.

use crate::link::Link;
use crate::operations::idempotency;
use crate::params::{key, limit, params, tenant_text};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::{Trouble, corrupt};
use serde_json::json;
use tenure_core::{Agent, AgentId, Environment, EnvironmentId, TenantId, Timestamp, stored};
use tenure_store::{CatalogQuery, Error, Idempotency, Kind, MAX_PAGE};
use tokio_postgres::Row;

fn agent_of(row: &Row) -> Result<Agent, Trouble> {
    let agent = stored::decode_agent(row.get(0)).map_err(|error| corrupt("agent", error))?;
    Ok(Agent { archived_at: row.get::<_, Option<i64>>(1).map(Timestamp), ..agent })
}

fn environment_of(row: &Row) -> Result<Environment, Trouble> {
    let environment = stored::decode_environment(row.get(0)).map_err(|error| corrupt("environment", error))?;
    Ok(Environment { archived_at: row.get::<_, Option<i64>>(1).map(Timestamp), ..environment })
}

/// Adds a version of an agent.
pub(crate) async fn put_agent(
    tx: &mut Tx,
    agent: &Agent,
    key_of_request: Option<&Idempotency>,
) -> Result<Agent, Trouble> {
    let (tenant, id) = (&agent.tenant, agent.id);
    if let Some(result) = idempotency::earlier(&tx.link, tenant, key_of_request).await? {
        let (id, version) = (idempotency::field(&result, "agent")?, idempotency::field(&result, "version")?);
        let first = self::agent(&tx.link, tenant, id, Some(version)).await?;
        let gone = || Error::new(Kind::NotFound, format!("agent {id} version {version} does not exist"));
        return Ok(first.ok_or_else(gone)?);
    }
    let body = stored::encode_agent(agent);
    let newest = tx.link.first(sql::NEWEST_VERSION, params![tenant_text(tenant), key(id.bits())]).await?;
    let version = newest.as_ref().map_or(0, |row| row.get::<_, i64>(0));
    if newest.as_ref().is_some_and(|row| row.get::<_, Option<i64>>(1).is_some()) {
        return Err(Error::new(Kind::Conflict, format!("agent {id} is archived")).into());
    }
    if tx.may_repeat && newest.is_some_and(|row| row.get::<_, &str>(2) == body) {
        // The reply of an earlier try was lost.
        return Ok(agent.clone());
    }
    if i64::from(agent.version) != version + 1 {
        let message = format!("agent {id} is at version {version}, the new one says {}", agent.version);
        return Err(Error::new(Kind::Conflict, message).into());
    }
    let archived_at = agent.archived_at.map(|at| at.0);
    let row = params![tenant_text(tenant), key(id.bits()), i64::from(agent.version), archived_at, body];
    tx.link.run(sql::NEW_AGENT, row).await?;
    let result = json!({ "agent": id.to_string(), "version": agent.version.to_string() });
    idempotency::remember(tx, tenant, key_of_request, &result).await?;
    Ok(agent.clone())
}

/// One version of an agent.
pub(crate) async fn agent(
    link: &Link,
    tenant: &TenantId,
    id: AgentId,
    version: Option<u32>,
) -> Result<Option<Agent>, Trouble> {
    let (tenant, id) = (tenant_text(tenant), key(id.bits()));
    let row = match version {
        Some(version) => link.first(sql::AGENT, params![tenant, id, i64::from(version)]).await?,
        None => link.first(sql::NEWEST_AGENT, params![tenant, id]).await?,
    };
    row.map(|row| agent_of(&row)).transpose()
}

/// Newest versions of agents.
pub(crate) async fn agents(link: &Link, query: &CatalogQuery) -> Result<Vec<Agent>, Trouble> {
    let most = limit(query.limit.min(MAX_PAGE));
    let params = params![tenant_text(&query.tenant), query.with_archived, most, query.below.map(key)];
    link.rows(sql::AGENTS, params).await?.iter().map(agent_of).collect()
}

/// All versions of an agent; they are archived together, so that nothing is left out.
pub(crate) async fn versions(
    link: &Link,
    tenant: &TenantId,
    id: AgentId,
    query: &CatalogQuery,
) -> Result<Vec<Agent>, Trouble> {
    let below = query.below.map(|version| i64::try_from(version).unwrap_or(i64::MAX));
    let params = params![tenant_text(tenant), key(id.bits()), limit(query.limit.min(MAX_PAGE)), below];
    link.rows(sql::AGENT_VERSIONS, params).await?.iter().map(agent_of).collect()
}

/// Archives all versions of an agent.
pub(crate) async fn archive_agent(tx: &mut Tx, tenant: &TenantId, id: AgentId) -> Result<Agent, Trouble> {
    tx.link.run(sql::ARCHIVE_AGENT, params![tenant_text(tenant), key(id.bits()), tx.now.0]).await?;
    let newest = agent(&tx.link, tenant, id, None).await?;
    Ok(newest.ok_or_else(|| Error::new(Kind::NotFound, format!("agent {id} does not exist")))?)
}

/// Adds or replaces an environment.
pub(crate) async fn put_environment(
    tx: &mut Tx,
    environment: &Environment,
    key_of_request: Option<&Idempotency>,
) -> Result<Environment, Trouble> {
    let (tenant, id) = (&environment.tenant, environment.id);
    if let Some(result) = idempotency::earlier(&tx.link, tenant, key_of_request).await? {
        let id = idempotency::field(&result, "environment")?;
        let first = self::environment(&tx.link, tenant, id).await?;
        return Ok(first.ok_or_else(|| Error::new(Kind::NotFound, format!("environment {id} was deleted")))?);
    }
    let archived_at = environment.archived_at.map(|at| at.0);
    let body = stored::encode_environment(environment);
    tx.link.run(sql::PUT_ENVIRONMENT, params![tenant_text(tenant), key(id.bits()), archived_at, body]).await?;
    idempotency::remember(tx, tenant, key_of_request, &json!({ "environment": id.to_string() })).await?;
    Ok(environment.clone())
}

/// An environment.
pub(crate) async fn environment(
    link: &Link,
    tenant: &TenantId,
    id: EnvironmentId,
) -> Result<Option<Environment>, Trouble> {
    let row = link.first(sql::ENVIRONMENT, params![tenant_text(tenant), key(id.bits())]).await?;
    row.map(|row| environment_of(&row)).transpose()
}

/// Environments.
pub(crate) async fn environments(link: &Link, query: &CatalogQuery) -> Result<Vec<Environment>, Trouble> {
    let most = limit(query.limit.min(MAX_PAGE));
    let params = params![tenant_text(&query.tenant), query.with_archived, most, query.below.map(key)];
    link.rows(sql::ENVIRONMENTS, params).await?.iter().map(environment_of).collect()
}

/// Removes an environment that no live session uses.
pub(crate) async fn delete_environment(tx: &mut Tx, tenant: &TenantId, id: EnvironmentId) -> Result<(), Trouble> {
    if tx.link.first(sql::IS_ENVIRONMENT_USED, params![key(id.bits()), tenant_text(tenant)]).await?.is_some() {
        let message = format!("environment {id} is used by a session that has not ended");
        return Err(Error::new(Kind::Conflict, message).into());
    }
    let removed = tx.link.run(sql::REMOVE_ENVIRONMENT, params![tenant_text(tenant), key(id.bits())]).await?;
    if removed == 0 && !tx.may_repeat {
        return Err(Error::new(Kind::NotFound, format!("environment {id} does not exist")).into());
    }
    Ok(())
}
