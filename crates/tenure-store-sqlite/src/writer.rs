//! The writer: commits what is waiting as one transaction (group commit).
//!
//! ```text
//! callers ─▶ queue (bounded) ─▶ BEGIN IMMEDIATE ─▶ job, job, job … ─▶ COMMIT ─▶ acknowledge all
//!    │                          ▲                  │ one fails after it wrote
//!    └─ alone, on a quick disk ─┘                  └─▶ ROLLBACK, once more with a savepoint per job
//! ```
//! A thread serves the queue. A caller who finds nobody else there, on a disk that was quick lately,
//! commits on its own thread instead: waking the writer and being woken costs as much as a quick fsync.
//!
//! A job that fails does not hurt its neighbours (hazard Z-21): most failures are found before
//! anything is written, and then there is nothing to undo; otherwise the group runs again with a
//! savepoint around each job. Nothing is acknowledged before COMMIT returned. After a failed write
//! or fsync nothing is known about the file, so that all further writes are refused (hazard Z-23).

use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::errors;
use crate::open;
use crate::reserve::Reserve;
use crate::statements as sql;
use crate::wake::Wake;
use rusqlite::Connection;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_core::Timestamp;
use tenure_store::{Error, Hint, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs that may wait for the writer; more callers wait for room.
const QUEUE: usize = 4_096;

/// Most jobs in one transaction.
pub(crate) const GROUP: usize = 1_024;

/// Most jobs of a group after which the writer copies the log back itself: it has the time then, and a
/// short log makes commits cheaper. Larger groups leave it to the thread in `log`.
const SMALL_GROUP: usize = 8;

/// Longest time that commits of small groups may take on average for a lone caller to commit on its own
/// thread. That thread belongs to the runtime, and its other tasks wait as long or move to the others.
const QUICK: Duration = Duration::from_millis(1);

/// How much of the average the newest small group makes: one part in so many.
const AVERAGE_OVER: u32 = 8;

/// How often commits of other processes are looked for while nothing is written.
const LOOK: Duration = Duration::from_millis(40);

/// What a job works with.
pub(crate) struct Work<'a> {
    pub(crate) connection: &'a Connection,
    /// Payloads that are too large for a row.
    pub(crate) blobs: &'a Blobs,
    /// The store's time in this transaction.
    pub(crate) now: Timestamp,
    /// What to tell others once it is durable.
    pub(crate) hints: Vec<Hint>,
}

/// Whether a job is wanted on a disk that is nearly full (hazard Z-53).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Begins something: refused first.
    Adds,
    /// Saves, ends or frees something: may use the reserve.
    Saves,
}

/// One request for the writer. It may run more than once; only the last run counts.
trait Job: Send {
    fn purpose(&self) -> Purpose;
    /// Runs inside the transaction.
    fn run(&mut self, work: &mut Work<'_>) -> Outcome;
    /// Tells the caller how it ended; `Err` for a transaction that failed as a whole.
    fn finish(self: Box<Self>, transaction: Result<(), &Failure>);
}

/// How one run of a job ended.
enum Outcome {
    Done,
    /// Its writes are to be undone, those of the others stay.
    Failed,
    /// The whole transaction fails with it.
    Fatal(Failure),
}

/// Why a whole transaction failed.
#[derive(Clone, Debug)]
struct Failure {
    kind: Kind,
    message: String,
    /// Nothing is known about the file any more.
    is_final: bool,
}

impl Failure {
    fn of(error: &Error) -> Self {
        Self { kind: error.kind, message: error.message.clone(), is_final: errors::is_final(error) }
    }
}

struct Call<T, F> {
    purpose: Purpose,
    work: F,
    result: Option<Result<T, Error>>,
    sender: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: FnMut(&mut Work<'_>) -> Result<T, Error> + Send> Job for Call<T, F> {
    fn purpose(&self) -> Purpose {
        self.purpose
    }

    fn run(&mut self, work: &mut Work<'_>) -> Outcome {
        let result = (self.work)(work);
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(error) if error.kind == Kind::NoSpace || errors::is_final(error) || work.connection.is_autocommit() => {
                Outcome::Fatal(Failure::of(error))
            }
            Err(_) => Outcome::Failed,
        };
        self.result = Some(result);
        outcome
    }

