//! Leases that end, and those that ended.

use crate::rows::{self, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::Connection;
use tenure_core::{LeaseId, Millis, NodeId, SessionId, TenantId, Timestamp};
use tenure_store::{
    EXTERNAL, Error, Hint, KEPT_EPOCHS, Kind, Lease, LeaseEnd, LeaseQuery, MAX_PAGE, PastEnd, PastLease, QueueDepth,
    Renewed,
};

/// Gives a lease back. One that is gone already is not an error.
pub(crate) fn release(work: &mut Work<'_>, lease: &Lease) -> Result<(), Error> {
    note_end(work, lease.session, Some(lease.nonce), LeaseEnd::Released)?;
    let params = (work.now.0, key(lease.session.bits()), number(lease.epoch), key(lease.nonce.bits()));
    if rows::run(work.connection, sql::RELEASE, params)? > 0 {
        work.hints.extend([Hint::Runnable, Hint::Session(lease.session)]);
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

/// Takes leases back, whoever holds them.
pub(crate) fn take_back(work: &mut Work<'_>, sessions: &[SessionId], reason: Reason) -> Result<(), Error> {
    let (statement, how) = match reason {
        Reason::Died => (sql::TAKE_BACK, LeaseEnd::Lost),
        Reason::Forgotten => (sql::TAKE_BACK_UNCOUNTED, LeaseEnd::Lost),
        Reason::Left => (sql::TAKE_BACK_UNCOUNTED, LeaseEnd::Released),
    };
    for session in sessions {
        note_end(work, *session, None, how)?;
        rows::run(work.connection, statement, (work.now.0, key(session.bits())))?;
        work.hints.push(Hint::Session(*session));
    }
    if !sessions.is_empty() {
        work.hints.push(Hint::Runnable);
    }
    Ok(())
}

/// Writes down the lease that the next statement ends, if it is the one with this nonce, and forgets
/// those that are too old.
pub(crate) fn note_end(
    work: &Work<'_>,
    session: SessionId,
    nonce: Option<LeaseId>,
    how: LeaseEnd,
) -> Result<(), Error> {
    let params = (key(session.bits()), work.now.0, code(how), nonce.map(|nonce| key(nonce.bits())));
    let epoch = rows::first(work.connection, sql::NOTE_LEASE, params, |row| rows::count(row, 0))?;
    // Few sessions ever have so many: the others do not pay for it.
    if let Some(oldest) = epoch.and_then(|epoch| epoch.checked_sub(KEPT_EPOCHS)).filter(|oldest| *oldest > 0) {
        rows::run(work.connection, sql::FORGET_LEASES, (key(session.bits()), number(oldest)))?;
    }
    Ok(())
}

/// Keeps the lease of an external loop.
pub(crate) fn renew(work: &mut Work<'_>, lease: &Lease, span: Millis) -> Result<Renewed, Error> {
    let until = work.now.after(span);
    let params = (key(lease.session.bits()), number(lease.epoch), key(lease.nonce.bits()), until.0);
    let is_urgent = rows::first(work.connection, sql::RENEW, params, |row| row.get::<_, bool>(0))?;
    is_urgent.map(|is_urgent| Renewed { until, is_urgent }).ok_or_else(|| {
        let message = format!("the lease of session {} with epoch {} is gone", lease.session, lease.epoch);
        Error::new(Kind::Fenced, message)
    })
}

/// What a queue of external loops holds.
pub(crate) fn depth(connection: &Connection, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Error> {
    let queued = rows::first(connection, sql::DEPTH, (&tenant.0, queue), |row| {
        Ok((rows::count(row, 0)?, row.get::<_, Option<i64>>(1)?.map(Timestamp)))
    })?;
    let params = (&tenant.0, queue, key(EXTERNAL.bits()));
    let leased = rows::first(connection, sql::DEPTH_LEASED, params, |row| rows::count(row, 0))?;
    let (queued, oldest) = queued.unwrap_or_default();
    Ok(QueueDepth { queued, oldest, leased: leased.unwrap_or_default() })
}

/// Leases of a session, the one that is out last.
pub(crate) fn leases(connection: &Connection, query: &LeaseQuery) -> Result<Vec<PastLease>, Error> {
    let (session, limit) = (key(query.session.bits()), query.limit.min(MAX_PAGE));
    // First, so that a lease that ends between the two reads is there twice instead of not at all.
    let now = rows::first(connection, sql::LEASE_NOW, (session, &query.tenant.0, number(query.after)), lease)?;
    let params = (session, &query.tenant.0, number(query.after), limit);
    let rows = rows::all(connection, sql::LEASES, params, |row| {
        let end = (rows::time(row, 4)?, rows::count(row, 5)?, row.get::<_, i64>(6)?);
        Ok((lease(row)?, end))
    })?;
    let mut leases = Vec::with_capacity(rows.len() + 1);
    for (lease, (at, seq, code)) in rows {
        let how = how(code).ok_or_else(|| {
            let message =
                format!("lease {} of session {} ended in an unknown way ({code})", lease.epoch, query.session);
            Error::new(Kind::Corrupt, message)
        })?;
        leases.push(PastLease { end: Some(PastEnd { at, seq, how }), ..lease });
    }
    let newest = leases.last().map_or(0, |lease: &PastLease| lease.epoch);
    if leases.len() < limit {
        leases.extend(now.filter(|now| now.epoch > newest));
    }
    Ok(leases)
}

fn lease(row: &rusqlite::Row<'_>) -> rusqlite::Result<PastLease> {
    Ok(PastLease {
        epoch: rows::count(row, 0)?,
        node: NodeId::from_bits(rows::bits(row, 1)?),
        from: rows::time(row, 2)?,
        from_seq: rows::count(row, 3)?,
        end: None,
    })
}

/// The stored form of an end; numbers are never used again for something else.
fn code(how: LeaseEnd) -> i64 {
    match how {
        LeaseEnd::Parked => 0,
        LeaseEnd::Yielded => 1,
        LeaseEnd::Released => 2,
        LeaseEnd::Lost => 3,
        LeaseEnd::Ended => 4,
    }
}

fn how(code: i64) -> Option<LeaseEnd> {
    LeaseEnd::ALL.into_iter().find(|how| self::code(*how) == code)
}
