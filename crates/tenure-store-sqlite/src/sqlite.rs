//! The store itself: each operation of the port, from its request to its reply. What can be done
//! outside the transaction (encoding, large payloads, decoding) is done outside.

use crate::blobs::{Blobs, Kept};
use crate::clock::Clock;
use crate::errors;
use crate::log::{self, Upkeep};
use crate::open::{self, Options};
use crate::operations::claim::{Granted, Turn};
use crate::operations::commit::{NewEvent, Page};
use crate::operations::create::NewHead;
use crate::operations::deliver::{Letters, NewInput, Slip};
use crate::operations::{
    catalog, claim, commit, create, delete, deliver, idempotency, leases, nodes, sessions, timers,
};
use crate::reader::Readers;
use crate::reserve::Reserve;
use crate::rows;
use crate::wake::Wake;
use crate::writer::{Parts, Purpose, Work, Writer};
use async_trait::async_trait;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tenure_core::{
    Agent, AgentId, Environment, EnvironmentId, Event, EventId, Input, InputBody, Millis, NodeId, SessionId, TenantId,
    Timestamp, stored,
};
use tenure_store::{
    Beat, BeatReply, CatalogQuery, Checkpoint, Claim, Committed, Counts, Created, Delivered, Delivery, Due, Error,
    EventQuery, Hint, Idempotency, Kind, Lease, LeaseQuery, Leased, MAX_INLINE_BYTES, NewNode, NewSession, Node,
    PastLease, QueueDepth, Receipt, Remembered, Removed, Renewed, SessionQuery, SessionView, Store,
};
use tokio::sync::broadcast;

/// The embedded store.
#[derive(Debug)]
pub struct Sqlite {
    pub(crate) writer: Writer,
    readers: Arc<Readers>,
    parts: Parts,
    upkeep: Mutex<Option<Upkeep>>,
    turn: Arc<Mutex<Turn>>,
}

impl Sqlite {
    /// Opens the store of a data folder, or makes it.
    ///
    /// # Errors
    /// When the folder cannot be used, the file is damaged, or a newer release wrote it.
    pub fn open(options: Options) -> Result<Arc<Self>, Error> {
        open::prepare(&options)?;
        let connection = open::writer(&options)?;
        let left = log::removals(&connection)?;
        let clock = Arc::new(Clock::load(options.wall.clone(), &connection)?);
        let wake = Wake::start(&options.path).map_err(|error| errors::file("start the wake-up socket", error))?;
        let blobs = Blobs::new(&options.path);
        let reserve = Reserve::new(&options.path, &connection, options.max_bytes).map_err(errors::write)?;
        let parts = Parts { blobs, clock, wake };
        let upkeep = Mutex::new(Some(Upkeep::start(&options)?));
        let writer = Writer::start(connection, reserve, parts.clone())?;
        for session in left {
            writer.write_later(move |work| {
                while !delete::some_events(work, session)? {}
                Ok(())
            })?;
        }
        Ok(Arc::new(Self { writer, readers: Arc::new(Readers::new(options)), parts, upkeep, turn: Arc::default() }))
    }

    /// Copies the store into the folder `to` while it is in use: the file as of one moment, and all
    /// payloads that it names.
    ///
    /// # Errors
    /// When the copy cannot be written; what is there of it is not a backup then.
    pub async fn backup(&self, to: &Path) -> Result<(), Error> {
        let (to, blobs) = (to.to_owned(), self.parts.blobs.clone());
        self.readers.read_at_length(move |connection| crate::backup::copy(connection, &blobs, &to)).await
    }