    fn finish(self: Box<Self>, transaction: Result<(), &Failure>) {
        let result = match (transaction, self.result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(closed()),
            (Err(failure), _) => Err(Error::new(failure.kind, failure.message.clone())),
        };
        // A caller that went away does not want to know.
        let _ = self.sender.send(result);
    }
}

enum Message {
    Job(Box<dyn Job>, OwnedSemaphorePermit),
    Close(oneshot::Sender<()>),
}

/// The handle of the writer.
#[derive(Debug)]
pub(crate) struct Writer {
    sender: Sender<Message>,
    room: Arc<Semaphore>,
    /// Empty once the writer is closed.
    desk: Arc<Mutex<Option<Desk>>>,
}

impl Writer {
    /// Starts the thread; it ends when the handle is dropped.
    pub(crate) fn start(connection: Connection, reserve: Reserve, parts: Parts) -> Result<Self, Error> {
        let (sender, receiver) = channel();
        let mut desk = Desk {
            connection,
            reserve,
            parts,
            broken: None,
            foreign: None,
            wal_pages: open::WAL_PAGES,
            // Not known yet: the thread commits until it is.
            average: 2 * QUICK,
            newest: 0,
        };
        desk.foreign = desk.data_version();
        let desk = Arc::new(Mutex::new(Some(desk)));
        let shared = desk.clone();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(&receiver, &shared))
            .map_err(|error| errors::file("start the writer thread", error))?;
        Ok(Self { sender, room: Arc::new(Semaphore::new(QUEUE)), desk })
    }

    /// Runs `work` in the next transaction and waits until it is durable. `work` may run more than
    /// once, and only its last run counts.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnMut(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let job = Call { purpose, work, result: None, sender };
        if let Some(job) = self.commit_here(Box::new(job)) {
            let permit = self.room.clone().acquire_owned().await.map_err(|_| closed())?;
            self.sender.send(Message::Job(job, permit)).map_err(|_| closed())?;
        }
        receiver.await.map_err(|_| closed())?
    }

    /// Commits a job on this thread if nobody else waits or writes and the disk is quick; else gives it
    /// back. One thread at most is held up by this, and never the only one of a runtime.
    fn commit_here(&self, job: Box<dyn Job>) -> Option<Box<dyn Job>> {
        if self.room.available_permits() < QUEUE || !has_other_threads() {
            return Some(job);
        }
        let Ok(mut desk) = self.desk.try_lock() else { return Some(job) };
        let Some(desk) = desk.as_mut().filter(|desk| desk.is_for_one()) else { return Some(job) };
        desk.group(&mut vec![job]);
        None
    }

    /// Runs `work` in a transaction of its own time; nobody waits for it.
    pub(crate) fn write_later(
        &self,
        work: impl FnMut(&mut Work<'_>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let permit = self.room.clone().try_acquire_owned().map_err(|_| closed())?;
        let (sender, _) = oneshot::channel();
        let job = Call { purpose: Purpose::Saves, work, result: None, sender };
        self.sender.send(Message::Job(Box::new(job), permit)).map_err(|_| closed())
    }

    /// Ends the writer after everything that waits is durable.
    pub(crate) async fn close(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.sender.send(Message::Close(sender)).is_ok() {
            let _ = receiver.await;
        }
    }
}

/// Whether the runtime of this task can go on while this thread waits for the disk.
fn has_other_threads() -> bool {
    tokio::runtime::Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() > 1)
}

fn closed() -> Error {
    Error::new(Kind::Broken, "the store is closed; restart the process")
}

/// What the writer shares with the rest of the store.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) blobs: Blobs,
    pub(crate) clock: Arc<Clock>,
    pub(crate) wake: Arc<Wake>,
}

/// Serves the queue until the writer is closed or its handle is gone.
fn serve(receiver: &Receiver<Message>, desk: &Mutex<Option<Desk>>) {
    let mut jobs = Vec::new();
    loop {
        let first = match receiver.recv_timeout(LOOK) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // A job that panicked may have left anything behind; callers learn that the store is closed.
        let Ok(mut place) = desk.lock() else { return };
        let Some(desk) = place.as_mut() else { return };
        // After the wait for the lock, since others may have come meanwhile.
        let mut next = first;
        let mut close = None;
        while let Some(message) = next {
            match message {
                Message::Job(job, room) => {
                    // The place in the queue is free again.
                    drop(room);
                    jobs.push(job);
                }
                Message::Close(done) => close = Some(done),
            }
            next = if jobs.len() < GROUP && close.is_none() { receiver.try_recv().ok() } else { None };
        }
        if !jobs.is_empty() {
            desk.group(&mut jobs);
        }
        desk.look();
        if let Some(done) = close {
            *place = None;
            // Whoever asked may have gone away.
            let _ = done.send(());
            return;
        }
    }
}

