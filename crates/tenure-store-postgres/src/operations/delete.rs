//! Removes a session: its head at once, its log in small transactions that hold nobody up.

use crate::operations::lineage;
use crate::params::{key, params, tenant_text};
use crate::rows::shard;
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use tenure_core::{SessionId, TenantId};
use tenure_store::{Error, Kind, Removed};

/// Rows of a log that one transaction removes.
const BATCH: i64 = 1_000;

/// Removes head and inbox; from here on the session does not exist. Also says of which sessions rows are to be
/// removed now: its own, and those of ancestors that are gone already and whose rows it alone needed.
pub(crate) async fn head(tx: &mut Tx, tenant: &TenantId, id: SessionId) -> Result<(Removed, Vec<SessionId>), Trouble> {
    let (shard, session) = (shard(id), key(id.bits()));
    match tx.link.first(sql::LOCK_HEAD, params![shard, session, tenant_text(tenant)]).await? {
        // The reply of an earlier try was lost.
        // What it left to remove is found by the next start, if the earlier try does not end it.
        None if tx.may_repeat => {
            let removed = Removed { kept_up_to: lineage::shared_up_to(&tx.link, id).await? };
            return Ok((removed, vec![id]));
        }
        None => return Err(Error::new(Kind::NotFound, format!("session {id} does not exist")).into()),
        Some(row) if row.get::<_, i16>(0) == 1 => {
            return Err(Error::new(Kind::Conflict, format!("session {id} is being worked on")).into());
        }
        Some(_) => {}
    }
    let mut left = vec![id];
    for ancestor in lineage::of(&tx.link, id).await? {
        let session = params![shard, key(ancestor.session.bits())];
        if tx.link.first(sql::LOCK_ANCESTOR, session).await?.is_none() {
            left.push(ancestor.session);
        }
    }
    for session in &left {
        tx.link.run(sql::NEW_REMOVAL, params![shard, key(session.bits())]).await?;
    }
    let statements = [
        sql::REMOVE_LINEAGE,
        sql::REMOVE_HEAD,
        sql::REMOVE_SESSION,
        sql::CLEAR_INBOX,
        sql::CLEAR_LEASES,
        sql::REMOVE_ANSWERS,
    ];
    for statement in statements {
        tx.link.run(statement, params![shard, session]).await?;
    }
    tx.changed(id);
    Ok((Removed { kept_up_to: lineage::shared_up_to(&tx.link, id).await? }, left))
}

/// Removes some rows of the log of a removed session, but none that a fork shares. Returns whether it is done.
pub(crate) async fn some_events(tx: &mut Tx, id: SessionId) -> Result<bool, Trouble> {
    let (shard, session) = (shard(id), key(id.bits()));
    if tx.link.run(sql::REMOVE_EVENTS, params![shard, session, BATCH]).await? == BATCH.unsigned_abs() {
        return Ok(false);
    }
    tx.link.run(sql::END_REMOVAL, params![shard, session]).await?;
    Ok(true)
}
