//! Keys that make a request safe to repeat (hazard Z-18): found in the transaction that would
//! otherwise do the work. Two that come at once meet at the key of the table, and the second one looks
//! again.

use crate::link::Link;
use crate::params::{number, params};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use aws_lc_rs::digest::{Context, SHA256};
use serde_json::Value;
use tenure_core::TenantId;
use tenure_store::{Error, IDEMPOTENCY_MILLIS, Idempotency, Kind, Remembered};

/// Old keys that are forgotten with each new one, so that forgetting keeps up and never takes long.
const FORGET: i64 = 8;

/// What the first request with this key got, if there was one.
pub(crate) async fn earlier(
    link: &Link,
    tenant: &TenantId,
    key: Option<&Idempotency>,
) -> Result<Option<Value>, Trouble> {
    let Some(key) = key else { return Ok(None) };
    let digest = digest(tenant, key);
    let Some(row) = link.first(sql::GET_KEY, params![shard(&digest), digest]).await? else { return Ok(None) };
    if row.get::<_, &[u8]>(0) != key.body_digest {
        let message = format!("the idempotency key {:?} was used before with another request", key.key);
        return Err(Error::new(Kind::IdempotencyMismatch, message).into());
    }
    let result = serde_json::from_str(row.get(1)).map_err(|error| {
        let message = format!("the remembered result of the idempotency key {:?} cannot be read", key.key);
        Error::caused(Kind::Corrupt, message, error)
    })?;
    Ok(Some(result))
}

/// The same, for whoever only asks.
pub(crate) async fn remembered(
    link: &Link,
    tenant: &TenantId,
    key: &Idempotency,
) -> Result<Option<Remembered>, Trouble> {
    let Some(result) = earlier(link, tenant, Some(key)).await? else { return Ok(None) };
    let has = |name: &str| result.get(name).is_some();
    Ok(Some(match &result {
        Value::Array(_) => Remembered::Inputs,
        _ if has("session") => Remembered::Session(field(&result, "session")?),
        _ if has("agent") => Remembered::Agent(field(&result, "agent")?, field(&result, "version")?),
        _ => Remembered::Environment(field(&result, "environment")?),
    }))
}

/// Remembers what a request got, and forgets old ones.
pub(crate) async fn remember(
    tx: &Tx,
    tenant: &TenantId,
    key: Option<&Idempotency>,
    result: &Value,
) -> Result<(), Trouble> {
    let Some(key) = key else { return Ok(()) };
    let digest = digest(tenant, key);
    let shard = shard(&digest);
    let body = key.body_digest.to_vec();
    tx.link.run(sql::NEW_KEY, params![shard, digest, body, result.to_string(), tx.now.0]).await?;
    let before = tx.now.0.saturating_sub(number(IDEMPOTENCY_MILLIS));
    tx.link.run(sql::FORGET_KEYS, params![shard, before, FORGET]).await?;
    Ok(())
}

/// A field of a remembered result.
pub(crate) fn field<T: std::str::FromStr>(result: &Value, name: &str) -> Result<T, Error> {
    let text = result.get(name).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::new(Kind::Corrupt, format!("the remembered result of an idempotency key has no {name}")))
}

/// Names tenant, scope and key together, whatever bytes they hold.
fn digest(tenant: &TenantId, key: &Idempotency) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    for part in [&tenant.0, &key.scope, &key.key] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref().to_vec()
}

fn shard(digest: &[u8]) -> i16 {
    i16::from(digest[0])
}
