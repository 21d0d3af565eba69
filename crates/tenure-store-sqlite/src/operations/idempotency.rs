//! Keys that make a request safe to repeat (hazard Z-18): found in the transaction that would
//! otherwise do the work.

use crate::rows;
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::Connection;
use serde_json::Value;
use tenure_core::TenantId;
use tenure_store::{Error, IDEMPOTENCY_MILLIS, Idempotency, Kind, Remembered};

/// Old keys that are forgotten with each new one, so that forgetting keeps up and never takes long.
const FORGET: u32 = 8;

/// What the first request with this key got, if there was one.
pub(crate) fn earlier(work: &Work<'_>, tenant: &TenantId, key: Option<&Idempotency>) -> Result<Option<Value>, Error> {
    key.map_or(Ok(None), |key| find(work.connection, tenant, key))
}

/// The same, for whoever only asks.
pub(crate) fn remembered(
    connection: &Connection,
    tenant: &TenantId,
    key: &Idempotency,
) -> Result<Option<Remembered>, Error> {
    let Some(result) = find(connection, tenant, key)? else { return Ok(None) };
    let has = |name: &str| result.get(name).is_some();
    Ok(Some(match &result {
        Value::Array(_) => Remembered::Inputs,
        _ if has("session") => Remembered::Session(field(&result, "session")?),
        _ if has("agent") => Remembered::Agent(field(&result, "agent")?, field(&result, "version")?),
        _ => Remembered::Environment(field(&result, "environment")?),
    }))
}

fn find(connection: &Connection, tenant: &TenantId, key: &Idempotency) -> Result<Option<Value>, Error> {
    let params = (&tenant.0, &key.scope, &key.key);
    let found =
        rows::first(connection, sql::GET_KEY, params, |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?)))?;
    match found {
        None => Ok(None),
        Some((digest, _)) if digest != key.body_digest => {
            let message = format!("the idempotency key {:?} was used before with another request", key.key);
            Err(Error::new(Kind::IdempotencyMismatch, message))
        }
        Some((_, result)) => serde_json::from_str(&result).map(Some).map_err(|error| unreadable(key, error.into())),
    }
}

/// Remembers what a request got, and forgets old ones.
pub(crate) fn remember(
    work: &Work<'_>,
    tenant: &TenantId,
    key: Option<&Idempotency>,
    shard: u8,
    result: &Value,
) -> Result<(), Error> {
    let Some(key) = key else { return Ok(()) };
    let digest = key.body_digest.as_slice();
    let params = (&tenant.0, &key.scope, &key.key, shard, digest, result.to_string(), work.now.0);
    rows::run(work.connection, sql::NEW_KEY, params)?;
    let before = work.now.0.saturating_sub(rows::number(IDEMPOTENCY_MILLIS));
    rows::run(work.connection, sql::FORGET_KEYS, (before, FORGET))?;
    Ok(())
}

/// A field of a remembered result.
pub(crate) fn field<T: std::str::FromStr>(result: &Value, name: &str) -> Result<T, Error> {
    let text = result.get(name).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::new(Kind::Corrupt, format!("the remembered result of an idempotency key has no {name}")))
}

fn unreadable(key: &Idempotency, error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::caused(
        Kind::Corrupt,
        format!("the remembered result of the idempotency key {:?} cannot be read", key.key),
        error,
    )
}
