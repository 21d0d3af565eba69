//! Sessions whose time has come.

use crate::link::Link;
use crate::params::{limit, params};
use crate::rows::bits;
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use tenure_core::{SessionId, Timestamp};
use tenure_store::{Due, Hint};

/// Queues what is due. Two nodes that ask at once queue each session once: the second update finds it
/// queued.
pub(crate) async fn due(tx: &mut Tx, most: usize) -> Result<Due, Trouble> {
    let rows = tx.link.rows(sql::DUE, params![tx.now.0, limit(most)]).await?;
    for row in &rows {
        tx.changed(SessionId::from_bits(bits(row, 0)));
    }
    if !rows.is_empty() {
        tx.hints.push(Hint::Runnable);
    }
    Ok(Due { woken: rows.len(), next: next(&tx.link).await?, now: tx.now })
}

/// When the next session is due.
pub(crate) async fn next(link: &Link) -> Result<Option<Timestamp>, Trouble> {
    Ok(link.one(sql::NEXT_DUE, params![]).await?.get::<_, Option<i64>>(0).map(Timestamp))
}
