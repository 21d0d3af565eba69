//! Reads of sessions and their logs, and the client's notes.

use crate::blobs::Blobs;
use crate::rows::{self, Stored, StoredView, key, number};
use crate::statements as sql;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use tenure_core::{Event, Input, Phase, SessionId, TenantId, Timestamp};
use tenure_store::lineage::{self, Part};
use tenure_store::{Counts, Error, EventQuery, Kind, MAX_PAGE, Order, SessionQuery, SessionView};

/// Digits of the text form of an id that can be a tail.
const TAIL_DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Most digits after the prefix of an id.
const MAX_TAIL: usize = 26;

/// Bytes of events that one reply carries at most, beside its first one.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// One session.
pub(crate) fn session(connection: &Connection, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
    rows::view(connection, tenant, id)?.map(StoredView::decode).transpose()
}

/// A list of sessions. One that cannot be read is left out, and said in the log (case O-038).
pub(crate) fn sessions(connection: &Connection, query: &SessionQuery) -> Result<Vec<SessionView>, Error> {
    let (from, statement, statement_of_phase) = match query.order {
        Order::Ascending => (0, sql::VIEWS_ASCENDING, sql::VIEWS_OF_PHASE_ASCENDING),
        Order::Descending => (u128::MAX, sql::VIEWS_DESCENDING, sql::VIEWS_OF_PHASE_DESCENDING),
    };
    let after = key(query.after.map_or(from, SessionId::bits));
    let agent = query.agent.map(|agent| key(agent.bits()));
    let created_from = query.created_from.map_or(i64::MIN, |at| at.0);
    let created_before = query.created_before.map_or(i64::MAX, |at| at.0);
    let limit = query.limit.min(MAX_PAGE);
    let tenant = &query.tenant.0;
    let views = match query.phases.as_slice() {
        [phase] if !matches!(phase, Phase::Queued | Phase::Working) => {
            let params =
                params![tenant, after, agent, query.with_archived, created_from, created_before, phase.name(), limit];
            rows::all(connection, statement_of_phase, params, StoredView::of)?
        }
        phases => {
            let words: String = phases.iter().flat_map(|phase| [phase.name(), " "]).collect();
            let params = params![
                tenant,
                after,
                agent,
                query.with_archived,
                created_from,
                created_before,
                phases.is_empty(),
                words,
                limit
            ];
            rows::all(connection, statement, params, StoredView::of)?
        }
    };
    let mut decoded = Vec::with_capacity(views.len());
    for view in views {
        let id = view.id;
        match view.with_position(connection, &query.tenant)?.decode() {
            Ok(view) => decoded.push(view),
            Err(error) => tracing::error!(session = %id, %error, "a session is left out of a list"),
        }
    }
    Ok(decoded)
}

/// Ids that end with `tail`, newest first.
pub(crate) fn by_tail(
    connection: &Connection,
    tenant: &TenantId,
    tail: &str,
    limit: usize,
) -> Result<Vec<SessionId>, Error> {
    let Some((mask, wanted)) = mask(tail) else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(sql::IDS_NEWEST_FIRST).map_err(crate::errors::read)?;
    let mut rows = statement.query([&tenant.0]).map_err(crate::errors::read)?;
    let mut found = Vec::new();
    while found.len() < limit.min(MAX_PAGE)
        && let Some(row) = rows.next().map_err(crate::errors::read)?
    {
        let bits = rows::bits(row, 0).map_err(crate::errors::read)?;
        if bits & mask == wanted {
            found.push(SessionId::from_bits(bits));
        }
    }
    Ok(found)
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

/// How many sessions are in each state.
pub(crate) fn counts(connection: &Connection) -> Result<Counts, Error> {
    let count = |sql: &str| rows::value::<i64>(connection, sql, []).map(i64::unsigned_abs);
    let meta = |key: &str| rows::value::<i64>(connection, sql::GET_META, [key]).map(i64::unsigned_abs);
    let (queued, leased, ended) = (count(sql::COUNT_QUEUED)?, count(sql::COUNT_LEASED)?, meta("ended")?);
    let parked = meta("sessions")?.saturating_sub(queued + leased + ended);
    let since = rows::value::<Option<i64>>(connection, sql::QUEUED_SINCE, [])?;
    Ok(Counts { queued, leased, parked, ended, queued_since: since.map(Timestamp) })
}

/// How many sessions of a tenant are in each phase.
pub(crate) fn phases(connection: &Connection, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Error> {
    let of = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.unsigned_abs()));
    let rows = rows::all(connection, sql::COUNT_PHASES, [&tenant.0], of)?;
    let mut phases = BTreeMap::new();
    for (phase, count) in rows {
        *phases.entry(phase).or_default() += count;
    }
    Ok(phases)
}

