//! Whose rows the log of a fork is made of.

use crate::link::Link;
use crate::params::{key, number, params, tenant_text};
use crate::rows::{bits, count, shard};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use tenure_core::{Session, SessionId};
use tenure_store::lineage::{self, Ancestor};
use tenure_store::{Error, Kind};

/// The ancestors of a session, in the order of their rows.
pub(crate) async fn of(link: &Link, session: SessionId) -> Result<Vec<Ancestor>, Trouble> {
    let rows = link.rows(sql::LINEAGE, params![shard(session), key(session.bits())]).await?;
    Ok(rows.iter().map(|row| Ancestor { session: SessionId::from_bits(bits(row, 0)), up_to: count(row, 1) }).collect())
}

/// Notes whose rows a fork shares; its parent must be there.
pub(crate) async fn note(tx: &Tx, session: &Session) -> Result<(), Trouble> {
    let Some(forked) = session.forked else { return Ok(()) };
    let parent = params![shard(forked.session), key(forked.session.bits()), tenant_text(&session.tenant)];
    let Some(row) = tx.link.first(sql::LAST_SEQ, parent).await? else {
        return Err(Error::new(Kind::NotFound, format!("session {} does not exist", forked.session)).into());
    };
    if forked.seq > count(&row, 0) {
        return Err(lineage::beyond(forked).into());
    }
    for ancestor in lineage::of_fork(forked.session, &of(&tx.link, forked.session).await?, forked.seq)? {
        let row =
            params![shard(session.id), key(session.id.bits()), number(ancestor.up_to), key(ancestor.session.bits())];
        tx.link.run(sql::NEW_LINEAGE, row).await?;
    }
    Ok(())
}

/// The last row of a session that a fork shares; 0 for none.
pub(crate) async fn shared_up_to(link: &Link, session: SessionId) -> Result<u64, Trouble> {
    let row = link.one(sql::SHARED_UP_TO, params![shard(session), key(session.bits())]).await?;
    Ok(count(&row, 0))
}
