//! Conditions of upstreams: loaded under a lock, decided about by the core, stored.

use crate::link::Link;
use crate::params::{key, number, params, tenant_of, tenant_text};
use crate::rows::{bits, count, shard};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::{Trouble, corrupt};
use tenure_core::condition::{Admission, Condition, MAX_RELEASE, Report, Settlement, Turn};
use tenure_core::{ConditionId, SessionId, TenantId, Timestamp, stored};
use tenure_store::{Admit, ConditionView, Error, Hint, Kind, Released};
use tokio_postgres::Row;

/// Text of a condition about all models of a credential.
const EVERY_MODEL: &str = "";

/// Opens the condition of a key, or adds to what is known of it. Two that open it at once meet at the
/// key of the table, and the second one looks again.
pub(crate) async fn report(tx: &mut Tx, report: &Report) -> Result<Condition, Trouble> {
    let model = report.key.model.as_deref().unwrap_or(EVERY_MODEL);
    let row = tx.link.first(sql::CONDITION_OF_KEY, params![report.key.credential.as_str(), model]).await?;
    let earlier = row.map(|row| decode(&row)).transpose()?;
    let condition = Condition::after(earlier, report, tx.now);
    store(tx, &condition).await?;
    Ok(condition)
}

/// Whether the holder of a lease may send.
pub(crate) async fn admit(tx: &mut Tx, admit: &Admit) -> Result<Admission, Trouble> {
    let lease = &admit.lease;
    let (shard, session) = (shard(lease.session), key(lease.session.bits()));
    let fence = params![shard, session, number(lease.epoch), key(lease.nonce.bits())];
    let Some(row) = tx.link.first(sql::GRANT_OF_LEASE, fence).await? else {
        let message = format!("the lease of session {} with epoch {} is gone", lease.session, lease.epoch);
        return Err(Error::new(Kind::Fenced, message).into());
    };
    let grant = row.get::<_, Option<i64>>(0).map(i64::unsigned_abs);
    if grant.is_some() {
        tx.link.run(sql::USE_GRANT, params![shard, session]).await?;
    }
    let Some(mut condition) = load(tx, admit.condition).await? else { return Ok(Admission::Free) };
    let has_others = waiting(&tx.link, admit.condition, 1).await? > 0;
    let before = condition.clone();
    let admission = condition.admit(lease.session, grant, has_others, admit.insists, tx.now);
    if condition != before {
        store(tx, &condition).await?;
    }
    Ok(admission)
}

/// What a probe led to.
pub(crate) async fn settle(tx: &mut Tx, id: ConditionId, probe: u64, settlement: Settlement) -> Result<bool, Trouble> {
    let Some(mut condition) = load(tx, id).await? else { return Ok(false) };
    let is_settled = condition.settle(probe, settlement, tx.now);
    if is_settled {
        store(tx, &condition).await?;
    }
    Ok(is_settled)
}

/// Changes a condition, if it is there.
pub(crate) async fn change(
    tx: &mut Tx,
    id: ConditionId,
    change: fn(&mut Condition, Timestamp),
) -> Result<Option<Condition>, Trouble> {
    let Some(mut condition) = load(tx, id).await? else { return Ok(None) };
    change(&mut condition, tx.now);
    store(tx, &condition).await?;
    Ok(Some(condition))
}

