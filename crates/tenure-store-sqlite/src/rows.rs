//! Between rows and the types of the port.

use crate::blobs::{Blobs, Kept};
use crate::errors;
use crate::statements as sql;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::collections::BTreeMap;
use tenure_core::{Event, EventId, Input, NodeId, SessionId, TenantId, Timestamp, stored};
use tenure_store::{Error, Kind, MAX_PAGE, SessionView, State};

/// Bytes of inputs that one reply carries at most, beside its first one: the others come with the next.
const MAX_INBOX_BYTES: usize = 64 * 1024 * 1024;

/// Queued sessions that are counted to say how many are before one.
const MAX_QUEUE_COUNT: u32 = 10_000;

/// The key of an id: its bits, big end first, which sort like the id.
pub(crate) fn key(bits: u128) -> [u8; 16] {
    bits.to_be_bytes()
}

/// A number as SQLite keeps it.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A column that holds an id.
pub(crate) fn bits(row: &Row<'_>, column: usize) -> rusqlite::Result<u128> {
    row.get::<_, [u8; 16]>(column).map(u128::from_be_bytes)
}

/// A column that holds a number that is never negative.
pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|value| u64::try_from(value).unwrap_or(0))
}

/// A column that holds a time.
pub(crate) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp)
}

/// Runs a statement that returns nothing.
pub(crate) fn run(connection: &Connection, sql: &str, params: impl Params) -> Result<usize, Error> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(errors::write)
}

/// The first row, if there is one.
pub(crate) fn first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Error> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params, map).optional())
        .map_err(errors::read)
}

/// All rows.
pub(crate) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_map(params, map)?.collect())
        .map_err(errors::read)
}

/// The first column of the only row.
pub(crate) fn value<T: FromSql>(connection: &Connection, sql: &str, params: impl Params) -> Result<T, Error> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params, |row| row.get(0)))
        .map_err(errors::read)
}

/// A row of a log or an inbox whose body is not decoded yet.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// `seq` or position.
    pub(crate) place: u64,
    pub(crate) id: EventId,
    pub(crate) at: Timestamp,
    pub(crate) body: Kept,
    /// The step of an event; whether an input is plain.
    pub(crate) extra: u64,
}

impl Stored {
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            place: count(row, 0)?,
            id: EventId::from_bits(bits(row, 1)?),
            at: time(row, 2)?,
            body: Kept { inline: row.get(3)?, blob: row.get(4)? },
            extra: count(row, 5)?,
        })
    }

    pub(crate) fn event(&self, blobs: &Blobs) -> Result<Event, Error> {
        self.sized_event(blobs).map(|(event, _)| event)
    }

    /// The event, and the bytes of its stored form.
    pub(crate) fn sized_event(&self, blobs: &Blobs) -> Result<(Event, usize), Error> {
        let text = blobs.load(&self.body)?;
        let event = stored::decode_event(self.id, self.place, self.at, self.extra, &text)
            .map_err(|error| errors::corrupt(format_args!("event {} (seq {})", self.id, self.place), error))?;
        Ok((event, text.len()))
    }

    pub(crate) fn input(&self, blobs: &Blobs) -> Result<Input, Error> {
        let text = blobs.load(&self.body)?;
        stored::decode_input(self.id, self.at, &text)
            .map_err(|error| errors::corrupt(format_args!("input {}", self.id), error))
    }
}

/// What waits in an inbox beyond `consumed`; none is asked for if there is none.
pub(crate) fn inbox(
    connection: &Connection,
    session: SessionId,
    consumed: u64,
    tail: u64,
) -> Result<Vec<Stored>, Error> {
    if tail <= consumed {
        return Ok(Vec::new());
    }
    let params = (key(session.bits()), number(consumed), MAX_PAGE);
    all(connection, sql::INBOX, params, Stored::of)
}

/// Decodes inputs, as many as one reply may carry.
pub(crate) fn inputs(rows: Vec<Stored>, blobs: &Blobs) -> Result<Vec<(u64, Input)>, Error> {
    let mut inputs = Vec::with_capacity(rows.len());
    let mut bytes = 0;
    for row in rows {
        let text = blobs.load(&row.body)?;
        bytes += text.len();
        if bytes > MAX_INBOX_BYTES && !inputs.is_empty() {
            break;
        }
        let input = stored::decode_input(row.id, row.at, &text)
            .map_err(|error| errors::corrupt(format_args!("input {}", row.id), error))?;
        inputs.push((row.place, input));
    }
    Ok(inputs)
}

/// The state of a row.
pub(crate) fn state(value: i64) -> State {
    match value {
        0 => State::Queued,
        1 => State::Leased,
        2 => State::Parked,
        _ => State::Ended,
    }
}

/// A view whose texts are not decoded yet.
#[derive(Debug)]
pub(crate) struct StoredView {
    pub(crate) id: SessionId,
    body: String,
    metadata: String,
    state: State,
    epoch: u64,
    node: Option<NodeId>,
    state_since: Timestamp,
    updated_at: Timestamp,
    archived_at: Option<Timestamp>,
    inbox_len: u64,
    queued_at: Timestamp,
    queue: Option<String>,
    queue_position: Option<u64>,
}

impl StoredView {
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            body: row.get(0)?,
            metadata: row.get(1)?,
            state: state(row.get(2)?),
            epoch: count(row, 3)?,
            node: row.get::<_, Option<[u8; 16]>>(4)?.map(|node| NodeId::from_bits(u128::from_be_bytes(node))),
            state_since: time(row, 5)?,
            updated_at: time(row, 6)?,
            archived_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
            inbox_len: count(row, 8)?,
            queued_at: time(row, 9)?,
            id: SessionId::from_bits(bits(row, 10)?),
            queue: row.get(11)?,
            queue_position: None,
        })
    }

    /// Counts how many are queued before it.
    pub(crate) fn with_position(mut self, connection: &Connection, tenant: &TenantId) -> Result<Self, Error> {
        if self.state == State::Queued {
            let (at, id) = (self.queued_at.0, key(self.id.bits()));
            let before: i64 = match &self.queue {
                None => value(connection, sql::QUEUED_BEFORE, (&tenant.0, at, id, MAX_QUEUE_COUNT))?,
                Some(queue) => {
                    value(connection, sql::QUEUED_BEFORE_OF_LOOPS, (&tenant.0, at, id, MAX_QUEUE_COUNT, queue))?
                }
            };
            self.queue_position = Some(before.unsigned_abs());
        }
        Ok(self)
    }

    pub(crate) fn decode(self) -> Result<SessionView, Error> {
        let session = stored::decode_session(&self.body).map_err(|error| errors::corrupt(self.id, error))?;
        Ok(SessionView {
            session,
            metadata: metadata(&self.metadata)?,
            state: self.state,
            epoch: self.epoch,
            node: self.node,
            state_since: self.state_since,
            updated_at: self.updated_at,
            archived_at: self.archived_at,
            inbox_len: self.inbox_len,
            queue_position: self.queue_position,
        })
    }
}

/// The client's notes of a session.
pub(crate) fn metadata(text: &str) -> Result<BTreeMap<String, String>, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::caused(Kind::Corrupt, format!("stored metadata cannot be read: {error}"), error))
}

/// The view of one session.
pub(crate) fn view(connection: &Connection, tenant: &TenantId, id: SessionId) -> Result<Option<StoredView>, Error> {
    let view = first(connection, sql::VIEW, (key(id.bits()), &tenant.0), StoredView::of)?;
    view.map(|view| view.with_position(connection, tenant)).transpose()
}
