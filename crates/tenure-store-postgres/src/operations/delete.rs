//! Removes a session: its head at once, its log in small transactions that hold nobody up.

use crate::params::{key, params, tenant_text};
use crate::rows::shard;
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use tenure_core::{SessionId, TenantId};
use tenure_store::{Error, Kind};

/// Rows of a log that one transaction removes.
const BATCH: i64 = 1_000;

/// Removes head and inbox; from here on the session does not exist.
pub(crate) async fn head(tx: &mut Tx, tenant: &TenantId, id: SessionId) -> Result<(), Trouble> {
    let (shard, session) = (shard(id), key(id.bits()));
    match tx.link.first(sql::LOCK_HEAD, params![shard, session, tenant_text(tenant)]).await? {
        // The reply of an earlier try was lost.
        None if tx.may_repeat => return Ok(()),
        None => return Err(Error::new(Kind::NotFound, format!("session {id} does not exist")).into()),
        Some(row) if row.get::<_, i16>(0) == 1 => {
            return Err(Error::new(Kind::Conflict, format!("session {id} is being worked on")).into());
        }
        Some(_) => {}
    }
    let statements = [
        sql::NEW_REMOVAL,
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
    Ok(())
}

/// Removes some rows of the log of a removed session. Returns whether none are left.
pub(crate) async fn some_events(tx: &mut Tx, id: SessionId) -> Result<bool, Trouble> {
    let (shard, session) = (shard(id), key(id.bits()));
    if tx.link.run(sql::REMOVE_EVENTS, params![shard, session, BATCH]).await? == BATCH.unsigned_abs() {
        return Ok(false);
    }
    tx.link.run(sql::END_REMOVAL, params![shard, session]).await?;
    Ok(true)
}
