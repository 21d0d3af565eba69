//! Leases runnable sessions.

use crate::operations::leases;
use crate::rows::{self, Stored, key};
use crate::statements as sql;
use crate::writer::Work;
use aws_lc_rs::digest::{SHA256, digest};
use rusqlite::Row;
use std::collections::VecDeque;
use tenure_core::{LeaseId, SessionId, TenantId, Timestamp};
use tenure_store::{Claim, EXTERNAL, Error, Hint, Kind, Lane, Lease, LeaseEnd, MAX_PAGE, SUSPECT_AFTER};

/// A lease whose head and inbox are not decoded yet.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) lease: Lease,
    pub(crate) body: String,
    pub(crate) inbox: Vec<Stored>,
    pub(crate) claims: u32,
    pub(crate) previous: Option<LeaseId>,
    pub(crate) queued_at: Timestamp,
    pub(crate) now: Timestamp,
    consumed: u64,
    tail: u64,
}

/// The tenant that was served last, so that the next claim begins with the one after it.
pub(crate) type Turn = Option<String>;

/// Leases sessions: oldest first for each tenant, the tenants in turn (promise P16).
pub(crate) fn claim(work: &mut Work<'_>, claim: &Claim, turn: &mut Turn) -> Result<Vec<Granted>, Error> {
    // In the same transaction: a claim that was delayed past its node's death gives nothing (hazard Z-04).
    match rows::first(work.connection, sql::IS_NODE_DEAD, [key(claim.node.bits())], |row| row.get(0))? {
        Some(false) => {}
        None if claim.node == EXTERNAL => {}
        Some(true) => {
            return Err(Error::new(Kind::Fenced, format!("node {} is dead", claim.node)));
        }
        None => {
            return Err(Error::new(Kind::Fenced, format!("node {} is not registered", claim.node)));
        }
    }
    let params = (key(claim.node.bits()), key(claim.id.bits()));
    let mut granted =
        rows::all(work.connection, sql::LEASES_OF_CLAIM, params, |row| Granted::of(row, claim, work.now))?;
    if granted.is_empty() {
        for (place, Chosen { id, previous, .. }) in choose(work, claim, turn)?.into_iter().enumerate() {
            let nonce = key(nonce(claim.id, place).bits());
            let params = (key(id.bits()), nonce, key(claim.node.bits()), key(claim.id.bits()), work.now.0);
            let lease = rows::first(work.connection, sql::LEASE, params, |row| Granted::of(row, claim, work.now))?;
            if let Lane::Queue { span, .. } = claim.lane {
                rows::run(work.connection, sql::SET_UNTIL, (key(id.bits()), work.now.after(span).0))?;
            }
            granted.extend(lease.map(|lease| Granted { previous, ..lease }));
            work.hints.push(Hint::Session(id));
        }
    }
    for lease in &mut granted {
        lease.inbox = rows::inbox(work.connection, lease.lease.session, lease.consumed, lease.tail)?;
    }
    Ok(granted)
}

/// Parks a session that cannot be read, so that it is not claimed again and again; the others go on
/// (case O-038). Returns whether the lease was still held.
pub(crate) fn set_aside(work: &mut Work<'_>, lease: &Lease) -> Result<bool, Error> {
    let params = (key(lease.session.bits()), rows::number(lease.epoch), key(lease.nonce.bits()), work.now.0);
    work.hints.push(Hint::Session(lease.session));
    leases::note_end(work, lease.session, Some(lease.nonce), LeaseEnd::Lost)?;
    Ok(rows::run(work.connection, sql::SET_ASIDE, params)? > 0)
}

impl Granted {
    fn of(row: &Row<'_>, claim: &Claim, now: Timestamp) -> rusqlite::Result<Self> {
        Ok(Self {
            lease: Lease {
                session: SessionId::from_bits(rows::bits(row, 0)?),
                tenant: TenantId(row.get(1)?),
                epoch: rows::count(row, 2)?,
                nonce: LeaseId::from_bits(rows::bits(row, 3)?),
                node: claim.node,
            },
            claims: row.get(4)?,
            queued_at: rows::time(row, 5)?,
            consumed: rows::count(row, 6)?,
            tail: rows::count(row, 7)?,
            body: row.get(8)?,
            previous: None,
            inbox: Vec::new(),
            now,
        })
    }
}

