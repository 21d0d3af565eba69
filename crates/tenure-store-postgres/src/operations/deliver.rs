//! Appends inputs to an inbox. What becomes of each is decided here, under the lock of the head
//! (hazard Z-25), by the core.

use crate::operations::{idempotency, lineage, sessions};
use crate::params::{key, number, params, tenant_text};
use crate::payloads::Kept;
use crate::rows::{self, Stored, count, shard};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::{Trouble, corrupt};
use serde_json::{Value, json};
use tenure_core::{
    Accepted, EventId, Input, InputBody, Refused, Session, SessionId, TenantId, Timestamp, accept, stored,
};
use tenure_store::lineage::Ancestor;
use tenure_store::{Error, Hint, Idempotency, Kind, Notes};
use uuid::Uuid;

/// Rows of a log that are looked through for an input whose delivery may have been committed.
const LATE_ROWS: i64 = 1_000;

/// An input whose body is encoded, and kept if it is large.
#[derive(Debug)]
pub(crate) struct NewInput {
    pub(crate) id: EventId,
    pub(crate) body: InputBody,
    pub(crate) kept: Kept,
}

/// Inputs for one session.
#[derive(Debug)]
pub(crate) struct Letters {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    pub(crate) inputs: Vec<NewInput>,
    pub(crate) notes: Option<Notes>,
    pub(crate) idempotency: Option<Idempotency>,
}

/// A receipt whose body is not decoded yet.
#[derive(Clone, Debug)]
pub(crate) enum Slip {
    /// The input of this place in the request waits under this id.
    Own(EventId, Timestamp),
    /// An earlier input waits.
    Earlier(Stored),
    /// This event counts.
    Logged(Stored),
    /// Nothing had to be done.
    Nothing,
}

/// What a delivery finds in the head.
struct Head {
    state: i16,
    tail: u64,
    delivered: Option<Uuid>,
}

/// Delivers, or finds what an earlier request delivered.
pub(crate) async fn deliver(tx: &mut Tx, letters: &Letters) -> Result<(Vec<Slip>, bool), Trouble> {
    let Letters { tenant, session: id, inputs, .. } = letters;
    let head = lock(tx, tenant, *id).await?;
    if let Some(result) = idempotency::earlier(&tx.link, tenant, letters.idempotency.as_ref()).await? {
        return Ok((replay(tx, *id, inputs, &result).await?, true));
    }
    let last = letters.notes.as_ref().map(|notes| notes.id).or(inputs.last().map(|input| input.id));
    if tx.may_repeat && was_delivered(tx, *id, &head, last).await? {
        let now = tx.now;
        return Ok((inputs.iter().map(|input| Slip::Own(input.id, now)).collect(), false));
    }
    let body: String = tx.link.one(sql::BODY, params![shard(*id), key(id.bits())]).await?.get(0);
    let session = stored::decode_session(&body).map_err(|error| corrupt(id, error))?;
    let slips = add(tx, tenant, &session, head, inputs).await?;
    if let Some(notes) = &letters.notes {
        annotate(tx, tenant, &session, notes).await?;
    }
    let result = Value::Array(slips.iter().zip(inputs).map(|(slip, input)| note(slip, &input.body)).collect());
    idempotency::remember(tx, tenant, letters.idempotency.as_ref(), &result).await?;
    Ok((slips, false))
}

/// Changes the client's notes, and puts an input that tells of them into the inbox of a session that has
/// not ended.
async fn annotate(tx: &mut Tx, tenant: &TenantId, session: &Session, notes: &Notes) -> Result<(), Trouble> {
    let (id, now) = (session.id, tx.now);
    let row = tx.link.one(sql::METADATA, params![shard(id), key(id.bits()), tenant_text(tenant)]).await?;
    let Some(after) = notes.apply(&rows::metadata(row.get(0))?) else { return Ok(()) };
    let body = InputBody::Metadata(after.clone());
    // Always in the row: notes are short.
    let inline = Some(stored::encode_input(&Input { id: notes.id, at: now, body: body.clone() }));
    let told = NewInput { id: notes.id, body, kept: Kept { inline, payload: None } };
    match to_head(tx, tenant, session, &[told]).await {
        Ok(_) => {}
        Err(Trouble::Refused(error)) if is_ended(&error) => tx.changed(id),
        Err(trouble) => return Err(trouble),
    }
    tx.link.run(sql::SET_METADATA, params![shard(id), key(id.bits()), sessions::encode(&after)?, now.0]).await?;
    Ok(())
}

fn is_ended(error: &Error) -> bool {
    let reason = error.source.as_ref().and_then(|source| source.downcast_ref::<Refused>());
    reason == Some(&Refused::Ended)
}

/// Delivers to a session whose head is known; all or nothing.
pub(crate) async fn to_head(
    tx: &mut Tx,
    tenant: &TenantId,
    session: &Session,
    inputs: &[NewInput],
) -> Result<Vec<Slip>, Trouble> {
    let head = lock(tx, tenant, session.id).await?;
    add(tx, tenant, session, head, inputs).await
}