/// Whether [`release`] may do anything now.
pub(crate) async fn wants_look(link: &Link, now: Timestamp) -> Result<bool, Trouble> {
    for condition in all(link, sql::CONDITIONS).await? {
        if condition.wants_look(waiting(link, condition.id, 1).await?, now) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Looks after all conditions; one node at a time, because the rows are locked.
pub(crate) async fn release(tx: &mut Tx) -> Result<Released, Trouble> {
    let mut woken = 0;
    for condition in all(&tx.link, sql::CONDITIONS_LOCKED).await? {
        woken += look(tx, condition).await?;
    }
    if woken > 0 {
        tx.hints.push(Hint::Runnable);
    }
    Ok(Released { conditions: views(&tx.link, None).await?, woken, now: tx.now })
}

async fn look(tx: &mut Tx, mut condition: Condition) -> Result<u64, Trouble> {
    let before = condition.clone();
    let waiting = waiting(&tx.link, condition.id, MAX_RELEASE).await?;
    let mut woken = 0;
    match condition.look(waiting, tx.now) {
        Turn::Nothing => {}
        Turn::Remove => {
            tx.link.run(sql::REMOVE_CONDITION, params![key(condition.id.bits())]).await?;
            return Ok(0);
        }
        Turn::Probe => {
            if let Some(session) = let_go(tx, &mut condition).await? {
                condition.give_probe(session, tx.now);
                woken = 1;
            }
        }
        Turn::Release(count) => {
            while woken < count && let_go(tx, &mut condition).await?.is_some() {
                woken += 1;
            }
            condition.released(woken, tx.now);
        }
    }
    if condition != before {
        store(tx, &condition).await?;
    }
    Ok(woken)
}

/// Queues the one of the next tenant that waited longest, with the right to leave.
async fn let_go(tx: &mut Tx, condition: &mut Condition) -> Result<Option<SessionId>, Trouble> {
    let id = key(condition.id.bits());
    loop {
        let turn = condition.turn.as_ref().map(tenant_text).unwrap_or_default();
        let row = match tx.link.first(sql::NEXT_WAITING_TENANT, params![id, turn]).await? {
            Some(row) => Some(row),
            None => tx.link.first(sql::NEXT_WAITING_TENANT, params![id, ""]).await?,
        };
        let Some(tenant) = row.map(|row| row.get::<_, String>(0)) else { return Ok(None) };
        let Some(row) = tx.link.first(sql::LONGEST_WAITING, params![id, tenant.as_str()]).await? else { continue };
        let session = SessionId::from_bits(bits(&row, 1));
        let params = params![row.get::<_, i16>(0), key(session.bits()), tx.now.0, number(condition.generation)];
        // An input may have queued it meanwhile: then it needs nobody's leave.
        if tx.link.run(sql::LET_GO, params).await? == 0 {
            continue;
        }
        tx.changed(session);
        condition.turn = Some(tenant_of(&tenant));
        return Ok(Some(session));
    }
}

/// All conditions, with those of a tenant or of all that wait.
pub(crate) async fn views(link: &Link, tenant: Option<&TenantId>) -> Result<Vec<ConditionView>, Trouble> {
    let tenant = tenant.map(tenant_text);
    let mut views = Vec::new();
    for condition in all(link, sql::CONDITIONS).await? {
        let row = link.one(sql::COUNT_WAITING, params![key(condition.id.bits()), tenant]).await?;
        views.push(ConditionView { condition, waiting: count(&row, 0) });
    }
    Ok(views)
}

async fn waiting(link: &Link, id: ConditionId, most: u64) -> Result<u64, Trouble> {
    Ok(count(&link.one(sql::SOME_WAITING, params![key(id.bits()), number(most)]).await?, 0))
}

async fn all(link: &Link, statement: &str) -> Result<Vec<Condition>, Trouble> {
    link.rows(statement, params![]).await?.iter().map(decode).collect()
}

async fn load(tx: &Tx, id: ConditionId) -> Result<Option<Condition>, Trouble> {
    let row = tx.link.first(sql::CONDITION, params![key(id.bits())]).await?;
    row.map(|row| decode(&row)).transpose()
}

fn decode(row: &Row) -> Result<Condition, Trouble> {
    Ok(stored::decode_condition(row.get(0)).map_err(|error| corrupt("a condition", error))?)
}

async fn store(tx: &Tx, condition: &Condition) -> Result<(), Trouble> {
    let model = condition.key.model.as_deref().unwrap_or(EVERY_MODEL);
    let body = stored::encode_condition(condition);
    let row = params![key(condition.id.bits()), condition.key.credential.as_str(), model, body];
    tx.link.run(sql::PUT_CONDITION, row).await?;
    Ok(())
}