/// The nonce of the lease at `place` of a claim: random because the claim's id is (hazard Z-05).
fn nonce(claim: LeaseId, place: usize) -> LeaseId {
    let mut seed = claim.bits().to_be_bytes().to_vec();
    seed.extend_from_slice(&(place as u64).to_be_bytes());
    let hash = digest(&SHA256, &seed);
    let bytes = hash.as_ref().first_chunk::<16>().expect("a digest has 32 bytes");
    LeaseId::from_bits(u128::from_be_bytes(*bytes))
}

/// A session that may be leased.
struct Chosen {
    id: SessionId,
    claims: u32,
    previous: Option<LeaseId>,
}

impl Chosen {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let previous = row.get::<_, Option<[u8; 16]>>(2)?;
        Ok(Self {
            id: SessionId::from_bits(rows::bits(row, 0)?),
            claims: row.get(1)?,
            previous: previous.map(|bytes| LeaseId::from_bits(u128::from_be_bytes(bytes))),
        })
    }
}

/// Whom to lease: one session of each tenant after the other, until there are enough; of suspects
/// one for each node, so that no other is blamed for what it does (hazard Z-34).
fn choose(work: &Work<'_>, claim: &Claim, turn: &mut Turn) -> Result<Vec<Chosen>, Error> {
    let limit = claim.limit.min(MAX_PAGE);
    if let Lane::Queue { tenant, name, .. } = &claim.lane {
        return rows::all(work.connection, sql::QUEUE_OF_LOOPS, (&tenant.0, name, limit), Chosen::of);
    }
    let suspect = rows::first(work.connection, sql::HAS_SUSPECT, (key(claim.node.bits()), SUSPECT_AFTER), |_| Ok(()))?;
    let mut may_take_suspect = suspect.is_none();
    let mut queues: VecDeque<(String, VecDeque<Chosen>)> = VecDeque::new();
    for tenant in tenants(work, limit, turn.as_deref())? {
        let params = (&tenant, limit, may_take_suspect, SUSPECT_AFTER);
        let ids = rows::all(work.connection, sql::QUEUE_OF_TENANT, params, Chosen::of)?;
        queues.push_back((tenant, ids.into()));
    }
    let mut chosen = Vec::new();
    while chosen.len() < limit
        && let Some((tenant, mut ids)) = queues.pop_front()
    {
        let Some(next) = ids.pop_front() else { continue };
        let is_suspect = next.claims >= SUSPECT_AFTER;
        if !is_suspect || may_take_suspect {
            may_take_suspect &= !is_suspect;
            chosen.push(next);
            *turn = Some(tenant.clone());
        }
        queues.push_back((tenant, ids));
    }
    Ok(chosen)
}

/// Tenants that have something queued, at most `limit`, beginning after `last`.
fn tenants(work: &Work<'_>, limit: usize, last: Option<&str>) -> Result<Vec<String>, Error> {
    let first = || rows::first(work.connection, sql::FIRST_TENANT, [], |row| row.get::<_, String>(0));
    let after = |tenant: &str| rows::first(work.connection, sql::NEXT_TENANT, [tenant], |row| row.get::<_, String>(0));
    let mut tenants = Vec::new();
    let mut next = match last {
        Some(last) => after(last)?,
        None => None,
    };
    let mut is_around = next.is_none();
    if is_around {
        next = first()?;
    }
    while let Some(tenant) = next {
        if tenants.len() >= limit || tenants.first() == Some(&tenant) {
            break;
        }
        next = after(&tenant)?;
        tenants.push(tenant);
        if next.is_none() && !is_around {
            is_around = true;
            next = first()?;
        }
    }
    Ok(tenants)
}
