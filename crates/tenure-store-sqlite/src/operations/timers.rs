//! Sessions whose time has come.

use crate::rows::{self, key};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::Connection;
use tenure_core::{SessionId, Timestamp};
use tenure_store::{Due, Error, Hint};

/// Queues what is due.
pub(crate) fn due(work: &mut Work<'_>, limit: usize) -> Result<Due, Error> {
    let sessions =
        rows::all(work.connection, sql::DUE, (work.now.0, limit), |row| rows::bits(row, 0).map(SessionId::from_bits))?;
    for session in &sessions {
        rows::run(work.connection, sql::QUEUE_PARKED, (work.now.0, key(session.bits())))?;
        work.hints.push(Hint::Session(*session));
    }
    if !sessions.is_empty() {
        work.hints.push(Hint::Runnable);
    }
    Ok(Due { woken: sessions.len(), next: next(work.connection)?, now: work.now })
}

/// When the next session is due.
pub(crate) fn next(connection: &Connection) -> Result<Option<Timestamp>, Error> {
    let next: Option<i64> = rows::value(connection, sql::NEXT_DUE, [])?;
    Ok(next.map(Timestamp))
}
