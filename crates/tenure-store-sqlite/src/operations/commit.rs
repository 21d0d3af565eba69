//! The checkpoint: one guarded update of the head comes first, and everything else hangs on the row
//! that it returns (hazards Z-02, Z-05).

use crate::blobs::Kept;
use crate::operations::leases;
use crate::rows::{self, Stored, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::params;
use tenure_core::{End, Event, EventId, Position, Session, SessionId, TenantId, Timestamp};
use tenure_store::{Error, Hint, Kind, Lease, LeaseEnd, Then};

/// A checkpoint with everything encoded before the transaction.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) lease: Lease,
    pub(crate) commit_id: [u8; 16],
    pub(crate) events: Vec<NewEvent>,
    /// Whether the claims are counted anew from here.
    pub(crate) is_progress: bool,
    pub(crate) body: String,
    pub(crate) session: Session,
    pub(crate) consumed: u64,
    pub(crate) then: Then,
}

/// A row of the log to append.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) id: EventId,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) step: u64,
    pub(crate) answers: Option<EventId>,
    pub(crate) kept: Kept,
}

impl NewEvent {
    /// A row whose body is kept already.
    pub(crate) fn of(event: &Event, kept: Kept) -> Self {
        let answers = event.body.answers();
        Self { id: event.id, seq: event.seq, at: event.at, step: event.step, answers, kept }
    }
}

/// What a commit did; inputs are decoded by the caller.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) is_held: bool,
    pub(crate) inbox: Vec<Stored>,
    pub(crate) now: Timestamp,
}

/// Commits.
pub(crate) fn commit(work: &mut Work<'_>, page: &Page) -> Result<Done, Error> {
    let id = page.lease.session;
    let base = page.session.last_seq - page.events.len() as u64;
    let params = params![
        key(id.bits()),
        number(page.lease.epoch),
        key(page.lease.nonce.bits()),
        number(page.session.last_seq),
        number(page.consumed),
        page.commit_id,
        page.is_progress,
        work.now.0,
        page.body,
        number(base),
    ];
    let fenced =
        rows::first(work.connection, sql::CHECKPOINT, params, |row| Ok((rows::count(row, 0)?, rows::count(row, 1)?)))?;
    let Some((tail, consumed)) = fenced else {
        return repeat(work, page, base);
    };
    for event in &page.events {
        append(work, &page.lease.tenant, id, event)?;
    }
    if page.consumed > 0 {
        rows::run(work.connection, sql::CONSUME, (key(id.bits()), number(consumed)))?;
    }
    let is_held = settle(work, page, tail == consumed)?;
    work.hints.push(Hint::Session(id));
    let inbox = if is_held { rows::inbox(work.connection, id, consumed, tail)? } else { Vec::new() };
    Ok(Done { is_held, inbox, now: work.now })
}

/// Adds a row to a log.
pub(crate) fn append(work: &Work<'_>, tenant: &TenantId, id: SessionId, event: &NewEvent) -> Result<(), Error> {
    let params = params![
        key(id.bits()),
        number(event.seq),
        id.shard().0,
        tenant.0,
        key(event.id.bits()),
        event.at.0,
        number(event.step),
        event.answers.map(|call| key(call.bits())),
        event.kept.inline,
        event.kept.blob,
    ];
    rows::run(work.connection, sql::NEW_EVENT, params).map(|_| ())
}

/// What becomes of the lease. Returns whether it is still held.
fn settle(work: &mut Work<'_>, page: &Page, is_inbox_empty: bool) -> Result<bool, Error> {
    let id = key(page.lease.session.bits());
    let session = &page.session;
    let phase = session.phase().name();
    if let Position::Ended(end) = &session.position {
        leases::note_end(work, page.lease.session, None, LeaseEnd::Ended)?;
        let archived_at = (*end == End::Done).then_some(work.now.0);
        rows::run(work.connection, sql::END, (id, phase, work.now.0, archived_at))?;
        rows::run(work.connection, sql::CLEAR_INBOX, [id])?;
        rows::run(work.connection, sql::ADD_META, ("ended", 1))?;
        return Ok(false);
    }
    match page.then {
        Then::Keep => Ok(true),
        // The inbox was compared in the transaction that also stored its newest input (hazard Z-01).
        Then::Park if !is_inbox_empty => Ok(true),
        Then::Park => {
            leases::note_end(work, page.lease.session, None, LeaseEnd::Parked)?;
            let wake_at = session.wakes_at().map(|at| at.0);
            let condition = session.waits_on().map(|condition| key(condition.bits()));
            rows::run(work.connection, sql::PARK, (id, phase, wake_at, work.now.0, condition, &session.queue))?;
            Ok(false)
        }
        Then::Yield => {
            leases::note_end(work, page.lease.session, None, LeaseEnd::Yielded)?;
            rows::run(work.connection, sql::YIELD, (work.now.0, id, &session.queue))?;
            work.hints.push(Hint::Runnable);
            Ok(false)
        }
    }
}

/// The fence did not match: the same commit again (hazard Z-20), a mistake, or a lease that is gone.
fn repeat(work: &Work<'_>, page: &Page, base: u64) -> Result<Done, Error> {
    let id = page.lease.session;
    struct Fence {
        is_leased: bool,
        is_ours: bool,
        is_repeat: bool,
        last_seq: u64,
        tail: u64,
        consumed: u64,
    }
    let fence = rows::first(work.connection, sql::FENCE_STATE, [key(id.bits())], |row| {
        let nonce = row.get::<_, Option<[u8; 16]>>(2)?;
        Ok(Fence {
            is_leased: row.get::<_, i64>(0)? == 1,
            is_ours: rows::count(row, 1)? == page.lease.epoch && nonce == Some(key(page.lease.nonce.bits())),
            is_repeat: row.get::<_, Option<[u8; 16]>>(3)? == Some(page.commit_id),
            last_seq: rows::count(row, 4)?,
            tail: rows::count(row, 5)?,
            consumed: rows::count(row, 6)?,
        })
    })?;
    let fenced =
        || Err(Error::new(Kind::Fenced, format!("the lease of session {id} with epoch {} is gone", page.lease.epoch)));
    let Some(fence) = fence else { return fenced() };
    let is_held = fence.is_leased && fence.is_ours;
    if fence.is_repeat {
        let inbox = if is_held { rows::inbox(work.connection, id, fence.consumed, fence.tail)? } else { Vec::new() };
        return Ok(Done { is_held, inbox, now: work.now });
    }
    if !is_held {
        return fenced();
    }
    let message = if fence.last_seq == base {
        format!("session {id}: {} inputs cannot be consumed, {} came", page.consumed, fence.tail)
    } else {
        format!("session {id}: the log ends at seq {}, the commit continues from {base}", fence.last_seq)
    };
    Err(Error::new(Kind::Invalid, message))
}