/// What whoever writes needs; one at a time has it.
#[derive(Debug)]
struct Desk {
    connection: Connection,
    reserve: Reserve,
    parts: Parts,
    /// Why nothing is written any more.
    broken: Option<Failure>,
    /// SQLite's number of the newest commit of another connection.
    foreign: Option<i64>,
    /// Pages of the log from which a commit copies it back.
    wal_pages: u32,
    /// How long small groups took lately.
    average: Duration,
    /// Jobs of the newest group. After a large one many callers come back at once: the first of them
    /// must not commit alone while the others wait.
    newest: usize,
}

impl Desk {
    /// Whether a lone caller may commit on its own thread.
    fn is_for_one(&self) -> bool {
        self.newest <= 1 && self.average <= QUICK
    }

    /// Commits one group and tells everybody; leaves `jobs` empty.
    fn group(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        if let Some(broken) = &self.broken {
            jobs.drain(..).for_each(|job| job.finish(Err(broken)));
            return;
        }
        if self.reserve.is_low(&self.connection) {
            refuse_additions(jobs);
        }
        self.choose_who_copies(jobs.len());
        self.newest = jobs.len();
        let begun = Instant::now();
        let result = match self.attempt(jobs, Undo::WholeGroup) {
            Err(failure) if failure.kind == Kind::NoSpace && self.reserve.release(&self.connection) => {
                tracing::error!("the disk of the store is full; its reserve is used to save running work");
                refuse_additions(jobs);
                self.attempt(jobs, Undo::WholeGroup)
            }
            result => result,
        };
        if self.newest <= SMALL_GROUP {
            self.average = (self.average * (AVERAGE_OVER - 1) + begun.elapsed()) / AVERAGE_OVER;
        }
        match result {
            Ok(hints) => {
                jobs.drain(..).for_each(|job| job.finish(Ok(())));
                self.parts.wake.send(&hints);
            }
            Err(failure) => {
                jobs.drain(..).for_each(|job| job.finish(Err(&failure)));
                if failure.is_final {
                    tracing::error!(
                        error = failure.message,
                        "the store cannot be written; all further writes are refused"
                    );
                    self.broken = Some(failure);
                }
            }
        }
    }

    /// Decides whether this commit or the thread in `log` copies the log back.
    fn choose_who_copies(&mut self, jobs: usize) {
        let pages = if jobs <= SMALL_GROUP { open::WAL_PAGES } else { open::WAL_PAGES_OF_LARGE_GROUPS };
        // A setting that does not take changes nothing but speed.
        if pages != self.wal_pages && self.connection.pragma_update(None, "wal_autocheckpoint", pages).is_ok() {
            self.wal_pages = pages;
        }
    }

