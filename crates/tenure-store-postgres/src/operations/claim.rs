//! Leases runnable sessions.

use crate::params::{key, limit, params, tenant_of, tenant_text};
use crate::rows::{self, Stored, bits, count};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use aws_lc_rs::digest::{SHA256, digest};
use std::collections::VecDeque;
use tenure_core::{LeaseId, SessionId, Timestamp};
use tenure_store::{Claim, EXTERNAL, Error, Kind, Lane, Lease, MAX_PAGE, SUSPECT_AFTER};
use tokio_postgres::Row;
use uuid::Uuid;

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

/// Leases sessions: oldest first for each tenant, the tenants in turn (promise P16). `turn` is the tenant
/// that was served last; the one that is now comes back.
pub(crate) async fn claim(
    tx: &mut Tx,
    claim: &Claim,
    turn: Option<String>,
    skips_locked: bool,
) -> Result<(Vec<Granted>, Option<String>), Trouble> {
    // A claim that was delayed past its node's death gives nothing (hazard Z-04); one that meets the death
    // is found by the next sweep.
    match tx.link.first(sql::NODE, params![key(claim.node.bits())]).await?.map(|row| row.get::<_, bool>(0)) {
        Some(false) => {}
        None if claim.node == EXTERNAL => {}
        Some(true) => return Err(Error::new(Kind::Fenced, format!("node {} is dead", claim.node)).into()),
        None => return Err(Error::new(Kind::Fenced, format!("node {} is not registered", claim.node)).into()),
    }
    let mut granted = of_claim(tx, claim).await?;
    let mut turn = turn;
    if granted.is_empty() {
        let mut chosen = choose(tx, claim, &mut turn).await?;
        for (place, chosen) in chosen.iter_mut().enumerate() {
            chosen.place = place;
        }
        // Locked in one order by everybody (hazard Z-21).
        chosen.sort_by_key(|chosen| (chosen.shard, chosen.id));
        for chosen in &chosen {
            let statement = if skips_locked { sql::LEASE_UNLOCKED } else { sql::LEASE };
            let nonce = key(nonce(claim.id, chosen.place).bits());
            let (node, id) = (key(claim.node.bits()), key(claim.id.bits()));
            tx.link.run(statement, params![chosen.shard, key(chosen.id.bits()), nonce, node, id, tx.now.0]).await?;
            if let Lane::Queue { span, .. } = claim.lane {
                let until = tx.now.after(span).0;
                tx.link.run(sql::SET_UNTIL, params![chosen.shard, key(chosen.id.bits()), until, id]).await?;
            }
            tx.changed(chosen.id);
        }
        if !chosen.is_empty() {
            granted = of_claim(tx, claim).await?;
            for lease in &mut granted {
                let chosen = chosen.iter().find(|chosen| chosen.id == lease.lease.session);
                lease.previous = chosen.and_then(|chosen| chosen.previous);
            }
        }
    }
    for lease in &mut granted {
        lease.inbox = rows::inbox(&tx.link, lease.lease.session, lease.consumed, lease.tail).await?;
    }
    Ok((granted, turn))
}

async fn of_claim(tx: &Tx, claim: &Claim) -> Result<Vec<Granted>, Trouble> {
    let rows = tx.link.rows(sql::LEASES_OF_CLAIM, params![key(claim.node.bits()), key(claim.id.bits())]).await?;
    Ok(rows.iter().map(|row| Granted::of(row, claim, tx.now)).collect())
}

/// Parks a session that cannot be read, so that it is not claimed again and again; the others go on
/// (case O-038).
pub(crate) async fn set_aside(tx: &mut Tx, lease: &Lease) -> Result<(), Trouble> {
    let (shard, id) = (rows::shard(lease.session), key(lease.session.bits()));
    let epoch = crate::params::number(lease.epoch);
    tx.link.run(sql::SET_ASIDE, params![shard, id, epoch, key(lease.nonce.bits()), tx.now.0]).await?;
    tx.changed(lease.session);
    Ok(())
}

impl Granted {
    fn of(row: &Row, claim: &Claim, now: Timestamp) -> Self {
        Self {
            lease: Lease {
                session: SessionId::from_bits(bits(row, 1)),
                tenant: tenant_of(row.get(2)),
                epoch: count(row, 3),
                nonce: LeaseId::from_bits(bits(row, 4)),
                node: claim.node,
            },
            claims: u32::try_from(row.get::<_, i32>(5)).unwrap_or(0),
            queued_at: Timestamp(row.get(6)),
            consumed: count(row, 7),
            tail: count(row, 8),
            body: row.get(9),
            previous: None,
            inbox: Vec::new(),
            now,
        }
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
#[derive(Debug)]
struct Chosen {
    shard: i16,
    id: SessionId,
    claims: u32,
    previous: Option<LeaseId>,
    place: usize,
}

impl Chosen {
    fn of(row: &Row) -> Self {
        Self {
            shard: row.get(0),
            id: SessionId::from_bits(bits(row, 1)),
            claims: u32::try_from(row.get::<_, i32>(3)).unwrap_or(0),
            previous: row.get::<_, Option<Uuid>>(4).map(|id| LeaseId::from_bits(id.as_u128())),
            place: 0,
        }
    }
}

/// Whom to lease: one session of each tenant after the other, until there are enough; of suspects
/// one for each node, so that no other is blamed for what it does (hazard Z-34). Nothing is locked yet:
/// whoever is quicker gets it.
async fn choose(tx: &Tx, claim: &Claim, turn: &mut Option<String>) -> Result<Vec<Chosen>, Trouble> {
    let most = claim.limit.min(MAX_PAGE);
    if let Lane::Queue { tenant, name, .. } = &claim.lane {
        let params = params![tenant_text(tenant), name.as_str(), limit(most)];
        return Ok(tx.link.rows(sql::QUEUE_OF_LOOPS, params).await?.iter().map(Chosen::of).collect());
    }
    let suspect_after = i32::try_from(SUSPECT_AFTER).unwrap_or(i32::MAX);
    let suspect = tx.link.first(sql::HAS_SUSPECT, params![key(claim.node.bits()), suspect_after]).await?;
    let mut may_take_suspect = suspect.is_none();
    let count = i32::try_from(most).unwrap_or(i32::MAX);
    let mut queues: VecDeque<(String, VecDeque<Chosen>)> = VecDeque::new();
    let last = turn.clone().unwrap_or_default();
    // Those after the one that was served last, then the others from the start.
    for (after, up_to) in [(last.as_str(), None), ("", Some(last.clone()))] {
        let params = params![after, up_to, count, may_take_suspect, suspect_after];
        for row in tx.link.rows(sql::QUEUE, params).await? {
            let tenant: String = row.get(2);
            let chosen = Chosen::of(&row);
            match queues.back_mut() {
                Some((known, queue)) if *known == tenant => queue.push_back(chosen),
                _ => queues.push_back((tenant, VecDeque::from([chosen]))),
            }
        }
    }
    let mut chosen = Vec::new();
    while chosen.len() < most
        && let Some((tenant, mut queue)) = queues.pop_front()
    {
        let Some(next) = queue.pop_front() else { continue };
        let is_suspect = next.claims >= SUSPECT_AFTER;
        if !is_suspect || may_take_suspect {
            may_take_suspect &= !is_suspect;
            chosen.push(next);
            *turn = Some(tenant.clone());
        }
        queues.push_back((tenant, queue));
    }
    Ok(chosen)
}