/// Rows of one of the sessions whose rows a log is made of.
fn part_of(connection: &Connection, query: &EventQuery, part: Part, limit: usize) -> Result<Vec<Stored>, Error> {
    let statement = match query.order {
        Order::Ascending => sql::EVENTS_ASCENDING,
        Order::Descending => sql::EVENTS_DESCENDING,
    };
    let range = (number(part.after), number(part.up_to));
    let params = (key(part.session.bits()), &query.tenant.0, range.0, range.1, limit);
    rows::all(connection, statement, params, Stored::of)
}

/// Rows of a log, up to the first one that cannot be read; that one is an error if it comes first.
pub(crate) fn events(connection: &Connection, blobs: &Blobs, query: &EventQuery) -> Result<Vec<Event>, Error> {
    let limit = query.limit.min(MAX_PAGE);
    let mut rows = Vec::new();
    for part in lineage::parts(query, &[]) {
        rows = part_of(connection, query, part, limit)?;
    }
    let found: Vec<u64> = rows.iter().map(|row| row.place).collect();
    if !lineage::is_answered(query, &found) {
        rows.clear();
        for part in lineage::parts(query, &super::lineage::of(connection, query.session)?) {
            rows.extend(part_of(connection, query, part, limit - rows.len())?);
            if rows.len() == limit {
                break;
            }
        }
    }
    let mut events = Vec::with_capacity(rows.len());
    let mut bytes = 0;
    for row in rows {
        match row.sized_event(blobs) {
            Ok((event, size)) => {
                bytes += size;
                if bytes > MAX_REPLY_BYTES && !events.is_empty() {
                    break;
                }
                events.push(event);
            }
            Err(error) if events.is_empty() => {
                return Err(Error { message: format!("session {}: {}", query.session, error.message), ..error });
            }
            Err(error) => {
                tracing::error!(session = %query.session, %error, "the log can be read up to here");
                break;
            }
        }
    }
    Ok(events)
}

/// What waits in an inbox.
pub(crate) fn inbox(connection: &Connection, blobs: &Blobs, session: SessionId) -> Result<Vec<(u64, Input)>, Error> {
    rows::inputs(rows::inbox(connection, session, 0, u64::MAX)?, blobs)
}

/// The stored form of the client's notes.
pub(crate) fn encode(metadata: &BTreeMap<String, String>) -> Result<String, Error> {
    serde_json::to_string(metadata)
        .map_err(|error| Error::caused(Kind::Invalid, "the metadata cannot be written as JSON", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_matches_the_end_of_the_text_form() {
        let id = SessionId::from_bits(0x0193_7aa1_0000_7000_8000_0000_1234_56ff);
        let text = id.to_string();
        for length in 1..=text.len() - "sesn_".len() {
            let (mask, wanted) = mask(&text[text.len() - length..]).expect("it is a tail");
            assert_eq!(id.bits() & mask, wanted, "{length}");
        }
        assert_eq!(mask(&text), Some((u128::MAX, id.bits())));
        for wrong in ["u", "sesn_1", "A", "zzzzzzzzzzzzzzzzzzzzzzzzzz", "000000000000000000000000000"] {
            assert_eq!(mask(wrong), None, "{wrong}");
        }
    }
}