    /// The store's time, outside of a transaction.
    pub(crate) fn clock_now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.readers.read(read).await
    }

    pub(crate) async fn save<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.write(Purpose::Saves, work).await
    }

    async fn add<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.write(Purpose::Adds, work).await
    }

    /// Keeps bodies, on a thread that may block if one of them is large.
    async fn keep(&self, tenant: &TenantId, bodies: Vec<String>) -> Result<Vec<Kept>, Error> {
        if bodies.iter().all(|body| body.len() <= MAX_INLINE_BYTES) {
            return Ok(bodies.into_iter().map(Kept::inline).collect());
        }
        let (blobs, tenant) = (self.parts.blobs.clone(), tenant.clone());
        blocking(move || bodies.into_iter().map(|body| blobs.keep(&tenant.0, body)).collect()).await
    }

    async fn keep_events(&self, tenant: &TenantId, events: &[Event]) -> Result<Vec<NewEvent>, Error> {
        let kept = self.keep(tenant, events.iter().map(stored::encode_event).collect()).await?;
        Ok(events.iter().zip(kept).map(|(event, kept)| NewEvent::of(event, kept)).collect())
    }

    async fn keep_inputs(&self, tenant: &TenantId, inputs: Vec<(EventId, InputBody)>) -> Result<Vec<NewInput>, Error> {
        let inputs: Vec<Input> = inputs.into_iter().map(|(id, body)| Input { id, at: Timestamp(0), body }).collect();
        let kept = self.keep(tenant, inputs.iter().map(stored::encode_input).collect()).await?;
        Ok(inputs
            .into_iter()
            .zip(kept)
            .map(|(input, kept)| NewInput { id: input.id, body: input.body, kept })
            .collect())
    }

    /// Decodes inputs, on a thread that may block if one of them is large.
    async fn inputs(&self, rows: Vec<rows::Stored>) -> Result<Vec<(u64, Input)>, Error> {
        if rows.iter().all(|row| row.body.blob.is_none()) {
            return rows::inputs(rows, &self.parts.blobs);
        }
        let blobs = self.parts.blobs.clone();
        blocking(move || rows::inputs(rows, &blobs)).await
    }

    async fn receipt(&self, slip: Slip, body: &InputBody) -> Result<Receipt, Error> {
        let blobs = self.parts.blobs.clone();
        Ok(match slip {
            Slip::Own(id, at) => Receipt::Queued(Input { id, at, body: body.clone() }),
            Slip::Earlier(row) => Receipt::Queued(blocking(move || row.input(&blobs)).await?),
            Slip::Logged(row) => Receipt::Logged(blocking(move || row.event(&blobs)).await?),
            Slip::Nothing => Receipt::Nothing,
        })
    }

    async fn leased(&self, granted: Granted) -> Result<Leased, Error> {
        let session =
            stored::decode_session(&granted.body).map_err(|error| errors::corrupt(granted.lease.session, error))?;
        let inbox = self.inputs(granted.inbox).await?;
        let Granted { lease, claims, previous, queued_at, now, .. } = granted;
        Ok(Leased { lease, session, inbox, claims, previous, queued_at, now })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::caused(Kind::Broken, "a task of the store was aborted", error))?
}

