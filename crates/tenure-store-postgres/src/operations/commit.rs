//! The checkpoint: one guarded update of the head comes first, and everything else hangs on the row
//! that it returns (hazards Z-02, Z-05).

use crate::operations::leases;
use crate::params::{Param, key, number, params, tenant_text};
use crate::payloads::Kept;
use crate::rows::{self, Stored, count, shard};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use tenure_core::{End, Event, EventId, Position, Session, SessionId, TenantId, Timestamp};
use tenure_store::{Error, Hint, Kind, Lease, LeaseEnd, Then};
use uuid::Uuid;

/// A checkpoint with everything encoded before the transaction.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) lease: Lease,
    pub(crate) commit_id: Uuid,
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
pub(crate) async fn commit(tx: &mut Tx, page: &Page) -> Result<Done, Trouble> {
    let id = page.lease.session;
    let (shard, session) = (shard(id), key(id.bits()));
    let base = page.session.last_seq - page.events.len() as u64;
    let fence = params![
        shard,
        session,
        number(page.lease.epoch),
        key(page.lease.nonce.bits()),
        number(page.session.last_seq),
        number(page.consumed),
        page.commit_id,
        page.is_progress,
        number(base),
    ];
    let Some(row) = tx.link.first(sql::CHECKPOINT, fence).await? else { return repeat(tx, page, base).await };
    let (tail, consumed) = (count(&row, 0), count(&row, 1));
    append(tx, &page.lease.tenant, id, &page.events).await?;
    if page.consumed > 0 {
        tx.link.run(sql::CONSUME, params![shard, session, number(consumed)]).await?;
    }
    let is_held = settle(tx, page, tail == consumed).await?;
    tx.changed(id);
    let inbox = if is_held { rows::inbox(&tx.link, id, consumed, tail).await? } else { Vec::new() };
    Ok(Done { is_held, inbox, now: tx.now })
}

/// Adds rows to a log, all in one statement.
pub(crate) async fn append(tx: &Tx, tenant: &TenantId, id: SessionId, events: &[NewEvent]) -> Result<(), Trouble> {
    if events.is_empty() {
        return Ok(());
    }
    let (shard, session) = (shard(id), key(id.bits()));
    let seqs: Vec<i64> = events.iter().map(|event| number(event.seq)).collect();
    let ids: Vec<Uuid> = events.iter().map(|event| key(event.id.bits())).collect();
    let ats: Vec<i64> = events.iter().map(|event| event.at.0).collect();
    let steps: Vec<i64> = events.iter().map(|event| number(event.step)).collect();
    let bodies: Vec<Option<String>> = events.iter().map(|event| event.kept.inline.clone()).collect();
    let payloads: Vec<Option<Vec<u8>>> = events.iter().map(|event| event.kept.payload.clone()).collect();
    let params = params![shard, session, tenant_text(tenant), seqs, ids, ats, steps, bodies, payloads];
    tx.link.run(sql::NEW_EVENTS, params).await?;
    let answers = events.iter().filter_map(|event| Some((key(event.answers?.bits()), number(event.seq))));
    let (calls, seqs): (Vec<Uuid>, Vec<i64>) = answers.unzip();
    if !calls.is_empty() {
        tx.link.run(sql::NEW_ANSWERS, params![shard, session, calls, seqs]).await?;
    }
    Ok(())
}

/// What becomes of the head and of the lease. Returns whether it is still held.
async fn settle(tx: &mut Tx, page: &Page, is_inbox_empty: bool) -> Result<bool, Trouble> {
    let id = page.lease.session;
    let (shard, key_of) = (shard(id), key(id.bits()));
    let session = &page.session;
    let end = match &session.position {
        Position::Ended(end) => Some(end),
        _ => None,
    };
    // The inbox was compared by the update that locks the head, which its newest input raised (hazard Z-01).
    let parks = end.is_none() && page.then == Then::Park && is_inbox_empty;
    let phase = (parks || end.is_some()).then(|| session.phase().name().to_owned());
    let archived_at = end.filter(|end| **end == End::Done).map(|_| tx.now.0);
    let wide = params![shard, key_of, page.body.as_str(), tx.now.0, phase, archived_at];
    tx.link.run(sql::SET_BODY, wide).await?;
    if end.is_some() {
        leases::end(tx, id, sql::END, LeaseEnd::Ended, []).await?;
        tx.link.run(sql::CLEAR_INBOX, params![shard, key_of]).await?;
        return Ok(false);
    }
    match page.then {
        Then::Keep => Ok(true),
        Then::Park if !is_inbox_empty => Ok(true),
        Then::Park => {
            let wake_at = session.wakes_at().map(|at| at.0);
            let condition = session.waits_on().map(|condition| key(condition.bits()));
            leases::end(
                tx,
                id,
                sql::PARK,
                LeaseEnd::Parked,
                [Param::of(&wake_at), Param::of(&condition), Param::of(&session.queue)],
            )
            .await?;
            Ok(false)
        }
        Then::Yield => {
            leases::end(tx, id, sql::YIELD, LeaseEnd::Yielded, [Param::of(&session.queue)]).await?;
            tx.hints.push(Hint::Runnable);
            Ok(false)
        }
    }
}

/// The fence did not match: the same commit again (hazard Z-20), a mistake, or a lease that is gone.
async fn repeat(tx: &Tx, page: &Page, base: u64) -> Result<Done, Trouble> {
    let id = page.lease.session;
    let fenced =
        || Error::new(Kind::Fenced, format!("the lease of session {id} with epoch {} is gone", page.lease.epoch));
    let row = tx.link.first(sql::FENCE_STATE, params![shard(id), key(id.bits())]).await?.ok_or_else(fenced)?;
    let is_ours =
        count(&row, 1) == page.lease.epoch && row.get::<_, Option<Uuid>>(2) == Some(key(page.lease.nonce.bits()));
    let is_held = row.get::<_, i16>(0) == 1 && is_ours;
    let (last_seq, tail, consumed) = (count(&row, 4), count(&row, 5), count(&row, 6));
    if row.get::<_, Option<Uuid>>(3) == Some(page.commit_id) {
        let inbox = if is_held { rows::inbox(&tx.link, id, consumed, tail).await? } else { Vec::new() };
        return Ok(Done { is_held, inbox, now: tx.now });
    }
    if !is_held {
        return Err(fenced().into());
    }
    let message = if last_seq == base {
        format!("session {id}: {} inputs cannot be consumed, {tail} came", page.consumed)
    } else {
        format!("session {id}: the log ends at seq {last_seq}, the commit continues from {base}")
    };
    Err(Error::new(Kind::Invalid, message).into())
}
