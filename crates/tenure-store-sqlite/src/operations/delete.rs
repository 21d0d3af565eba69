//! Removes a session: its head at once, its log in small transactions that hold nobody up.

use crate::rows::{self, key};
use crate::statements as sql;
use crate::writer::Work;
use tenure_core::{SessionId, TenantId};
use tenure_store::{Error, Hint, Kind};

/// Rows of a log that one transaction removes.
const BATCH: usize = 1_000;

/// Removes head and inbox; from here on the session does not exist.
pub(crate) fn head(work: &mut Work<'_>, tenant: &TenantId, id: SessionId) -> Result<(), Error> {
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
    rows::run(work.connection, sql::NEW_REMOVAL, [key(id.bits())])?;
    rows::run(work.connection, sql::ADD_META, ("sessions", -1))?;
    rows::run(work.connection, sql::ADD_META, ("ended", -i64::from(is_ended)))?;
    work.hints.push(Hint::Session(id));
    Ok(())
}

/// Removes some rows of the log of a removed session. Returns whether none are left.
pub(crate) fn some_events(work: &mut Work<'_>, id: SessionId) -> Result<bool, Error> {
    let removed = rows::run(work.connection, sql::REMOVE_EVENTS, (key(id.bits()), BATCH))?;
    if removed == BATCH {
        return Ok(false);
    }
    rows::run(work.connection, sql::END_REMOVAL, [key(id.bits())])?;
    Ok(true)
}