#[async_trait]
impl Store for Sqlite {
    async fn create(&self, new: NewSession) -> Result<Created, Error> {
        new.check()?;
        let NewSession { session, events, metadata, inputs, idempotency } = new;
        let events = self.keep_events(&session.tenant, &events).await?;
        let inputs = self.keep_inputs(&session.tenant, inputs).await?;
        let (body, metadata) = (stored::encode_session(&session), sessions::encode(&metadata)?);
        let new = NewHead { session, events, body, metadata, inputs, idempotency };
        let (view, is_repeat) = self.add(move |work| create::create(work, &new)).await?;
        Ok(Created { view: view.decode()?, is_repeat })
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Error> {
        let Delivery { tenant, session, inputs, notes, idempotency } = delivery;
        let bodies: Vec<InputBody> = inputs.iter().map(|(_, body)| body.clone()).collect();
        // A person must be able to stop a session on a full disk.
        let purpose = if bodies.iter().any(InputBody::is_urgent) { Purpose::Saves } else { Purpose::Adds };
        let inputs = self.keep_inputs(&tenant, inputs).await?;
        let letters = Letters { tenant, session, inputs, notes, idempotency };
        let (slips, is_repeat) = self.writer.write(purpose, move |work| deliver::deliver(work, &letters)).await?;
        let mut receipts = Vec::with_capacity(slips.len());
        for (slip, body) in slips.into_iter().zip(&bodies) {
            receipts.push(self.receipt(slip, body).await?);
        }
        Ok(Delivered { receipts, is_repeat })
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Leased>, Error> {
        let turn = self.turn.clone();
        let granted = self
            .add(move |work| claim::claim(work, &claim, &mut turn.lock().expect("nobody panics while holding it")))
            .await?;
        let mut leased = Vec::with_capacity(granted.len());
        for granted in granted {
            let lease = granted.lease.clone();
            match self.leased(granted).await {
                Ok(granted) => leased.push(granted),
                Err(error) => {
                    tracing::error!(session = %lease.session, %error, "session cannot be read and is set aside");
                    self.save(move |work| claim::set_aside(work, &lease)).await?;
                }
            }
        }
        Ok(leased)
    }

    async fn commit(&self, checkpoint: Checkpoint) -> Result<Committed, Error> {
        checkpoint.check()?;
        let Checkpoint { lease, commit_id, events, session, consumed, then } = checkpoint;
        let is_progress = events.iter().any(|event| event.body.is_progress());
        let events = self.keep_events(&lease.tenant, &events).await?;
        let body = stored::encode_session(&session);
        let commit_id = rows::key(commit_id.bits());
        let page = Page { lease, commit_id, events, is_progress, body, session, consumed, then };
        let done = self.save(move |work| commit::commit(work, &page)).await?;
        Ok(Committed { is_held: done.is_held, inbox: self.inputs(done.inbox).await?, now: done.now })
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let lease = lease.clone();
        self.save(move |work| leases::release(work, &lease)).await
    }

    async fn renew(&self, lease: &Lease, span: Millis) -> Result<Renewed, Error> {
        let lease = lease.clone();
        self.save(move |work| leases::renew(work, &lease, span)).await
    }

    async fn queue_depth(&self, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Error> {
        let (tenant, queue) = (tenant.clone(), queue.to_owned());
        self.read(move |connection| leases::depth(connection, &tenant, &queue)).await
    }

    async fn register(&self, node: NewNode) -> Result<(), Error> {
        self.save(move |work| nodes::register(work, &node)).await
    }

    async fn heartbeat(&self, beat: Beat) -> Result<BeatReply, Error> {
        self.save(move |work| nodes::heartbeat(work, &beat)).await
    }

    async fn controls(&self, node: NodeId) -> Result<Vec<SessionId>, Error> {
        self.read(move |connection| nodes::controls(connection, node)).await
    }

    async fn sweep(&self, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error> {
        let now = self.parts.clock.now();
        if seen.is_empty() && !self.read(move |connection| nodes::has_orphans(connection, now)).await? {
            return Ok(Vec::new());
        }
        let seen = seen.to_vec();
        self.save(move |work| nodes::sweep(work, &seen)).await
    }

    async fn retire(&self, node: NodeId) -> Result<(), Error> {
        self.save(move |work| nodes::retire(work, node)).await
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        let now = self.parts.clock.now();
        let next = self.read(timers::next).await?;
        if next.is_none_or(|next| next > now) {
            return Ok(Due { woken: 0, next, now });
        }
        self.save(move |work| timers::due(work, limit)).await
    }

    async fn nodes(&self) -> Result<Vec<Node>, Error> {
        self.read(nodes::nodes).await
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
        let tenant = tenant.clone();
        self.read(move |connection| sessions::session(connection, &tenant, id)).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionView>, Error> {
        self.read(move |connection| sessions::sessions(connection, &query)).await
    }

    async fn sessions_by_tail(&self, tenant: &TenantId, tail: &str, limit: usize) -> Result<Vec<SessionId>, Error> {
        let (tenant, tail) = (tenant.clone(), tail.to_owned());
        self.read(move |connection| sessions::by_tail(connection, &tenant, &tail, limit)).await
    }

    async fn counts(&self) -> Result<Counts, Error> {
        self.read(sessions::counts).await
    }

    async fn phases(&self, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Error> {
        let tenant = tenant.clone();
        self.read(move |connection| sessions::phases(connection, &tenant)).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<Event>, Error> {
        let blobs = self.parts.blobs.clone();
        self.read(move |connection| sessions::events(connection, &blobs, &query)).await
    }

    async fn leases(&self, query: LeaseQuery) -> Result<Vec<PastLease>, Error> {
        self.read(move |connection| leases::leases(connection, &query)).await
    }

    async fn remembered(&self, tenant: &TenantId, key: &Idempotency) -> Result<Option<Remembered>, Error> {
        let (tenant, key) = (tenant.clone(), key.clone());
        self.read(move |connection| idempotency::remembered(connection, &tenant, &key)).await
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<(u64, Input)>, Error> {
        let blobs = self.parts.blobs.clone();
        self.read(move |connection| sessions::inbox(connection, &blobs, session)).await
    }

    async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<Removed, Error> {
        let tenant = tenant.clone();
        let (removed, left) = self.save(move |work| delete::head(work, &tenant, id)).await?;
        for session in left {
            while !self.save(move |work| delete::some_events(work, session)).await? {}
        }
        Ok(removed)
    }

    async fn put_agent(&self, agent: Agent, idempotency: Option<Idempotency>) -> Result<Agent, Error> {
        self.add(move |work| catalog::put_agent(work, &agent, idempotency.as_ref())).await
    }

    async fn agent(&self, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error> {
        let tenant = tenant.clone();
        self.read(move |connection| catalog::agent(connection, &tenant, id, version)).await
    }

    async fn agents(&self, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        self.read(move |connection| catalog::agents(connection, &query)).await
    }

    async fn agent_versions(&self, tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        let tenant = tenant.clone();
        self.read(move |connection| catalog::versions(connection, &tenant, id, &query)).await
    }

    async fn archive_agent(&self, tenant: &TenantId, id: AgentId) -> Result<Agent, Error> {
        let tenant = tenant.clone();
        self.save(move |work| catalog::archive_agent(work, &tenant, id)).await
    }

    async fn put_environment(
        &self,
        environment: Environment,
        idempotency: Option<Idempotency>,
    ) -> Result<Environment, Error> {
        self.add(move |work| catalog::put_environment(work, &environment, idempotency.as_ref())).await
    }

    async fn environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error> {
        let tenant = tenant.clone();
        self.read(move |connection| catalog::environment(connection, &tenant, id)).await
    }

    async fn environments(&self, query: CatalogQuery) -> Result<Vec<Environment>, Error> {
        self.read(move |connection| catalog::environments(connection, &query)).await
    }

    async fn delete_environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.save(move |work| catalog::delete_environment(work, &tenant, id)).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.parts.clock.now())
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.parts.wake.subscribe()
    }

    async fn close(&self) {
        self.writer.close().await;
        self.readers.close();
        let upkeep = self.upkeep.lock().expect("nobody panics while holding it").take();
        if let Some(upkeep) = upkeep {
            let _ = tokio::task::spawn_blocking(move || upkeep.close()).await;
        }
        self.parts.wake.close();
    }
}
