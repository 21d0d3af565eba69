//! Leases that end, and those that ended.

use crate::link::Link;
use crate::params::{Param, key, limit, number, params, tenant_text};
use crate::rows::{bits, count, shard};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use tenure_core::{Millis, NodeId, SessionId, TenantId, Timestamp};
use tenure_store::{
    EXTERNAL, Error, Hint, KEPT_EPOCHS, Kind, Lease, LeaseEnd, LeaseQuery, MAX_PAGE, PastEnd, PastLease, QueueDepth,
    Renewed,
};
use tokio_postgres::Row;

/// Ends a lease by one of the statements that also write it down; says whether there was one.
pub(crate) async fn end(
    tx: &Tx,
    session: SessionId,
    statement: &str,
    how: LeaseEnd,
    more: impl IntoIterator<Item = Param<'_>>,
) -> Result<bool, Trouble> {
    let (shard, id, how) = (shard(session), key(session.bits()), code(how));
    let mut all = vec![Param::of(&shard), Param::of(&id), Param::of(&tx.now.0), Param::of(&how)];
    all.extend(more);
    let Some(row) = tx.link.first(statement, &all).await? else { return Ok(false) };
    // Few sessions ever have so many: the others do not pay for it.
    if let Some(oldest) = count(&row, 0).checked_sub(KEPT_EPOCHS).filter(|oldest| *oldest > 0) {
        tx.link.run(sql::FORGET_LEASES, params![shard, id, number(oldest)]).await?;
    }
    Ok(true)
}

/// Gives a lease back. One that is gone already is not an error.
pub(crate) async fn release(tx: &mut Tx, lease: &Lease) -> Result<(), Trouble> {
    let more = [Param::of(&number(lease.epoch)), Param::of(&key(lease.nonce.bits()))];
    if end(tx, lease.session, sql::RELEASE, LeaseEnd::Released, more).await? {
        tx.hints.extend([Hint::Runnable, Hint::Session(lease.session)]);
    }
    Ok(())
}

/// Why a lease is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its holder is dead: it may have been the session that ended it (promise P13).
    Died,
    /// Its holder lives and does not know of it.
    Forgotten,
    /// Its holder ended in good order.
    Left,
}

/// A lease as the head names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) session: SessionId,
    pub(crate) epoch: u64,
    pub(crate) node: NodeId,
}

/// Takes leases back, in the order of their keys; those that changed hands meanwhile stay.
pub(crate) async fn take_back(tx: &mut Tx, leases: &[Owned], reason: Reason) -> Result<Vec<SessionId>, Trouble> {
    let (statement, how) = match reason {
        Reason::Died => (sql::TAKE_BACK, LeaseEnd::Lost),
        Reason::Forgotten => (sql::TAKE_BACK_UNCOUNTED, LeaseEnd::Lost),
        Reason::Left => (sql::TAKE_BACK_UNCOUNTED, LeaseEnd::Released),
    };
    let mut taken = Vec::with_capacity(leases.len());
    for lease in leases {
        let more = [Param::of(&key(lease.node.bits())), Param::of(&number(lease.epoch))];
        if end(tx, lease.session, statement, how, more).await? {
            tx.changed(lease.session);
            taken.push(lease.session);
        }
    }
    if !taken.is_empty() {
        tx.hints.push(Hint::Runnable);
    }
    Ok(taken)
}

/// Keeps the lease of an external loop.
pub(crate) async fn renew(tx: &mut Tx, lease: &Lease, span: Millis) -> Result<Renewed, Trouble> {
    let until = tx.now.after(span);
    let (shard, id) = (shard(lease.session), key(lease.session.bits()));
    let params = params![shard, id, number(lease.epoch), key(lease.nonce.bits()), until.0];
    match tx.link.first(sql::RENEW, params).await? {
        Some(row) => Ok(Renewed { until, is_urgent: row.get(0) }),
        None => {
            let message = format!("the lease of session {} with epoch {} is gone", lease.session, lease.epoch);
            Err(Error::new(Kind::Fenced, message).into())
        }
    }
}

/// What a queue of external loops holds.
pub(crate) async fn depth(link: &Link, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Trouble> {
    let tenant = tenant_text(tenant);
    let queued = link.one(sql::DEPTH, params![tenant, queue]).await?;
    let leased = link.one(sql::DEPTH_LEASED, params![tenant, queue, key(EXTERNAL.bits())]).await?;
    let oldest = queued.get::<_, Option<i64>>(1).map(Timestamp);
    Ok(QueueDepth { queued: count(&queued, 0), oldest, leased: count(&leased, 0) })
}

/// Leases of a session, the one that is out last.
pub(crate) async fn leases(link: &Link, query: &LeaseQuery) -> Result<Vec<PastLease>, Trouble> {
    let (shard, id, most) = (shard(query.session), key(query.session.bits()), query.limit.min(MAX_PAGE));
    let (tenant, after) = (tenant_text(&query.tenant), number(query.after));
    // First, so that a lease that ends between the two reads is there twice instead of not at all.
    let now = link.first(sql::LEASE_NOW, params![shard, id, tenant, after]).await?.map(|row| lease(&row));
    let mut leases = Vec::new();
    for row in link.rows(sql::LEASES, params![shard, id, tenant, after, limit(most)]).await? {
        let (past, code) = (lease(&row), row.get::<_, i16>(6));
        let how = how(code).ok_or_else(|| {
            let message = format!("lease {} of session {} ended in an unknown way ({code})", past.epoch, query.session);
            Error::new(Kind::Corrupt, message)
        })?;
        leases.push(PastLease { end: Some(PastEnd { at: Timestamp(row.get(4)), seq: count(&row, 5), how }), ..past });
    }
    let newest = leases.last().map_or(0, |lease: &PastLease| lease.epoch);
    if leases.len() < most {
        leases.extend(now.filter(|now| now.epoch > newest));
    }
    Ok(leases)
}

fn lease(row: &Row) -> PastLease {
    PastLease {
        epoch: count(row, 0),
        node: NodeId::from_bits(bits(row, 1)),
        from: Timestamp(row.get(2)),
        from_seq: count(row, 3),
        end: None,
    }
}

/// The stored form of an end; numbers are never used again for something else.
fn code(how: LeaseEnd) -> i16 {
    match how {
        LeaseEnd::Parked => 0,
        LeaseEnd::Yielded => 1,
        LeaseEnd::Released => 2,
        LeaseEnd::Lost => 3,
        LeaseEnd::Ended => 4,
    }
}

fn how(code: i16) -> Option<LeaseEnd> {
    LeaseEnd::ALL.into_iter().find(|how| self::code(*how) == code)
}
