//! Measures: the store, and a bare loop of the same SQL with the same group size on the same disk.
//!
//! The bare loop is what the disk and SQLite give to anybody: one thread, prepared statements, no
//! queue, no tasks, nothing encoded or checked. The store is to reach at least 0.8 of it.

use crate::open::{self, Options};
use crate::statements as sql;
use crate::{Sqlite, errors, rows};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{
    AgentId, AgentRef, Body, EnvironmentId, Event, EventId, LeaseId, NodeId, Origin, Session, SessionId, TenantId,
    Timestamp, apply, stored,
};
use tenure_store::{Checkpoint, Claim, Error, Kind, Lane, Lease, Leased, NewNode, NewSession, Store, Then};
use tokio::sync::Barrier;

/// Rows of each checkpoint.
const ROWS: usize = 2;

/// Text of each row: with its frame about 1 KiB.
const TEXT_BYTES: usize = 960;

/// One of so many rounds is run before the measurement starts, so that the log's file has its size and
/// memory is there: sessions run for months.
const WARM_UP: usize = 3;

/// What a measurement found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From request to acknowledgement, one for each checkpoint.
    pub latencies: Vec<Duration>,
    /// From the first request to the last acknowledgement.
    pub elapsed: Duration,
}

impl Measured {
    /// Checkpoints per second.
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency below which this share of all lies, such as 0.5 or 0.99.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let place = (sorted.len().saturating_sub(1)) as f64 * share.clamp(0.0, 1.0);
        sorted.get(place.round() as usize).copied().unwrap_or_default()
    }
}

/// Commits `commits` checkpoints through the port, from `concurrency` sessions at the same time, into
/// a new store in `folder`.
///
/// # Errors
/// When the store cannot be made or written.
pub async fn run_store(folder: &Path, concurrency: usize, commits: usize) -> Result<Measured, Error> {
    let store = Sqlite::open(Options::new(folder))?;
    let leased = begin(&store, concurrency).await?;
    let rounds = commits.div_ceil(concurrency.max(1));
    let warm = Arc::new(Barrier::new(leased.len() + 1));
    let mut tasks = Vec::new();
    for leased in leased {
        let (store, warm) = (store.clone(), warm.clone());
        tasks.push(tokio::spawn(async move {
            let Leased { lease, mut session, now, .. } = leased;
            for _ in 0..rounds / WARM_UP {
                store.commit(checkpoint(&lease, &mut session, now)).await?;
            }
            warm.wait().await;
            let mut latencies = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                let checkpoint = checkpoint(&lease, &mut session, now);
                let sent = Instant::now();
                store.commit(checkpoint).await?;
                latencies.push(sent.elapsed());
            }
            Ok::<_, Error>(latencies)
        }));
    }
    warm.wait().await;
    let started = Instant::now();
    let mut latencies = Vec::with_capacity(commits);
    for task in tasks {
        latencies.extend(
            task.await
                .map_err(|error| Error::caused(Kind::Broken, "a task of the measurement was aborted", error))??,
        );
    }
    let elapsed = started.elapsed();
    store.close().await;
    Ok(Measured { latencies, elapsed })
}

/// Runs the same statements in a plain loop, `concurrency` checkpoints to a transaction, on a new
/// store in `folder`. Blocks.
///
/// # Errors
/// When the store cannot be made or written.
pub fn run_bare(folder: &Path, concurrency: usize, commits: usize) -> Result<Measured, Error> {
    let options = Options::new(folder);
    open::prepare(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| errors::file("start a runtime", error))?;
    let leased = runtime.block_on(async {
        let store = Sqlite::open(options.clone())?;
        let leased = begin(&store, concurrency).await?;
        store.close().await;
        Ok::<_, Error>(leased)
    })?;
    let connection = open::writer(&options)?;
    // The loop copies its log back itself, as SQLite does by default.
    connection.pragma_update(None, "wal_autocheckpoint", 1_000).map_err(errors::write)?;
    let mut prepared: Vec<Bare> = leased.into_iter().map(Bare::of).collect();
    let rounds = commits.div_ceil(concurrency.max(1));
    let mut latencies = Vec::with_capacity(commits);
    let mut started = Instant::now();
    for round in 0..rounds / WARM_UP + rounds {
        if round == rounds / WARM_UP {
            latencies.clear();
            started = Instant::now();
        }
        let sent = Instant::now();
        execute(&connection, sql::BEGIN)?;
        for bare in &mut prepared {
            bare.commit(&connection).map_err(errors::write)?;
        }
        execute(&connection, sql::COMMIT)?;
        latencies.extend(std::iter::repeat_n(sent.elapsed(), prepared.len()));
    }
    Ok(Measured { latencies, elapsed: started.elapsed() })
}

