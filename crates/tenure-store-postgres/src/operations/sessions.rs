//! Reads of sessions and their logs, and the client's notes.

use crate::link::Link;
use crate::params::{key, limit, number, params, tenant_text};
use crate::rows::{self, Stored, StoredView, bits, count, shard};
use crate::statements as sql;
use crate::trouble::Trouble;
use std::collections::BTreeMap;
use tenure_core::{Event, Input, Phase, SessionId, TenantId, Timestamp};
use tenure_store::lineage::{self, Part};
use tenure_store::{Counts, Error, EventQuery, Kind, MAX_PAGE, Order, SessionQuery, SessionView};

/// Digits of the text form of an id that can be a tail.
const TAIL_DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Most digits after the prefix of an id.
const MAX_TAIL: usize = 26;

/// Ids that one look for a tail reads.
const TAIL_PAGE: usize = 10_000;

/// Bytes of events that one reply carries at most, beside its first one.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// One session.
pub(crate) async fn session(link: &Link, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Trouble> {
    Ok(rows::view(link, tenant, id).await?.map(StoredView::decode).transpose()?)
}

/// A list of sessions. One that cannot be read is left out, and said in the log (case O-038).
pub(crate) async fn sessions(link: &Link, query: &SessionQuery) -> Result<Vec<SessionView>, Trouble> {
    let (from, statement, statement_of_phase) = match query.order {
        Order::Ascending => (0, sql::VIEWS_ASCENDING, sql::VIEWS_OF_PHASE_ASCENDING),
        Order::Descending => (u128::MAX, sql::VIEWS_DESCENDING, sql::VIEWS_OF_PHASE_DESCENDING),
    };
    let tenant = tenant_text(&query.tenant);
    let after = key(query.after.map_or(from, SessionId::bits));
    let agent = query.agent.map(|agent| key(agent.bits()));
    let created_from = query.created_from.map_or(i64::MIN, |at| at.0);
    let created_before = query.created_before.map_or(i64::MAX, |at| at.0);
    let most = limit(query.limit.min(MAX_PAGE));
    let archived = query.with_archived;
    let found = match query.phases.as_slice() {
        [phase] if !matches!(phase, Phase::Queued | Phase::Working) => {
            let params = params![tenant, after, agent, archived, created_from, created_before, phase.name(), most];
            link.rows(statement_of_phase, params).await?
        }
        phases => {
            let words: Vec<String> = phases.iter().map(|phase| phase.name().to_owned()).collect();
            let params =
                params![tenant, after, agent, archived, created_from, created_before, phases.is_empty(), words, most];
            link.rows(statement, params).await?
        }
    };
    let mut decoded = Vec::with_capacity(found.len());
    for view in found.iter().map(StoredView::of) {
        let id = view.id;
        match view.with_position(link, &query.tenant).await?.decode() {
            Ok(view) => decoded.push(view),
            Err(error) => tracing::error!(session = %id, %error, "a session is left out of a list"),
        }
    }
    Ok(decoded)
}

/// Ids that end with `tail`, newest first.
pub(crate) async fn by_tail(
    link: &Link,
    tenant: &TenantId,
    tail: &str,
    most: usize,
) -> Result<Vec<SessionId>, Trouble> {
    let Some((mask, wanted)) = mask(tail) else { return Ok(Vec::new()) };
    let (mut found, mut below) = (Vec::new(), u128::MAX);
    loop {
        let page = link.rows(sql::IDS_BELOW, params![tenant_text(tenant), key(below), limit(TAIL_PAGE)]).await?;
        for row in &page {
            let id = bits(row, 0);
            if id & mask == wanted {
                found.push(SessionId::from_bits(id));
                if found.len() >= most.min(MAX_PAGE) {
                    return Ok(found);
                }
            }
        }
        match page.last() {
            Some(row) if page.len() == TAIL_PAGE => below = bits(row, 0),
            Some(_) | None => return Ok(found),
        }
    }
}

/// The lowest bits of an id that ends with `tail`; `None` if no id can.
fn mask(tail: &str) -> Option<(u128, u128)> {
    if let Ok(id) = tail.parse::<SessionId>() {
        return Some((u128::MAX, id.bits()));
    }
    if tail.len() > MAX_TAIL {
        return None;
    }
    let value = tail.bytes().try_fold(0u128, |sum, byte| {
        let digit = TAIL_DIGITS.iter().position(|digit| *digit == byte)?;
        // A whole id begins with a digit below eight: nothing is shifted out.
        (sum >> 123 == 0).then_some(sum << 5 | digit as u128)
    })?;
    let bits = u32::try_from(tail.len() * 5).ok()?;
    Some((1u128.checked_shl(bits).map_or(u128::MAX, |bit| bit - 1), value))
}

/// How many sessions of a tenant are in each phase.
pub(crate) async fn phases(link: &Link, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Trouble> {
    let rows = link.rows(sql::COUNT_PHASES, params![tenant.0]).await?;
    Ok(rows.iter().map(|row| (row.get::<_, String>(0), count(row, 1))).collect())
}

/// How many sessions are in each state.
pub(crate) async fn counts(link: &Link) -> Result<Counts, Trouble> {
    let mut counts = Counts::default();
    for row in link.rows(sql::COUNTS, params![]).await? {
        let number = count(&row, 1);
        match row.get::<_, i16>(0) {
            0 => counts.queued = number,
            1 => counts.leased = number,
            2 => counts.parked = number,
            _ => counts.ended = number,
        }
    }
    counts.queued_since = link.one(sql::QUEUED_SINCE, params![]).await?.get::<_, Option<i64>>(0).map(Timestamp);
    Ok(counts)
}

/// Rows of one of the sessions whose rows a log is made of.
async fn part_of(link: &Link, query: &EventQuery, part: Part, most: usize) -> Result<Vec<Stored>, Trouble> {
    let statement = match query.order {
        Order::Ascending => sql::EVENTS_ASCENDING,
        Order::Descending => sql::EVENTS_DESCENDING,
    };
    let params = params![
        shard(part.session),
        key(part.session.bits()),
        tenant_text(&query.tenant),
        number(part.after),
        number(part.up_to),
        limit(most),
    ];
    Ok(link.rows(statement, params).await?.iter().map(Stored::of).collect())
}

/// Rows of a log, up to the first one that cannot be read; that one is an error if it comes first.
pub(crate) async fn events(link: &Link, query: &EventQuery) -> Result<Vec<Event>, Trouble> {
    let limit = query.limit.min(MAX_PAGE);
    let mut rows = Vec::new();
    for part in lineage::parts(query, &[]) {
        rows = part_of(link, query, part, limit).await?;
    }
    let found: Vec<u64> = rows.iter().map(|row| row.place).collect();
    if !lineage::is_answered(query, &found) {
        rows.clear();
        for part in lineage::parts(query, &super::lineage::of(link, query.session).await?) {
            rows.extend(part_of(link, query, part, limit - rows.len()).await?);
            if rows.len() == limit {
                break;
            }
        }
    }
    let mut events = Vec::with_capacity(rows.len());
    let mut bytes = 0;
    for row in rows {
        match row.sized_event(link).await {
            Ok((event, size)) => {
                bytes += size;
                if bytes > MAX_REPLY_BYTES && !events.is_empty() {
                    break;
                }
                events.push(event);
            }
            Err(Trouble::Refused(error)) if events.is_empty() => {
                let message = format!("session {}: {}", query.session, error.message);
                return Err(Error { message, ..error }.into());
            }
            Err(Trouble::Refused(error)) => {
                tracing::error!(session = %query.session, %error, "the log can be read up to here");
                break;
            }
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(events)
}

/// What waits in an inbox.
pub(crate) async fn inbox(link: &Link, session: SessionId) -> Result<Vec<(u64, Input)>, Trouble> {
    let waiting = rows::inbox(link, session, 0, u64::MAX).await?;
    rows::inputs(link, waiting).await
}

/// The stored form of the client's notes.
pub(crate) fn encode(metadata: &BTreeMap<String, String>) -> Result<String, Error> {
    serde_json::to_string(metadata)
        .map_err(|error| Error::caused(Kind::Invalid, "the metadata cannot be written as JSON", error))
}
