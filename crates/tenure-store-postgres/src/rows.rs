//! Between rows and the types of the port.

use crate::link::Link;
use crate::params::{key, limit, number, params, tenant_text};
use crate::payloads::{self, Kept};
use crate::statements as sql;
use crate::trouble::{Trouble, corrupt};
use std::collections::BTreeMap;
use tenure_core::{Event, EventId, Input, NodeId, SessionId, TenantId, Timestamp, stored};
use tenure_store::{Error, Kind, MAX_PAGE, SessionView, State};
use tokio_postgres::Row;
use uuid::Uuid;

/// Bytes of inputs that one reply carries at most, beside its first one: the others come with the next.
const MAX_INBOX_BYTES: usize = 64 * 1024 * 1024;

/// Queued sessions that are counted to say how many are before one.
const MAX_QUEUE_COUNT: i64 = 10_000;

/// The shard of a session.
pub(crate) fn shard(session: SessionId) -> i16 {
    i16::from(session.shard().0)
}

/// A column that holds an id.
pub(crate) fn bits(row: &Row, column: usize) -> u128 {
    row.get::<_, Uuid>(column).as_u128()
}

/// A column that holds a number that is never negative.
pub(crate) fn count(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
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
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            place: count(row, 0),
            id: EventId::from_bits(bits(row, 1)),
            at: Timestamp(row.get(2)),
            body: Kept { inline: row.get(3), payload: row.get(4) },
            extra: count(row, 5),
        }
    }

    pub(crate) async fn event(&self, link: &Link) -> Result<Event, Trouble> {
        self.sized_event(link).await.map(|(event, _)| event)
    }

    /// The event, and the bytes of its stored form.
    pub(crate) async fn sized_event(&self, link: &Link) -> Result<(Event, usize), Trouble> {
        let text = payloads::load(link, &self.body).await?;
        let event = stored::decode_event(self.id, self.place, self.at, self.extra, &text)
            .map_err(|error| corrupt(format_args!("event {} (seq {})", self.id, self.place), error))?;
        Ok((event, text.len()))
    }

    pub(crate) async fn input(&self, link: &Link) -> Result<Input, Trouble> {
        let text = payloads::load(link, &self.body).await?;
        let input = stored::decode_input(self.id, self.at, &text);
        Ok(input.map_err(|error| corrupt(format_args!("input {}", self.id), error))?)
    }
}

/// What waits in an inbox beyond `consumed`; none is asked for if there is none.
pub(crate) async fn inbox(link: &Link, session: SessionId, consumed: u64, tail: u64) -> Result<Vec<Stored>, Trouble> {
    if tail <= consumed {
        return Ok(Vec::new());
    }
    let params = params![shard(session), key(session.bits()), number(consumed), limit(MAX_PAGE)];
    Ok(link.rows(sql::INBOX, params).await?.iter().map(Stored::of).collect())
}

/// Decodes inputs, as many as one reply may carry.
pub(crate) async fn inputs(link: &Link, rows: Vec<Stored>) -> Result<Vec<(u64, Input)>, Trouble> {
    let mut inputs = Vec::with_capacity(rows.len());
    let mut bytes = 0;
    for row in rows {
        let text = payloads::load(link, &row.body).await?;
        bytes += text.len();
        if bytes > MAX_INBOX_BYTES && !inputs.is_empty() {
            break;
        }
        let input = stored::decode_input(row.id, row.at, &text)
            .map_err(|error| corrupt(format_args!("input {}", row.id), error))?;
        inputs.push((row.place, input));
    }
    Ok(inputs)
}

/// The state of a row.
fn state(value: i16) -> State {
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
    queued_at: i64,
    queue: Option<String>,
    queue_position: Option<u64>,
}

impl StoredView {
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            id: SessionId::from_bits(bits(row, 0)),
            body: row.get(1),
            metadata: row.get(2),
            state: state(row.get(3)),
            epoch: count(row, 4),
            node: row.get::<_, Option<Uuid>>(5).map(|node| NodeId::from_bits(node.as_u128())),
            state_since: Timestamp(row.get(6)),
            updated_at: Timestamp(row.get(7)),
            archived_at: row.get::<_, Option<i64>>(8).map(Timestamp),
            inbox_len: count(row, 9),
            queued_at: row.get(10),
            queue: row.get(11),
            queue_position: None,
        }
    }

    /// Counts how many are queued before it.
    pub(crate) async fn with_position(mut self, link: &Link, tenant: &TenantId) -> Result<Self, Trouble> {
        if self.state == State::Queued {
            let (tenant, at, id) = (tenant_text(tenant), self.queued_at, key(self.id.bits()));
            let row = match &self.queue {
                None => link.one(sql::QUEUED_BEFORE, params![tenant, at, id, MAX_QUEUE_COUNT]).await?,
                Some(queue) => {
                    let params = params![tenant, at, id, MAX_QUEUE_COUNT, queue.as_str()];
                    link.one(sql::QUEUED_BEFORE_OF_LOOPS, params).await?
                }
            };
            self.queue_position = Some(count(&row, 0));
        }
        Ok(self)
    }

    pub(crate) fn decode(self) -> Result<SessionView, Error> {
        let session = stored::decode_session(&self.body).map_err(|error| corrupt(self.id, error))?;
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
pub(crate) async fn view(link: &Link, tenant: &TenantId, id: SessionId) -> Result<Option<StoredView>, Trouble> {
    let params = params![shard(id), key(id.bits()), tenant_text(tenant)];
    match link.first(sql::VIEW, params).await? {
        Some(row) => Ok(Some(StoredView::of(&row).with_position(link, tenant).await?)),
        None => Ok(None),
    }
}
