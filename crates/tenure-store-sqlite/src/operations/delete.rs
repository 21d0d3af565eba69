//! Removes a session: its head at once, its log in small transactions that hold nobody up.

use crate::operations::lineage;
use crate::rows::{self, key};
use crate::statements as sql;
use crate::writer::Work;
use tenure_core::{SessionId, TenantId};
use tenure_store::{Error, Hint, Kind, Removed};

/// Rows of a log that one transaction removes.
const BATCH: usize = 1_000;

/// Removes head and inbox; from here on the session does not exist. Also says of which sessions rows are to be
/// removed now: its own, and those of ancestors that are gone already and whose rows it alone needed.
pub(crate) fn head(work: &mut Work<'_>, tenant: &TenantId, id: SessionId) -> Result<(Removed, Vec<SessionId>), Error> {
    let state: Option<i64> = rows::first(work.connection, sql::STATE, (key(id.bits()), &tenant.0), |row| row.get(0))?;
    let is_ended = match state {
        None => {
            return Err(Error::new(Kind::NotFound, format!("session {id} does not exist")));
        }
        Some(1) => {
            return Err(Error::new(Kind::Conflict, format!("session {id} is being worked on")));
        }
        Some(state) => state == 3,
    };
    rows::run(work.connection, sql::REMOVE_HEAD, [key(id.bits())])?;
    rows::run(work.connection, sql::CLEAR_INBOX, [key(id.bits())])?;
    rows::run(work.connection, sql::CLEAR_LEASES, [key(id.bits())])?;
    let mut left = vec![id];
    for ancestor in lineage::of(work.connection, id)? {
        if rows::first(work.connection, sql::HAS_HEAD, [key(ancestor.session.bits())], |_| Ok(()))?.is_none() {
            left.push(ancestor.session);
        }
    }
    rows::run(work.connection, sql::REMOVE_LINEAGE, [key(id.bits())])?;
    for session in &left {
        rows::run(work.connection, sql::NEW_REMOVAL, [key(session.bits())])?;
    }
    rows::run(work.connection, sql::ADD_META, ("sessions", -1))?;
    rows::run(work.connection, sql::ADD_META, ("ended", -i64::from(is_ended)))?;
    work.hints.push(Hint::Session(id));
    Ok((Removed { kept_up_to: lineage::shared_up_to(work.connection, id)? }, left))
}

/// Removes some rows of the log of a removed session, but none that a fork shares. Returns whether it is done.
pub(crate) fn some_events(work: &mut Work<'_>, id: SessionId) -> Result<bool, Error> {
    let removed = rows::run(work.connection, sql::REMOVE_EVENTS, (key(id.bits()), BATCH))?;
    if removed == BATCH {
        return Ok(false);
    }
    rows::run(work.connection, sql::END_REMOVAL, [key(id.bits())])?;
    Ok(true)
}
