//! Adds a session.

use crate::operations::commit::{self, NewEvent};
use crate::operations::deliver::{self, NewInput};
use crate::operations::{idempotency, lineage};
use crate::rows::{self, StoredView, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::params;
use serde_json::json;
use tenure_core::{Session, SessionId};
use tenure_store::{Error, Hint, Idempotency, Kind};

/// A session to add, with everything encoded that could be before the transaction.
#[derive(Debug)]
pub(crate) struct NewHead {
    pub(crate) session: Session,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) body: String,
    pub(crate) metadata: String,
    pub(crate) inputs: Vec<NewInput>,
    pub(crate) idempotency: Option<Idempotency>,
}

/// Adds the session, or finds the one that an earlier request added.
pub(crate) fn create(work: &mut Work<'_>, new: &NewHead) -> Result<(StoredView, bool), Error> {
    let tenant = &new.session.tenant;
    if let Some(result) = idempotency::earlier(work, tenant, new.idempotency.as_ref())? {
        let id: SessionId = idempotency::field(&result, "session")?;
        let view = rows::view(work.connection, tenant, id)?;
        return view.map(|view| (view, true)).ok_or_else(|| gone(id));
    }
    let id = new.session.id;
    if rows::first(work.connection, sql::HAS_HEAD, [key(id.bits())], |_| Ok(()))?.is_some() {
        return Err(Error::new(Kind::Conflict, format!("session {id} exists already")));
    }
    insert(work, new)?;
    lineage::note(work, &new.session)?;
    for event in &new.events {
        commit::append(work, tenant, id, event)?;
    }
    if !new.inputs.is_empty() {
        deliver::to_head(work, tenant, &new.session, &new.inputs)?;
    }
    idempotency::remember(work, tenant, new.idempotency.as_ref(), id.shard().0, &json!({ "session": id.to_string() }))?;
    work.hints.push(Hint::Session(id));
    let view = rows::view(work.connection, tenant, id)?;
    view.map(|view| (view, false)).ok_or_else(|| gone(id))
}

fn insert(work: &Work<'_>, new: &NewHead) -> Result<(), Error> {
    let session = &new.session;
    let params = params![
        key(session.id.bits()),
        session.id.shard().0,
        session.tenant.0,
        key(session.agent.id.bits()),
        key(session.environment.bits()),
        session.created_at.0,
        session.phase().name(),
        number(session.last_seq),
        work.now.0,
        session.wakes_at().map(|at| at.0),
        new.metadata,
        new.body,
        session.queue,
    ];
    rows::run(work.connection, sql::NEW_HEAD, params)?;
    rows::run(work.connection, sql::ADD_META, ("sessions", 1))?;
    Ok(())
}

fn gone(id: SessionId) -> Error {
    Error::new(Kind::NotFound, format!("session {id} was deleted"))
}
