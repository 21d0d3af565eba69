//! Agents and environments.

use crate::errors;
use crate::operations::idempotency;
use crate::rows::{self, key};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::{Connection, Row, params};
use serde_json::json;
use tenure_core::{Agent, AgentId, Environment, EnvironmentId, TenantId, Timestamp, stored};
use tenure_store::{CatalogQuery, Error, Idempotency, Kind, MAX_PAGE};

/// The shard of rows that belong to a tenant as a whole.
const SHARD: u8 = 0;

/// Text and time of archiving, as a row keeps them.
fn record(row: &Row<'_>) -> rusqlite::Result<(String, Option<i64>)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn agent_of((body, archived_at): (String, Option<i64>)) -> Result<Agent, Error> {
    let agent = stored::decode_agent(&body).map_err(|error| errors::corrupt("agent", error))?;
    Ok(Agent { archived_at: archived_at.map(Timestamp), ..agent })
}

fn environment_of((body, archived_at): (String, Option<i64>)) -> Result<Environment, Error> {
    let environment = stored::decode_environment(&body).map_err(|error| errors::corrupt("environment", error))?;
    Ok(Environment { archived_at: archived_at.map(Timestamp), ..environment })
}

/// Adds a version of an agent.
pub(crate) fn put_agent(
    work: &mut Work<'_>,
    agent: &Agent,
    key_of_request: Option<&Idempotency>,
) -> Result<Agent, Error> {
    let (tenant, id) = (&agent.tenant, agent.id);
    if let Some(result) = idempotency::earlier(work, tenant, key_of_request)? {
        let (id, version) = (idempotency::field(&result, "agent")?, idempotency::field(&result, "version")?);
        let first = self::agent(work.connection, tenant, id, Some(version))?;
        return first.ok_or_else(|| Error::new(Kind::NotFound, format!("agent {id} version {version} does not exist")));
    }
    let newest: Option<(u32, Option<i64>)> =
        rows::first(work.connection, sql::NEWEST_VERSION, (&tenant.0, key(id.bits())), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let (version, archived_at) = newest.unwrap_or((0, None));
    if archived_at.is_some() {
        return Err(Error::new(Kind::Conflict, format!("agent {id} is archived")));
    }
    if Some(agent.version) != version.checked_add(1) {
        let message = format!("agent {id} is at version {version}, the new one says {}", agent.version);
        return Err(Error::new(Kind::Conflict, message));
    }
    let body = stored::encode_agent(agent);
    let params = params![tenant.0, key(id.bits()), agent.version, SHARD, agent.archived_at.map(|at| at.0), body];
    rows::run(work.connection, sql::NEW_AGENT, params)?;
    let result = json!({ "agent": id.to_string(), "version": agent.version.to_string() });
    idempotency::remember(work, tenant, key_of_request, SHARD, &result)?;
    Ok(agent.clone())
}

/// One version of an agent.
pub(crate) fn agent(
    connection: &Connection,
    tenant: &TenantId,
    id: AgentId,
    version: Option<u32>,
) -> Result<Option<Agent>, Error> {
    let found = match version {
        Some(version) => rows::first(connection, sql::AGENT, (&tenant.0, key(id.bits()), version), record)?,
        None => rows::first(connection, sql::NEWEST_AGENT, (&tenant.0, key(id.bits())), record)?,
    };
    found.map(agent_of).transpose()
}

/// Newest versions of agents.
pub(crate) fn agents(connection: &Connection, query: &CatalogQuery) -> Result<Vec<Agent>, Error> {
    let params = (&query.tenant.0, query.with_archived, query.limit.min(MAX_PAGE), query.below.map(key));
    rows::all(connection, sql::AGENTS, params, record)?.into_iter().map(agent_of).collect()
}

/// All versions of an agent; they are archived together, so that nothing is left out.
pub(crate) fn versions(
    connection: &Connection,
    tenant: &TenantId,
    id: AgentId,
    query: &CatalogQuery,
) -> Result<Vec<Agent>, Error> {
    let params = (
        &tenant.0,
        key(id.bits()),
        query.limit.min(MAX_PAGE),
        query.below.map(|version| i64::try_from(version).unwrap_or(i64::MAX)),
    );
    rows::all(connection, sql::AGENT_VERSIONS, params, record)?.into_iter().map(agent_of).collect()
}

/// Archives all versions of an agent.
pub(crate) fn archive_agent(work: &mut Work<'_>, tenant: &TenantId, id: AgentId) -> Result<Agent, Error> {
    rows::run(work.connection, sql::ARCHIVE_AGENT, (&tenant.0, key(id.bits()), work.now.0))?;
    let newest = agent(work.connection, tenant, id, None)?;
    newest.ok_or_else(|| Error::new(Kind::NotFound, format!("agent {id} does not exist")))
}

/// Adds or replaces an environment.
pub(crate) fn put_environment(
    work: &mut Work<'_>,
    environment: &Environment,
    key_of_request: Option<&Idempotency>,
) -> Result<Environment, Error> {
    let (tenant, id) = (&environment.tenant, environment.id);
    if let Some(result) = idempotency::earlier(work, tenant, key_of_request)? {
        let id = idempotency::field(&result, "environment")?;
        let first = self::environment(work.connection, tenant, id)?;
        return first.ok_or_else(|| Error::new(Kind::NotFound, format!("environment {id} was deleted")));
    }
    let body = stored::encode_environment(environment);
    let params = params![tenant.0, key(id.bits()), SHARD, environment.archived_at.map(|at| at.0), body];
    rows::run(work.connection, sql::PUT_ENVIRONMENT, params)?;
    idempotency::remember(work, tenant, key_of_request, SHARD, &json!({ "environment": id.to_string() }))?;
    Ok(environment.clone())
}

/// An environment.
pub(crate) fn environment(
    connection: &Connection,
    tenant: &TenantId,
    id: EnvironmentId,
) -> Result<Option<Environment>, Error> {
    rows::first(connection, sql::ENVIRONMENT, (&tenant.0, key(id.bits())), record)?.map(environment_of).transpose()
}

/// Environments.
pub(crate) fn environments(connection: &Connection, query: &CatalogQuery) -> Result<Vec<Environment>, Error> {
    let params = (&query.tenant.0, query.with_archived, query.limit.min(MAX_PAGE), query.below.map(key));
    rows::all(connection, sql::ENVIRONMENTS, params, record)?.into_iter().map(environment_of).collect()
}

/// Removes an environment that no live session uses.
pub(crate) fn delete_environment(work: &mut Work<'_>, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error> {
    if rows::first(work.connection, sql::IS_ENVIRONMENT_USED, (key(id.bits()), &tenant.0), |_| Ok(()))?.is_some() {
        return Err(Error::new(Kind::Conflict, format!("environment {id} is used by a session that has not ended")));
    }
    if rows::run(work.connection, sql::REMOVE_ENVIRONMENT, (&tenant.0, key(id.bits())))? == 0 {
        return Err(Error::new(Kind::NotFound, format!("environment {id} does not exist")));
    }
    Ok(())
}
