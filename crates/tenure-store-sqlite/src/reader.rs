//! Connections that only read, used on threads that may block.

use crate::open::{self, Options};
use rusqlite::Connection;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_store::{Error, Kind};
use tokio::sync::Semaphore;

/// How long one read may take: a long one pins the write-ahead log (hazard Z-22).
const READ_TIME: Duration = Duration::from_secs(10);

/// A pool of connections that only read.
#[derive(Debug)]
pub(crate) struct Readers {
    options: Options,
    idle: Mutex<Vec<Connection>>,
    room: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(options: Options) -> Self {
        let room = Arc::new(Semaphore::new(options.readers.max(1)));
        Self { options, idle: Mutex::default(), room }
    }

    /// Reads on a thread that may block, within a bounded time.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.read_within(READ_TIME, read).await
    }

    /// Reads for as long as it takes: for copies of the whole store alone.
    pub(crate) async fn read_at_length<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.read_within(Duration::MAX, read).await
    }

    async fn read_within<T: Send + 'static>(
        self: &Arc<Self>,
        span: Duration,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.room.clone().acquire_owned().await.map_err(|error| aborted(error.into()))?;
        let connection = match self.take() {
            Some(connection) => connection,
            None => {
                let options = self.options.clone();
                tokio::task::spawn_blocking(move || open::reader(&options))
                    .await
                    .map_err(|error| aborted(error.into()))??
            }
        };
        let interrupt = connection.get_interrupt_handle();
        let readers = self.clone();
        let mut task = tokio::task::spawn_blocking(move || {
            let result = read(&connection);
            readers.give_back(connection);
            drop(permit);
            result
        });
        let joined = match tokio::time::timeout(span, &mut task).await {
            Ok(joined) => joined,
            Err(_) => {
                interrupt.interrupt();
                task.await
            }
        };
        joined.map_err(|error| aborted(error.into()))?
    }

    fn take(&self) -> Option<Connection> {
        self.idle.lock().expect("nobody panics while holding it").pop()
    }

    fn give_back(&self, connection: Connection) {
        self.idle.lock().expect("nobody panics while holding it").push(connection);
    }

    /// Closes the connections that nobody uses.
    pub(crate) fn close(&self) {
        self.idle.lock().expect("nobody panics while holding it").clear();
    }
}

fn aborted(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::caused(Kind::Broken, "a read of the store was aborted", error)
}