    /// One transaction around all jobs.
    fn attempt(&self, jobs: &mut [Box<dyn Job>], undo: Undo) -> Result<Vec<Hint>, Failure> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let fail = |doing| move |error| Failure::of(&errors::sqlite(doing, error));
        execute(&self.connection, sql::BEGIN).map_err(fail("begin a transaction"))?;
        let result = self.transaction(jobs, undo).and_then(|ran| match ran {
            Ran::All(hints) => match execute(&self.connection, sql::COMMIT) {
                Ok(_) => Ok(Some(hints)),
                Err(error) => Err(fail("commit a transaction")(error)),
            },
            Ran::MustUndoOne => Ok(None),
        });
        if !self.connection.is_autocommit() {
            execute(&self.connection, sql::ROLLBACK).map_err(fail("roll a transaction back"))?;
        }
        match result? {
            Some(hints) => Ok(hints),
            None => self.attempt(jobs, Undo::Each),
        }
    }

    fn transaction(&self, jobs: &mut [Box<dyn Job>], undo: Undo) -> Result<Ran, Failure> {
        let fail = |error| Failure::of(&errors::write(error));
        let connection = &self.connection;
        let now = self.parts.clock.now_in(connection).map_err(fail)?;
        let mut work = Work { connection, blobs: &self.parts.blobs, now, hints: Vec::new() };
        for job in jobs {
            let hints = work.hints.len();
            let changes = connection.total_changes();
            if undo == Undo::Each {
                execute(connection, sql::SAVEPOINT).map_err(fail)?;
            }
            match job.run(&mut work) {
                Outcome::Done => {}
                Outcome::Fatal(failure) => return Err(failure),
                Outcome::Failed if undo == Undo::Each => {
                    work.hints.truncate(hints);
                    execute(connection, sql::ROLLBACK_TO).map_err(fail)?;
                }
                Outcome::Failed if connection.total_changes() == changes => work.hints.truncate(hints),
                Outcome::Failed => return Ok(Ran::MustUndoOne),
            }
            if undo == Undo::Each {
                execute(connection, sql::RELEASE_SAVEPOINT).map_err(fail)?;
            }
        }
        Ok(Ran::All(work.hints))
    }

    /// Looks for commits of other processes.
    fn look(&mut self) {
        let newest = self.data_version();
        if newest != self.foreign {
            self.foreign = newest;
            self.parts.wake.send_here(Hint::Anything);
        }
    }

    fn data_version(&self) -> Option<i64> {
        self.connection.prepare_cached(sql::DATA_VERSION).ok()?.query_row([], |row| row.get(0)).ok()
    }
}

/// How the writes of a job that fails are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    /// With the whole group, which then runs again with [`Undo::Each`].
    WholeGroup,
    /// With a savepoint around each job.
    Each,
}

/// What became of the jobs of a transaction that is still open.
enum Ran {
    All(Vec<Hint>),
    MustUndoOne,
}

fn refuse_additions(jobs: &mut Vec<Box<dyn Job>>) {
    let failure = Failure {
        kind: Kind::NoSpace,
        message: "the disk of the store is full; running work is saved, nothing new is taken until there is space"
            .to_owned(),
        is_final: false,
    };
    let (adds, saves) = std::mem::take(jobs).into_iter().partition(|job| job.purpose() == Purpose::Adds);
    *jobs = saves;
    let adds: Vec<Box<dyn Job>> = adds;
    adds.into_iter().for_each(|job| job.finish(Err(&failure)));
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<usize> {
    connection.prepare_cached(sql)?.execute([])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sqlite;
    use crate::open::Options;
    use tenure_store::Store;

    /// Where a commit runs, after small groups took this long on average.
    fn thread_of_a_commit(runtime: &tokio::runtime::Runtime, average: Duration, newest: usize) -> String {
        let folder = tempfile::TempDir::new().expect("a folder can be made");
        let write = async move {
            let store = Sqlite::open(Options::new(folder.path())).expect("a store can be made");
            let writer = &store.writer;
            // Waits for what the store itself writes at its start.
            writer.write(Purpose::Saves, |_| Ok(())).await.expect("a commit");
            {
                let mut desk = writer.desk.lock().expect("no panic");
                let desk = desk.as_mut().expect("open");
                (desk.average, desk.newest) = (average, newest);
            }
            let thread = |_: &mut Work<'_>| Ok(std::thread::current().name().unwrap_or_default().to_owned());
            let name = writer.write(Purpose::Saves, thread).await.expect("a commit");
            store.close().await;
            assert_eq!(writer.write(Purpose::Saves, |_| Ok(())).await.map_err(|error| error.kind), Err(Kind::Broken));
            name
        };
        runtime.block_on(async { tokio::spawn(write).await.expect("no panic") })
    }

    #[test]
    fn a_lone_caller_commits_itself_unless_that_holds_others_up() {
        let build = |threads| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads).thread_name("caller").enable_all().build().expect("a runtime can be made")
        };
        assert_eq!(thread_of_a_commit(&build(2), Duration::ZERO, 1), "caller");
        assert_eq!(thread_of_a_commit(&build(2), 2 * QUICK, 1), "store-writer", "the disk is slow");
        assert_eq!(thread_of_a_commit(&build(2), Duration::ZERO, 2), "store-writer", "others come back too");
        assert_eq!(thread_of_a_commit(&build(1), Duration::ZERO, 1), "store-writer", "the runtime has no other thread");
    }
}