async fn lock(tx: &Tx, tenant: &TenantId, id: SessionId) -> Result<Head, Trouble> {
    let row = tx.link.first(sql::LOCK_HEAD, params![shard(id), key(id.bits()), tenant_text(tenant)]).await?;
    let row = row.ok_or_else(|| Error::new(Kind::NotFound, format!("session {id} does not exist")))?;
    Ok(Head { state: row.get(0), tail: count(&row, 1), delivered: row.get(3) })
}

/// Whether an earlier try of this delivery, whose reply was lost, was committed (hazard Z-20).
async fn was_delivered(tx: &Tx, id: SessionId, head: &Head, last: Option<EventId>) -> Result<bool, Trouble> {
    let Some(last) = last else { return Ok(false) };
    let last = key(last.bits());
    if head.delivered == Some(last) {
        return Ok(true);
    }
    // Somebody else delivered since, and perhaps it is consumed already.
    let (shard, session) = (shard(id), key(id.bits()));
    Ok(tx.link.first(sql::INPUT_BY_ID, params![shard, session, last]).await?.is_some()
        || tx.link.first(sql::HAS_EVENT_LATELY, params![shard, session, last, LATE_ROWS]).await?.is_some())
}

async fn add(
    tx: &mut Tx,
    tenant: &TenantId,
    session: &Session,
    head: Head,
    inputs: &[NewInput],
) -> Result<Vec<Slip>, Trouble> {
    let id = session.id;
    // First decide about all, then write: a refused batch leaves nothing to undo.
    let mut queued = queued(tx, id).await?;
    let mut slips = Vec::with_capacity(inputs.len());
    let mut appended: Vec<&NewInput> = Vec::new();
    let mut archives = false;
    for new in inputs {
        let accepted = accept(session, &queued, &new.body, tx.now).map_err(|refused| refuse(id, refused))?;
        let slip = match accepted {
            Accepted::Append => {
                queued.push(Input { id: new.id, at: tx.now, body: new.body.clone() });
                appended.push(new);
                Slip::Own(new.id, tx.now)
            }
            Accepted::Repeats(first) => match inputs.iter().find(|own| own.id == first) {
                Some(own) => {
                    Slip::Earlier(Stored { place: 0, id: first, at: tx.now, body: own.kept.clone(), extra: 0 })
                }
                None => waiting(tx, id, first).await?.map_or(Slip::Nothing, Slip::Earlier),
            },
            Accepted::Answered => Slip::Logged(answer(tx, session, &new.body).await?),
            Accepted::Nothing => {
                archives |= session.has_ended() && new.body == InputBody::Archive;
                Slip::Nothing
            }
        };
        slips.push(slip);
    }
    if archives {
        tx.link.run(sql::ARCHIVE, params![shard(id), key(id.bits()), tx.now.0]).await?;
        tx.changed(id);
    }
    if !appended.is_empty() {
        append(tx, tenant, id, &head, &appended).await?;
    }
    Ok(slips)
}

async fn append(
    tx: &mut Tx,
    tenant: &TenantId,
    id: SessionId,
    head: &Head,
    appended: &[&NewInput],
) -> Result<(), Trouble> {
    let (shard, session) = (shard(id), key(id.bits()));
    let (mut urgent, mut last) = (0, None);
    for (position, new) in (head.tail + 1..).zip(appended) {
        let row = params![
            shard,
            session,
            number(position),
            tenant_text(tenant),
            key(new.id.bits()),
            tx.now.0,
            is_plain(&new.body),
            new.kept.inline,
            new.kept.payload,
        ];
        tx.link.run(sql::NEW_INPUT, row).await?;
        last = Some(key(new.id.bits()));
        if new.body.is_urgent() {
            urgent = position;
        }
    }
    // Always, whatever the state: the commit that would park compares with this (hazard Z-01).
    let tail = head.tail + appended.len() as u64;
    tx.link.run(sql::TAKE_INPUTS, params![shard, session, number(tail), number(urgent), last, tx.now.0]).await?;
    if head.state == 2 {
        tx.hints.push(Hint::Runnable);
    }
    tx.changed(id);
    if urgent > 0 {
        tx.hints.push(Hint::Control(id));
    }
    Ok(())
}

/// What waits, as far as a decision needs it: plain inputs only count.
async fn queued(tx: &Tx, session: SessionId) -> Result<Vec<Input>, Trouble> {
    let rows = tx.link.rows(sql::INBOX_FOR_DECISION, params![shard(session), key(session.bits())]).await?;
    let mut inputs = Vec::with_capacity(rows.len());
    for row in rows.iter().map(Stored::of) {
        inputs.push(match row.extra {
            0 => row.input(&tx.link).await?,
            _ => Input { id: row.id, at: row.at, body: InputBody::Message { content: Vec::new() } },
        });
    }
    Ok(inputs)
}

