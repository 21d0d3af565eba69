//! Whose rows the log of a fork is made of.

use crate::rows::{self, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::Connection;
use tenure_core::{Session, SessionId};
use tenure_store::lineage::{self, Ancestor};
use tenure_store::{Error, Kind};

/// The ancestors of a session, in the order of their rows.
pub(crate) fn of(connection: &Connection, session: SessionId) -> Result<Vec<Ancestor>, Error> {
    rows::all(connection, sql::LINEAGE, [key(session.bits())], |row| {
        Ok(Ancestor { session: SessionId::from_bits(rows::bits(row, 0)?), up_to: rows::count(row, 1)? })
    })
}

/// Notes whose rows a fork shares; its parent must be there.
pub(crate) fn note(work: &Work<'_>, session: &Session) -> Result<(), Error> {
    let Some(forked) = session.forked else { return Ok(()) };
    let parent = (key(forked.session.bits()), &session.tenant.0);
    let last = rows::first(work.connection, sql::LAST_SEQ, parent, |row| rows::count(row, 0))?;
    let Some(last) = last else {
        return Err(Error::new(Kind::NotFound, format!("session {} does not exist", forked.session)));
    };
    if forked.seq > last {
        return Err(lineage::beyond(forked));
    }
    for ancestor in lineage::of_fork(forked.session, &of(work.connection, forked.session)?, forked.seq)? {
        let row = (key(session.id.bits()), number(ancestor.up_to), key(ancestor.session.bits()), session.id.shard().0);
        rows::run(work.connection, sql::NEW_LINEAGE, row)?;
    }
    Ok(())
}

/// The last row of a session that a fork shares; 0 for none.
pub(crate) fn shared_up_to(connection: &Connection, session: SessionId) -> Result<u64, Error> {
    rows::value::<i64>(connection, sql::SHARED_UP_TO, [key(session.bits())]).map(i64::unsigned_abs)
}
