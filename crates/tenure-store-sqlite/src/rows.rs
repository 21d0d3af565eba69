//! Between rows and core types.

use crate::blobs::Blobs;
use crate::errors::corrupt;
use crate::reader::sql;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeMap;
use tenure_core::{Body, Event, EventId, Input, NodeId, Session, SessionId, TenantId, Timestamp, stored};
use tenure_store::{Error, Kind, MAX_PAGE, SessionView, State};

/// An id as a column.
pub(crate) fn blob(bits: u128) -> Value {
    Value::Blob(bits.to_be_bytes().to_vec())
}

/// The bits of an id column.
pub(crate) fn bits(bytes: Vec<u8>) -> rusqlite::Result<u128> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| rusqlite::Error::InvalidQuery)?;
    Ok(u128::from_be_bytes(bytes))
}

/// State as a column.
pub(crate) fn state_number(state: State) -> i64 {
    match state {
        State::Queued => 0,
        State::Leased => 1,
        State::Parked => 2,
        State::Ended => 3,
    }
}

fn state(number: i64) -> State {
    match number {
        0 => State::Queued,
        1 => State::Leased,
        2 => State::Parked,
        _ => State::Ended,
    }
}

/// A row of `heads`, as far as the operations need it.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) session: Session,
    pub(crate) state: State,
    pub(crate) inbox_tail: u64,
    pub(crate) consumed: u64,
}

/// Reads the head of a session of `tenant`.
pub(crate) fn head(connection: &Connection, tenant: &TenantId, id: SessionId) -> Result<Head, Error> {
    let find = "SELECT state, inbox_tail, consumed, body FROM heads WHERE id = ?1 AND tenant = ?2";
    let mut statement = connection.prepare_cached(find).map_err(sql)?;
    let row = statement
        .query_row((blob(id.bits()), &tenant.0), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, String>(3)?))
        })
        .optional()
        .map_err(sql)?;
    let Some((number, inbox_tail, consumed, body)) = row else { return Err(no_session(id)) };
    let session = stored::decode_session(&body).map_err(corrupt)?;
    Ok(Head { session, state: state(number), inbox_tail, consumed })
}

/// The error for a session that does not exist for this tenant.
pub(crate) fn no_session(id: SessionId) -> Error {
    Error::new(Kind::NotFound, format!("there is no session {id}"))
}

/// The columns of [`view`], in order.
pub(crate) const VIEW: &str =
    "body, metadata, state, epoch, node, state_since, updated_at, archived_at, inbox_tail, consumed, queued_at";

/// A raw row of [`VIEW`], to be decoded outside of the query.
pub(crate) struct RawView {
    body: String,
    metadata: String,
    state: i64,
    epoch: u64,
    node: Option<Vec<u8>>,
    state_since: i64,
    updated_at: i64,
    archived_at: Option<i64>,
    inbox_tail: u64,
    consumed: u64,
    pub(crate) queued_at: i64,
}

pub(crate) fn raw_view(row: &Row<'_>) -> rusqlite::Result<RawView> {
    Ok(RawView {
        body: row.get(0)?,
        metadata: row.get(1)?,
        state: row.get(2)?,
        epoch: row.get(3)?,
        node: row.get(4)?,
        state_since: row.get(5)?,
        updated_at: row.get(6)?,
        archived_at: row.get(7)?,
        inbox_tail: row.get(8)?,
        consumed: row.get(9)?,
        queued_at: row.get(10)?,
    })
}

/// Decodes a raw row.
pub(crate) fn view(raw: RawView, queue_position: Option<u64>) -> Result<SessionView, Error> {
    Ok(SessionView {
        session: stored::decode_session(&raw.body).map_err(corrupt)?,
        metadata: metadata(&raw.metadata),
        state: state(raw.state),
        epoch: raw.epoch,
        node: raw.node.map(bits).transpose().map_err(sql)?.map(NodeId::from_bits),
        state_since: Timestamp(raw.state_since),
        updated_at: Timestamp(raw.updated_at),
        archived_at: raw.archived_at.map(Timestamp),
        inbox_len: raw.inbox_tail.saturating_sub(raw.consumed),
        queue_position,
    })
}

pub(crate) fn metadata(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Inputs of a session beyond a position, oldest first.
pub(crate) fn inbox(connection: &Connection, blobs: &Blobs, session: SessionId, after: u64) -> Result<Vec<(u64, Input)>, Error> {
    let find = "SELECT position, id, at, body, blob FROM inbox WHERE session = ?1 AND position > ?2 ORDER BY position LIMIT ?3";
    let mut statement = connection.prepare_cached(find).map_err(sql)?;
    let rows = statement
        .query_map((blob(session.bits()), after, MAX_PAGE as i64), |row| {
            Ok((row.get(0)?, bits(row.get(1)?)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .map_err(sql)?;
    rows.map(|row| {
        let (position, id, at, body, name): (u64, u128, i64, Option<String>, Option<String>) = row.map_err(sql)?;
        let text = blobs.load(body, name)?;
        let input = stored::decode_input(EventId::from_bits(id), Timestamp(at), &text).map_err(corrupt)?;
        Ok((position, input))
    })
    .collect()
}

/// The columns of an event, in order.
pub(crate) const EVENT: &str = "id, seq, at, step, body, blob";

/// A raw row of [`EVENT`].
pub(crate) type RawEvent = (u128, u64, i64, u64, Option<String>, Option<String>);

pub(crate) fn raw_event(row: &Row<'_>) -> rusqlite::Result<RawEvent> {
    Ok((bits(row.get(0)?)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
}

/// Decodes a raw row.
pub(crate) fn event(blobs: &Blobs, (id, seq, at, step, body, name): RawEvent) -> Result<Event, Error> {
    let text = blobs.load(body, name)?;
    stored::decode_event(EventId::from_bits(id), seq, Timestamp(at), step, &text).map_err(corrupt)
}

/// The call that an event of a client answers.
pub(crate) fn answers(body: &Body) -> Option<EventId> {
    match body {
        Body::UserToolConfirmation { tool_use_id, .. }
        | Body::UserCustomToolResult { tool_use_id, .. }
        | Body::AgentToolResult { tool_use_id, .. } => Some(*tool_use_id),
        _ => None,
    }
}
