//! The writer thread: commits what is waiting as one transaction (group commit).
//!
//! Each job runs inside a savepoint, so that one that fails does not hurt its neighbours
//! (hazard Z-21). Nothing is acknowledged before COMMIT returned; if COMMIT fails, all of the group
//! fail with it.

use crate::errors;
use crate::wake::Wake;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};
use tenure_core::Timestamp;
use tenure_store::{Error, Hint, Kind};
use tokio::sync::oneshot;

/// Jobs that may wait for the writer; more callers wait for room.
const QUEUE: usize = 4_096;

/// Most jobs in one transaction.
const GROUP: usize = 1_024;

/// How far the clock may run ahead of its stored high water, in milliseconds.
const HIGH_WATER_STEP: i64 = 1_000;

/// What a job works with.
pub(crate) struct Work<'a> {
    pub(crate) connection: &'a Connection,
    /// The store's time in this transaction.
    pub(crate) now: Timestamp,
    /// What to tell others once it is durable.
    pub(crate) hints: Vec<Hint>,
}

/// Tells a caller how its job ended, once the transaction has.
type Acknowledge = Box<dyn FnOnce(Result<(), (Kind, String)>) + Send>;

/// Runs inside the transaction; returns whether it succeeded, and how to say so.
type Job = Box<dyn FnOnce(&mut Work<'_>) -> (bool, Acknowledge) + Send>;

enum Message {
    Job(Job),
    Close(oneshot::Sender<()>),
}

/// The handle of the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    sender: SyncSender<Message>,
}

impl Writer {
    pub(crate) fn start(connection: Connection, wake: Arc<Wake>) -> Result<Self, Error> {
        let clock = Clock::load(&connection)?;
        let (sender, receiver) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(&connection, clock, &receiver, &wake))
            .map_err(|error| errors::file("start the writer thread", error))?;
        Ok(Self { sender })
    }

    /// Runs `work` in the next transaction and waits until it is durable.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |context| {
            let result = work(context);
            let is_ok = result.is_ok();
            let acknowledge: Acknowledge = Box::new(move |commit| {
                let result = match commit {
                    Ok(()) => result,
                    Err((kind, message)) => Err(Error::new(kind, message)),
                };
                let _ = sender.send(result);
            });
            (is_ok, acknowledge)
        });
        let mut message = Message::Job(job);
        loop {
            match self.sender.try_send(message) {
                Ok(()) => break,
                Err(std::sync::mpsc::TrySendError::Full(back)) => {
                    message = back;
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return Err(closed()),
            }
        }
        receiver.await.map_err(|_| closed())?
    }

    /// Ends the thread after everything that waits is durable.
    pub(crate) async fn close(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.sender.try_send(Message::Close(sender)).is_ok() {
            let _ = receiver.await;
        }
    }
}

fn closed() -> Error {
    Error::new(Kind::Broken, "the writer of the store has ended; restart the process")
}

fn run(connection: &Connection, mut clock: Clock, receiver: &Receiver<Message>, wake: &Wake) {
    while let Ok(first) = receiver.recv() {
        let (mut jobs, mut close) = (Vec::new(), None);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Job(job) => jobs.push(job),
                Message::Close(done) => close = Some(done),
            }
            next = if jobs.len() < GROUP && close.is_none() { receiver.try_recv().ok() } else { None };
        }
        let is_broken = !jobs.is_empty() && !group(connection, &mut clock, jobs, wake);
        if let Some(done) = close {
            let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
            let _ = done.send(());
            return;
        }
        if is_broken {
            // After a failed write or fsync nothing is known about the file (hazard Z-23).
            tracing::error!("the store cannot be written any more; its writer ends");
            return;
        }
    }
}

/// Commits one group. Returns false if the store must not be written any more.
fn group(connection: &Connection, clock: &mut Clock, jobs: Vec<Job>, wake: &Wake) -> bool {
    if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
        let error = errors::sqlite("begin a transaction", error);
        let kind = error.kind;
        for job in jobs {
            refuse(connection, job, kind, &error.message);
        }
        return kind != Kind::Broken;
    }
    let now = clock.now(connection);
    let mut work = Work { connection, now, hints: Vec::new() };
    let mut acknowledges = Vec::with_capacity(jobs.len());
    for job in jobs {
        let hints = work.hints.len();
        let _ = execute(connection, "SAVEPOINT job");
        let (is_ok, acknowledge) = job(&mut work);
        if !is_ok {
            let _ = execute(connection, "ROLLBACK TO job");
            work.hints.truncate(hints);
        }
        let _ = execute(connection, "RELEASE job");
        acknowledges.push(acknowledge);
    }
    let hints = work.hints;
    match connection.execute_batch("COMMIT") {
        Ok(()) => {
            acknowledges.into_iter().for_each(|acknowledge| acknowledge(Ok(())));
            wake.send(hints);
            true
        }
        Err(error) => {
            let _ = connection.execute_batch("ROLLBACK");
            let error = errors::sqlite("commit a transaction", error);
            acknowledges.into_iter().for_each(|acknowledge| acknowledge(Err((error.kind, error.message.clone()))));
            error.kind != Kind::Broken
        }
    }
}

/// Fails a job without running it against a transaction: its writes are rolled back at once.
fn refuse(connection: &Connection, job: Job, kind: Kind, message: &str) {
    let mut work = Work { connection, now: Timestamp(0), hints: Vec::new() };
    // The job never sees an open transaction; SAVEPOINT alone opens one that is thrown away.
    let _ = connection.execute_batch("SAVEPOINT refused");
    let (_, acknowledge) = job(&mut work);
    let _ = connection.execute_batch("ROLLBACK TO refused; RELEASE refused");
    acknowledge(Err((kind, message.to_owned())));
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<usize> {
    connection.prepare_cached(sql)?.execute([])
}

/// The store's clock: wall time, never below what was stored (hazard Z-24).
struct Clock {
    newest: i64,
    stored: i64,
}

impl Clock {
    fn load(connection: &Connection) -> Result<Self, Error> {
        let stored = high_water(connection).map_err(|error| errors::sqlite("read the clock", error))?;
        Ok(Self { newest: stored, stored })
    }

    fn now(&mut self, connection: &Connection) -> Timestamp {
        // Another process may have stored a later time.
        if let Ok(stored) = high_water(connection) {
            self.stored = self.stored.max(stored);
        }
        self.newest = wall().max(self.newest).max(self.stored);
        if self.newest >= self.stored + HIGH_WATER_STEP {
            let set = "INSERT INTO meta (key, value) VALUES ('now', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1";
            if connection.prepare_cached(set).and_then(|mut statement| statement.execute([self.newest])).is_ok() {
                self.stored = self.newest;
            }
        }
        Timestamp(self.newest)
    }
}

fn high_water(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(value), 0) FROM meta WHERE key = 'now'")?;
    statement.query_row([], |row| row.get(0))
}

/// Wall time in milliseconds.
pub(crate) fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
