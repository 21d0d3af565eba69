//! Adds a session.

use crate::operations::commit::{self, NewEvent};
use crate::operations::deliver::{self, NewInput};
use crate::operations::{idempotency, lineage};
use crate::params::{key, number, params, tenant_text};
use crate::rows::{self, StoredView, shard};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use serde_json::json;
use tenure_core::{Session, SessionId};
use tenure_store::{Error, Idempotency, Kind};

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
pub(crate) async fn create(tx: &mut Tx, new: &NewHead) -> Result<(StoredView, bool), Trouble> {
    let tenant = &new.session.tenant;
    if let Some(result) = idempotency::earlier(&tx.link, tenant, new.idempotency.as_ref()).await? {
        let id: SessionId = idempotency::field(&result, "session")?;
        let view = rows::view(&tx.link, tenant, id).await?;
        return Ok((view.ok_or_else(|| gone(id))?, true));
    }
    let id = new.session.id;
    if !insert(tx, new).await? {
        let view = if tx.may_repeat { rows::view(&tx.link, tenant, id).await? } else { None };
        return match view {
            // The reply of an earlier try was lost.
            Some(view) => Ok((view, false)),
            None => Err(Error::new(Kind::Conflict, format!("session {id} exists already")).into()),
        };
    }
    lineage::note(tx, &new.session).await?;
    commit::append(tx, tenant, id, &new.events).await?;
    if !new.inputs.is_empty() {
        deliver::to_head(tx, tenant, &new.session, &new.inputs).await?;
    }
    idempotency::remember(tx, tenant, new.idempotency.as_ref(), &json!({ "session": id.to_string() })).await?;
    tx.changed(id);
    let view = rows::view(&tx.link, tenant, id).await?;
    Ok((view.ok_or_else(|| gone(id))?, false))
}

async fn insert(tx: &Tx, new: &NewHead) -> Result<bool, Trouble> {
    let session = &new.session;
    let (shard, id, now) = (shard(session.id), key(session.id.bits()), tx.now.0);
    let wake_at = session.wakes_at().map(|at| at.0);
    let head = params![shard, id, tenant_text(&session.tenant), number(session.last_seq), now, wake_at, session.queue];
    if tx.link.run(sql::NEW_HEAD, head).await? == 0 {
        return Ok(false);
    }
    let wide = params![
        shard,
        id,
        tenant_text(&session.tenant),
        key(session.agent.id.bits()),
        key(session.environment.bits()),
        session.created_at.0,
        now,
        session.phase().name(),
        new.metadata.as_str(),
        new.body.as_str(),
    ];
    tx.link.run(sql::NEW_SESSION, wide).await?;
    Ok(true)
}

fn gone(id: SessionId) -> Error {
    Error::new(Kind::NotFound, format!("session {id} was deleted"))
}
