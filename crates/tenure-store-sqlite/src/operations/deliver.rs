//! Appends inputs to an inbox. What becomes of each is decided here, under the lock of the head
//! (hazard Z-25), by the core.

use crate::blobs::Kept;
use crate::errors;
use crate::operations::{idempotency, lineage, sessions};
use crate::rows::{self, Stored, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::params;
use serde_json::{Value, json};
use tenure_core::{
    Accepted, EventId, Input, InputBody, Refused, Session, SessionId, TenantId, Timestamp, accept, stored,
};
use tenure_store::lineage::Ancestor;
use tenure_store::{Error, Hint, Idempotency, Kind, Notes};

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

/// Delivers, or finds what an earlier request delivered.
pub(crate) fn deliver(work: &mut Work<'_>, letters: &Letters) -> Result<(Vec<Slip>, bool), Error> {
    let Letters { tenant, session: id, inputs, .. } = letters;
    let earlier = idempotency::earlier(work, tenant, letters.idempotency.as_ref())?;
    let head =
        rows::first(work.connection, sql::HEAD_FOR_INPUT, (key(id.bits()), &tenant.0), |row| row.get::<_, String>(0))?;
    let Some(body) = head else {
        return Err(Error::new(Kind::NotFound, format!("session {id} does not exist")));
    };
    if let Some(result) = earlier {
        return Ok((replay(work, *id, inputs, &result)?, true));
    }
    let session = stored::decode_session(&body).map_err(|error| errors::corrupt(id, error))?;
    let slips = to_head(work, tenant, &session, inputs)?;
    if let Some(notes) = &letters.notes {
        annotate(work, tenant, &session, notes)?;
    }
    let result = Value::Array(slips.iter().zip(inputs).map(|(slip, input)| note(slip, &input.body)).collect());
    idempotency::remember(work, tenant, letters.idempotency.as_ref(), id.shard().0, &result)?;
    Ok((slips, false))
}

/// Changes the client's notes, and puts an input that tells of them into the inbox of a session that has
/// not ended.
fn annotate(work: &mut Work<'_>, tenant: &TenantId, session: &Session, notes: &Notes) -> Result<(), Error> {
    let id = session.id;
    let text: Option<String> =
        rows::first(work.connection, sql::METADATA, (key(id.bits()), &tenant.0), |row| row.get(0))?;
    let text = text.ok_or_else(|| Error::new(Kind::NotFound, format!("session {id} does not exist")))?;
    let Some(after) = notes.apply(&rows::metadata(&text)?) else { return Ok(()) };
    let body = InputBody::Metadata(after.clone());
    // Always in the row: notes are short.
    let kept = Kept::inline(stored::encode_input(&Input { id: notes.id, at: work.now, body: body.clone() }));
    match to_head(work, tenant, session, &[NewInput { id: notes.id, body, kept }]) {
        Ok(_) => {}
        Err(error) if is_ended(&error) => work.hints.push(Hint::Session(id)),
        Err(error) => return Err(error),
    }
    rows::run(work.connection, sql::SET_METADATA, (key(id.bits()), sessions::encode(&after)?, work.now.0))?;
    Ok(())
}

fn is_ended(error: &Error) -> bool {
    let reason = error.source.as_ref().and_then(|source| source.downcast_ref::<Refused>());
    reason == Some(&Refused::Ended)
}

/// Delivers to a session whose head is known; all or nothing.
pub(crate) fn to_head(
    work: &mut Work<'_>,
    tenant: &TenantId,
    session: &Session,
    inputs: &[NewInput],
) -> Result<Vec<Slip>, Error> {
    let id = session.id;
    let row = rows::first(work.connection, sql::HEAD_FOR_INPUT, (key(id.bits()), &tenant.0), |row| {
        Ok((row.get::<_, i64>(1)?, rows::count(row, 2)?))
    })?;
    let Some((state, tail)) = row else {
        return Err(Error::new(Kind::NotFound, format!("session {id} does not exist")));
    };
    // First decide about all, then write: a refused batch leaves nothing to undo.
    let mut queued = queued(work, id)?;
    let mut slips = Vec::with_capacity(inputs.len());
    let mut appended: Vec<&NewInput> = Vec::new();
    let mut archives = false;
    for new in inputs {
        let accepted = accept(session, &queued, &new.body, work.now).map_err(|refused| refuse(id, refused))?;
        let slip = match accepted {
            Accepted::Append => {
                queued.push(Input { id: new.id, at: work.now, body: new.body.clone() });
                appended.push(new);
                Slip::Own(new.id, work.now)
            }
            Accepted::Repeats(first) => match inputs.iter().find(|own| own.id == first) {
                Some(own) => {
                    Slip::Earlier(Stored { place: 0, id: first, at: work.now, body: own.kept.clone(), extra: 0 })
                }
                None => waiting(work, id, first)?.map_or(Slip::Nothing, Slip::Earlier),
            },
            Accepted::Answered => Slip::Logged(answer(work, session, &new.body)?),
            Accepted::Nothing => {
                archives |= session.has_ended() && new.body == InputBody::Archive;
                Slip::Nothing
            }
        };
        slips.push(slip);
    }
    if archives {
        rows::run(work.connection, sql::ARCHIVE_HEAD, (key(id.bits()), work.now.0))?;
        work.hints.push(Hint::Session(id));
    }
    if !appended.is_empty() {
        append(work, session, state, tail, &appended)?;
    }
    Ok(slips)
}

fn append(work: &mut Work<'_>, session: &Session, state: i64, tail: u64, appended: &[&NewInput]) -> Result<(), Error> {
    let id = session.id;
    let mut urgent = 0;
    for (position, new) in (tail + 1..).zip(appended) {
        let params = params![
            key(id.bits()),
            number(position),
            id.shard().0,
            session.tenant.0,
            key(new.id.bits()),
            work.now.0,
            is_plain(&new.body),
            new.kept.inline,
            new.kept.blob,
        ];
        rows::run(work.connection, sql::NEW_INPUT, params)?;
        if new.body.is_urgent() {
            urgent = position;
        }
    }
    // Always, whatever the state: the commit that would park compares with this (hazard Z-01).
    let tail = tail + appended.len() as u64;
    rows::run(work.connection, sql::TAKE_INPUTS, (key(id.bits()), number(tail), number(urgent)))?;
    if state == 2 {
        rows::run(work.connection, sql::QUEUE_PARKED, (work.now.0, key(id.bits())))?;
        work.hints.push(Hint::Runnable);
    }
    work.hints.push(Hint::Session(id));
    if urgent > 0 {
        work.hints.push(Hint::Control(id));
    }
    Ok(())
}

/// What waits, as far as a decision needs it: plain inputs only count.
fn queued(work: &Work<'_>, session: SessionId) -> Result<Vec<Input>, Error> {
    let rows = rows::all(work.connection, sql::INBOX_FOR_DECISION, [key(session.bits())], Stored::of)?;
    let input = |row: Stored| match row.extra {
        0 => row.input(work.blobs),
        _ => Ok(Input { id: row.id, at: row.at, body: InputBody::Message { content: Vec::new() } }),
    };
    rows.into_iter().map(input).collect()
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

fn waiting(work: &Work<'_>, session: SessionId, id: EventId) -> Result<Option<Stored>, Error> {
    rows::first(work.connection, sql::INPUT_BY_ID, (key(session.bits()), key(id.bits())), Stored::of)
}

fn answering(work: &Work<'_>, session: SessionId, call: EventId, up_to: u64) -> Result<Option<Stored>, Error> {
    let params = (key(session.bits()), key(call.bits()), number(up_to));
    rows::first(work.connection, sql::EVENT_THAT_ANSWERS, params, Stored::of)
}

/// The event that answered the call of `body`.
fn answer(work: &Work<'_>, session: &Session, body: &InputBody) -> Result<Stored, Error> {
    let Some(call) = body.answers() else {
        return Err(Error::new(Kind::Invalid, "the input answers no call"));
    };
    let mut logs = if session.forked.is_some() { lineage::of(work.connection, session.id)? } else { Vec::new() };
    logs.push(Ancestor { session: session.id, up_to: u64::MAX });
    for log in logs {
        if let Some(event) = answering(work, log.session, call, log.up_to)? {
            return Ok(event);
        }
    }
    Err(match session.call(call) {
        Some(_) => Error::new(Kind::Conflict, format!("call {call} runs already and waits for no answer")),
        None => Error::new(Kind::NotFound, format!("{call} is not a call of session {}", session.id)),
    })
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
fn replay(work: &Work<'_>, session: SessionId, inputs: &[NewInput], result: &Value) -> Result<Vec<Slip>, Error> {
    let notes = result.as_array().filter(|notes| notes.len() == inputs.len());
    let notes = notes
        .ok_or_else(|| Error::new(Kind::Corrupt, "the remembered result of an idempotency key has another length"))?;
    let slip = |note: &Value| {
        if note.get("own").is_some() {
            let at: i64 = idempotency::field(note, "at")?;
            return Ok(Slip::Own(idempotency::field(note, "own")?, Timestamp(at)));
        }
        if note.get("earlier").is_some() {
            let id: EventId = idempotency::field(note, "earlier")?;
            if let Some(row) = waiting(work, session, id)? {
                return Ok(Slip::Earlier(row));
            }
            return match idempotency::field::<EventId>(note, "call") {
                Ok(call) => {
                    let event = answering(work, session, call, u64::MAX)?;
                    Ok(event.map_or(Slip::Nothing, Slip::Logged))
                }
                Err(_) => Ok(Slip::Nothing),
            };
        }
        if note.get("seq").is_some() {
            let seq: u64 = idempotency::field(note, "seq")?;
            let event = rows::first(work.connection, sql::EVENT_AT, (key(session.bits()), number(seq)), Stored::of)?;
            return Ok(event.map_or(Slip::Nothing, Slip::Logged));
        }
        Ok(Slip::Nothing)
    };
    notes.iter().map(slip).collect()
}