fn is_plain(body: &InputBody) -> bool {
    match body {
        InputBody::Message { .. }
        | InputBody::System { .. }
        | InputBody::Title(_)
        | InputBody::Metadata(_)
        | InputBody::Models(_)
        | InputBody::Snapshot
        | InputBody::Limits(_) => true,
        InputBody::Interrupt
        | InputBody::Confirmation { .. }
        | InputBody::CustomResult { .. }
        | InputBody::Callback { .. }
        | InputBody::Pause
        | InputBody::Resume
        | InputBody::Cancel
        | InputBody::Archive => false,
    }
}

async fn waiting(tx: &Tx, session: SessionId, id: EventId) -> Result<Option<Stored>, Trouble> {
    let params = params![shard(session), key(session.bits()), key(id.bits())];
    Ok(tx.link.first(sql::INPUT_BY_ID, params).await?.map(|row| Stored::of(&row)))
}

async fn answering(tx: &Tx, session: SessionId, call: EventId, up_to: u64) -> Result<Option<Stored>, Trouble> {
    let params = params![shard(session), key(session.bits()), key(call.bits()), number(up_to)];
    Ok(tx.link.first(sql::EVENT_THAT_ANSWERS, params).await?.map(|row| Stored::of(&row)))
}

/// The event that answered the call of `body`.
async fn answer(tx: &Tx, session: &Session, body: &InputBody) -> Result<Stored, Trouble> {
    let Some(call) = body.answers() else {
        return Err(Error::new(Kind::Invalid, "the input answers no call").into());
    };
    let mut logs = if session.forked.is_some() { lineage::of(&tx.link, session.id).await? } else { Vec::new() };
    logs.push(Ancestor { session: session.id, up_to: u64::MAX });
    for log in logs {
        if let Some(event) = answering(tx, log.session, call, log.up_to).await? {
            return Ok(event);
        }
    }
    Err(match session.call(call) {
        Some(_) => Error::new(Kind::Conflict, format!("call {call} runs already and waits for no answer")),
        None => Error::new(Kind::NotFound, format!("{call} is not a call of session {}", session.id)),
    }
    .into())
}

fn refuse(session: SessionId, refused: Refused) -> Error {
    let kind = match refused {
        Refused::Ended | Refused::NotAnswerable => Kind::Conflict,
        Refused::Full => Kind::Full,
        Refused::UnknownCallback => Kind::NotFound,
    };
    Error::caused(kind, format!("session {session}: {refused}"), refused)
}

/// What is remembered of a slip under an idempotency key.
fn note(slip: &Slip, body: &InputBody) -> Value {
    match slip {
        Slip::Own(id, at) => json!({ "own": id.to_string(), "at": at.0.to_string() }),
        Slip::Earlier(row) => {
            json!({ "earlier": row.id.to_string(), "call": body.answers().map(|call| call.to_string()) })
        }
        Slip::Logged(row) => json!({ "seq": row.place.to_string() }),
        Slip::Nothing => json!({}),
    }
}

/// The slips of an earlier request. The bodies of its own inputs are those of this one: the digest says so.
async fn replay(tx: &Tx, session: SessionId, inputs: &[NewInput], result: &Value) -> Result<Vec<Slip>, Trouble> {
    let notes = result.as_array().filter(|notes| notes.len() == inputs.len());
    let notes = notes
        .ok_or_else(|| Error::new(Kind::Corrupt, "the remembered result of an idempotency key has another length"))?;
    let mut slips = Vec::with_capacity(notes.len());
    for note in notes {
        slips.push(replayed(tx, session, note).await?);
    }
    Ok(slips)
}

async fn replayed(tx: &Tx, session: SessionId, note: &Value) -> Result<Slip, Trouble> {
    if note.get("own").is_some() {
        let at: i64 = idempotency::field(note, "at")?;
        return Ok(Slip::Own(idempotency::field(note, "own")?, Timestamp(at)));
    }
    if note.get("earlier").is_some() {
        let id: EventId = idempotency::field(note, "earlier")?;
        if let Some(row) = waiting(tx, session, id).await? {
            return Ok(Slip::Earlier(row));
        }
        return Ok(match idempotency::field::<EventId>(note, "call") {
            Ok(call) => answering(tx, session, call, u64::MAX).await?.map_or(Slip::Nothing, Slip::Logged),
            Err(_) => Slip::Nothing,
        });
    }
    if note.get("seq").is_some() {
        let seq: u64 = idempotency::field(note, "seq")?;
        let row = tx.link.first(sql::EVENT_AT, params![shard(session), key(session.bits()), number(seq)]).await?;
        return Ok(row.map_or(Slip::Nothing, |row| Slip::Logged(Stored::of(&row))));
    }
    Ok(Slip::Nothing)
}
