//! Conditions of upstreams: loaded, decided about by the core, stored.

use crate::errors;
use crate::rows::{self, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::{Connection, Row};
use tenure_core::condition::{Admission, Condition, MAX_RELEASE, Report, Settlement, Turn};
use tenure_core::{ConditionId, SessionId, TenantId, Timestamp, stored};
use tenure_store::{Admit, ConditionView, Error, Hint, Kind, Released};

/// Text of a condition about all models of a credential.
const EVERY_MODEL: &str = "";

/// Opens the condition of a key, or adds to what is known of it.
pub(crate) fn report(work: &mut Work<'_>, report: &Report) -> Result<Condition, Error> {
    let model = report.key.model.as_deref().unwrap_or(EVERY_MODEL);
    let earlier = rows::first(work.connection, sql::CONDITION_OF_KEY, (&report.key.credential, model), text)?;
    let earlier = earlier.map(|text| decode(&text)).transpose()?;
    let condition = Condition::after(earlier, report, work.now);
    store(work, &condition)?;
    Ok(condition)
}

/// Whether the holder of a lease may send.
pub(crate) fn admit(work: &mut Work<'_>, admit: &Admit) -> Result<Admission, Error> {
    let lease = &admit.lease;
    let params = (key(lease.session.bits()), number(lease.epoch), key(lease.nonce.bits()));
    let grant = rows::first(work.connection, sql::GRANT_OF_LEASE, params, |row| row.get::<_, Option<i64>>(0))?;
    let Some(grant) = grant else {
        let message = format!("the lease of session {} with epoch {} is gone", lease.session, lease.epoch);
        return Err(Error::new(Kind::Fenced, message));
    };
    if grant.is_some() {
        rows::run(work.connection, sql::USE_GRANT, [key(lease.session.bits())])?;
    }
    let Some(mut condition) = load(work.connection, admit.condition)? else { return Ok(Admission::Free) };
    let has_others = waiting(work.connection, admit.condition, 1)? > 0;
    let before = condition.clone();
    let grant = grant.map(i64::unsigned_abs);
    let admission = condition.admit(lease.session, grant, has_others, admit.insists, work.now);
    if condition != before {
        store(work, &condition)?;
    }
    Ok(admission)
}

/// What a probe led to.
pub(crate) fn settle(work: &mut Work<'_>, id: ConditionId, probe: u64, settlement: Settlement) -> Result<bool, Error> {
    let Some(mut condition) = load(work.connection, id)? else { return Ok(false) };
    let is_settled = condition.settle(probe, settlement, work.now);
    if is_settled {
        store(work, &condition)?;
    }
    Ok(is_settled)
}

/// Changes a condition, if it is there.
pub(crate) fn change(
    work: &mut Work<'_>,
    id: ConditionId,
    change: impl Fn(&mut Condition, Timestamp),
) -> Result<Option<Condition>, Error> {
    let Some(mut condition) = load(work.connection, id)? else { return Ok(None) };
    change(&mut condition, work.now);
    store(work, &condition)?;
    Ok(Some(condition))
}

/// Whether [`release`] may do anything now.
pub(crate) fn wants_look(connection: &Connection, now: Timestamp) -> Result<bool, Error> {
    for condition in all(connection)? {
        if condition.wants_look(waiting(connection, condition.id, 1)?, now) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Looks after all conditions.
pub(crate) fn release(work: &mut Work<'_>) -> Result<Released, Error> {
    let mut woken = 0;
    for condition in all(work.connection)? {
        woken += look(work, condition)?;
    }
    if woken > 0 {
        work.hints.push(Hint::Runnable);
    }
    Ok(Released { conditions: views(work.connection, None)?, woken, now: work.now })
}

fn look(work: &mut Work<'_>, mut condition: Condition) -> Result<u64, Error> {
    let before = condition.clone();
    let waiting = waiting(work.connection, condition.id, MAX_RELEASE)?;
    let mut woken = 0;
    match condition.look(waiting, work.now) {
        Turn::Nothing => {}
        Turn::Remove => {
            rows::run(work.connection, sql::REMOVE_CONDITION, [key(condition.id.bits())])?;
            return Ok(0);
        }
        Turn::Probe => {
            if let Some(session) = let_go(work, &mut condition)? {
                condition.give_probe(session, work.now);
                woken = 1;
            }
        }
        Turn::Release(count) => {
            while woken < count && let_go(work, &mut condition)?.is_some() {
                woken += 1;
            }
            condition.released(woken, work.now);
        }
    }
    if condition != before {
        store(work, &condition)?;
    }
    Ok(woken)
}

/// Queues the one of the next tenant that waited longest, with the right to leave.
fn let_go(work: &mut Work<'_>, condition: &mut Condition) -> Result<Option<SessionId>, Error> {
    let id = key(condition.id.bits());
    let turn = condition.turn.as_ref().map_or("", |tenant| tenant.0.as_str());
    let tenant = match rows::first(work.connection, sql::NEXT_WAITING_TENANT, (id, turn), text)? {
        Some(tenant) => Some(tenant),
        None => rows::first(work.connection, sql::FIRST_WAITING_TENANT, [id], text)?,
    };
    let Some(tenant) = tenant else { return Ok(None) };
    let session = rows::first(work.connection, sql::LONGEST_WAITING, (id, &tenant), |row| rows::bits(row, 0))?;
    let Some(session) = session.map(SessionId::from_bits) else { return Ok(None) };
    let params = (work.now.0, key(session.bits()), number(condition.generation));
    rows::run(work.connection, sql::LET_GO, params)?;
    work.hints.push(Hint::Session(session));
    condition.turn = Some(TenantId(tenant));
    Ok(Some(session))
}

/// All conditions, with those of a tenant or of all that wait.
pub(crate) fn views(connection: &Connection, tenant: Option<&TenantId>) -> Result<Vec<ConditionView>, Error> {
    let view = |condition: Condition| {
        let id = key(condition.id.bits());
        let waiting: i64 = match tenant {
            Some(tenant) => rows::value(connection, sql::COUNT_WAITING_OF_TENANT, (id, &tenant.0))?,
            None => rows::value(connection, sql::COUNT_WAITING, [id])?,
        };
        Ok(ConditionView { condition, waiting: waiting.unsigned_abs() })
    };
    all(connection)?.into_iter().map(view).collect()
}

fn waiting(connection: &Connection, id: ConditionId, most: u64) -> Result<u64, Error> {
    let count: i64 = rows::value(connection, sql::SOME_WAITING, (key(id.bits()), number(most)))?;
    Ok(count.unsigned_abs())
}

fn all(connection: &Connection) -> Result<Vec<Condition>, Error> {
    let texts = rows::all(connection, sql::CONDITIONS, [], text)?;
    texts.iter().map(|text| decode(text)).collect()
}

fn load(connection: &Connection, id: ConditionId) -> Result<Option<Condition>, Error> {
    let text = rows::first(connection, sql::CONDITION, [key(id.bits())], text)?;
    text.map(|text| decode(&text)).transpose()
}

fn text(row: &Row<'_>) -> rusqlite::Result<String> {
    row.get(0)
}

fn decode(text: &str) -> Result<Condition, Error> {
    stored::decode_condition(text).map_err(|error| errors::corrupt("a condition", error))
}

fn store(work: &Work<'_>, condition: &Condition) -> Result<(), Error> {
    let model = condition.key.model.as_deref().unwrap_or(EVERY_MODEL);
    let body = stored::encode_condition(condition);
    let params = (key(condition.id.bits()), &condition.key.credential, model, body);
    rows::run(work.connection, sql::PUT_CONDITION, params).map(|_| ())
}
