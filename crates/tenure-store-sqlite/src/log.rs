//! Keeps the write-ahead log bounded (hazard Z-22), on a thread and connection of its own.
//!
//! Commits in small groups copy the log back themselves every [`crate::open::WAL_PAGES`] pages. Large
//! groups leave it to this thread, and so do small ones while a reader needs the old pages. From
//! [`COPY_PAGES`] on it copies what it can without holding anybody up. Past [`RESTART_PAGES`] writers
//! wait until the log starts again from its beginning; most of it was copied a moment before, so that
//! this is short.

use crate::errors;
use crate::open::{self, Options};
use crate::rows;
use crate::statements as sql;
use rusqlite::Connection;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tenure_core::SessionId;
use tenure_store::Error;

/// Pages in the log from which it is copied back.
const COPY_PAGES: i64 = 2_000;

/// Pages in the log from which it is started again.
const RESTART_PAGES: i64 = 4_000;

/// Bytes of the log's file above which it is cut.
const MAX_LOG_BYTES: u64 = 256 * 1024 * 1024;

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a restart waits for readers while it holds writers up.
const PATIENCE: Duration = Duration::from_millis(50);

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Upkeep {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Upkeep {
    /// Starts the thread.
    pub(crate) fn start(options: &Options) -> Result<Self, Error> {
        let connection = open::upkeep(options)?;
        connection.busy_timeout(PATIENCE).map_err(errors::read)?;
        let file = options.path.join("tenure.db-wal");
        let (stop, stopped) = channel();
        let run = move || {
            // Both a word and a dropped handle end it.
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let size = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
                if let Err(error) = look(&connection, size) {
                    tracing::warn!(%error, "copy the log back into the store file");
                }
            }
            // In good order: the next start has nothing to recover.
            let _ = checkpoint(&connection, "TRUNCATE");
        };
        let thread = std::thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(run)
            .map_err(|error| errors::file("start the thread of the log", error))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread after a last copy.
    pub(crate) fn close(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn look(connection: &Connection, file_bytes: u64) -> rusqlite::Result<()> {
    let pages = checkpoint(connection, "NOOP")?.in_log;
    if pages < COPY_PAGES {
        return Ok(());
    }
    let after = checkpoint(connection, "PASSIVE")?;
    if file_bytes > MAX_LOG_BYTES {
        checkpoint(connection, "TRUNCATE")?;
    } else if after.in_log >= RESTART_PAGES {
        checkpoint(connection, "RESTART")?;
    }
    Ok(())
}

/// What a look at the log found.
struct Pages {
    in_log: i64,
}

fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Pages> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    statement.query_row([], |row| Ok(Pages { in_log: row.get(1)? }))
}

/// Sessions whose rows a crash left behind.
pub(crate) fn removals(connection: &Connection) -> Result<Vec<SessionId>, Error> {
    rows::all(connection, sql::REMOVALS, [], |row| rows::bits(row, 0).map(SessionId::from_bits))
}
