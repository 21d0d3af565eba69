//! Keeps everybody from writing, for tests of what happens then.

use crate::errors;
use crate::open::Options;
use crate::statements as sql;
use rusqlite::{Connection, OpenFlags};
use std::time::Duration;
use tenure_store::Error;

/// How long a transaction that is under way may take to end.
const WAIT: Duration = Duration::from_secs(30);

/// While this lives, nobody can write to the store.
#[derive(Debug)]
pub struct WriteBlock {
    _transaction: Connection,
}

/// Takes the write lock of a store and keeps it.
///
/// Never in a process that has opened the store: when this is dropped the process closes the file,
/// and with it loses the locks of every other connection that it has (hazard Z-23).
///
/// # Errors
/// When the store cannot be opened or somebody else keeps the lock.
pub fn block_writes(options: &Options) -> Result<WriteBlock, Error> {
    let connection = Connection::open_with_flags(options.file(), OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| errors::sqlite("open the store", error))?;
    connection.busy_timeout(WAIT).map_err(|error| errors::sqlite("wait for the store", error))?;
    connection.execute_batch(sql::BEGIN).map_err(|error| errors::sqlite("lock the store", error))?;
    Ok(WriteBlock { _transaction: connection })
}
