//! Connections that only read, used on threads that may block.

use crate::errors;
use crate::open::{self, Options};
use rusqlite::Connection;
use std::sync::{Arc, Mutex};
use tenure_store::{Error, Kind};

/// Connections that are kept open when nobody reads.
const KEPT: usize = 8;

/// A pool of connections that only read.
#[derive(Debug)]
pub(crate) struct Readers {
    options: Options,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self { options, idle: Mutex::default() })
    }

    /// Reads on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = self.clone();
        tokio::task::spawn_blocking(move || {
            let kept = readers.idle.lock().expect("nobody panics while holding it").pop();
            let connection = match kept {
                Some(connection) => connection,
                None => open::reader(&readers.options)?,
            };
            let result = read(&connection);
            let mut idle = readers.idle.lock().expect("nobody panics while holding it");
            if idle.len() < KEPT {
                idle.push(connection);
            }
            result
        })
        .await
        .map_err(|error| Error::caused(Kind::Broken, "a read of the store was aborted", error))?
    }
}

/// Wraps an error of a read.
pub(crate) fn sql(error: rusqlite::Error) -> Error {
    errors::sqlite("read the store", error)
}