fn execute(connection: &Connection, statement: &str) -> Result<(), Error> {
    rows::run(connection, statement, []).map(|_| ())
}

/// One session of the bare loop, with everything made before.
struct Bare {
    id: [u8; 16],
    shard: u8,
    tenant: String,
    epoch: i64,
    nonce: [u8; 16],
    last_seq: i64,
    body: String,
    row: String,
}

impl Bare {
    fn of(leased: Leased) -> Self {
        let Leased { lease, mut session, now, .. } = leased;
        let checkpoint = checkpoint(&lease, &mut session, now);
        Self {
            id: rows::key(lease.session.bits()),
            shard: lease.session.shard().0,
            tenant: lease.tenant.0.clone(),
            epoch: rows::number(lease.epoch),
            nonce: rows::key(lease.nonce.bits()),
            last_seq: 0,
            body: stored::encode_session(&checkpoint.session),
            row: stored::encode_event(&checkpoint.events[0]),
        }
    }

    fn commit(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let base = self.last_seq;
        self.last_seq += ROWS as i64;
        let commit_id = random();
        let head = params![self.id, self.epoch, self.nonce, self.last_seq, 0, commit_id, true, 1, self.body, base];
        connection.prepare_cached(sql::CHECKPOINT)?.query_row(head, |_| Ok(()))?;
        let mut insert = connection.prepare_cached(sql::NEW_EVENT)?;
        for seq in base + 1..=self.last_seq {
            let none = None::<String>;
            insert.execute(params![self.id, seq, self.shard, self.tenant, random(), 1, 1, none, self.row, none])?;
        }
        Ok(())
    }
}

fn random() -> [u8; 16] {
    rand::random()
}

fn bits() -> u128 {
    rand::random()
}

/// Adds so many sessions and leases them.
async fn begin(store: &Sqlite, sessions: usize) -> Result<Vec<Leased>, Error> {
    let node = NodeId::from_bits(bits());
    store.register(NewNode { id: node, address: String::new(), label: "measurement".to_owned() }).await?;
    let agent = AgentRef { id: AgentId::from_bits(bits()), version: 1 };
    let now = store.now().await?;
    for _ in 0..sessions {
        let session = Session::new(
            SessionId::from_bits(bits()),
            TenantId::default_tenant(),
            agent,
            EnvironmentId::from_bits(1),
            now,
        );
        let input = (EventId::from_bits(bits()), tenure_core::InputBody::Pause);
        let new = NewSession {
            session,
            events: Vec::new(),
            metadata: BTreeMap::new(),
            inputs: vec![input],
            idempotency: None,
        };
        store.create(new).await?;
    }
    let mut leased = Vec::new();
    while leased.len() < sessions {
        let claim = Claim { node, lane: Lane::Workers, id: LeaseId::from_bits(bits()), limit: sessions - leased.len() };
        leased.extend(store.claim(claim).await?);
    }
    Ok(leased)
}

/// The next checkpoint of a session: some rows of about 1 KiB, and the head.
fn checkpoint(lease: &Lease, session: &mut Session, at: Timestamp) -> Checkpoint {
    let mut events = Vec::with_capacity(ROWS);
    for _ in 0..ROWS {
        let body = Body::AgentMessage { text: "x".repeat(TEXT_BYTES), origin: Origin::default() };
        let event = Event { id: EventId::from_bits(bits()), seq: session.last_seq + 1, at, step: 1, body };
        apply(session, &event).expect("a message can always follow while the session lives");
        events.push(event);
    }
    let commit_id = LeaseId::from_bits(bits());
    // The input that made it runnable is consumed with the first commit, as a worker does.
    let consumed = u64::from(session.last_seq == ROWS as u64);
    Checkpoint { lease: lease.clone(), commit_id, events, session: session.clone(), consumed, then: Then::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_measures_run() {
        let folder = tempfile::TempDir::new().expect("a folder can be made");
        let bare = run_bare(&folder.path().join("bare"), 4, 20).expect("it runs");
        assert_eq!(bare.latencies.len(), 20);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
        let store = runtime.block_on(run_store(&folder.path().join("store"), 4, 20)).expect("it runs");
        assert_eq!(store.latencies.len(), 20);
        assert!(store.per_second() > 0.0 && store.quantile(0.5) <= store.quantile(0.99));
    }
}
