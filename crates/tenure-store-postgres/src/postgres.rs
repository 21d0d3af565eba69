//! The store itself: each operation of the port, from its request to its reply. What can be done
//! outside the transaction (encoding, large payloads, decoding) is done outside.

use crate::clock::Clock;
use crate::hints::Hints;
use crate::link::{Link, Pool};
use crate::operations::claim::Granted;
use crate::operations::commit::{NewEvent, Page};
use crate::operations::create::NewHead;
use crate::operations::deliver::{Letters, NewInput, Slip};
use crate::operations::{
    catalog, claim, commit, create, delete, deliver, idempotency, leases, nodes, sessions, timers,
};
use crate::options::Options;
use crate::params::{key, params};
use crate::payloads::{self, Kept};
use crate::rows::{self, bits};
use crate::statements as sql;
use crate::transact::{Tx, read, transact};
use crate::trouble::{Trouble, corrupt};
use crate::{migrate, statements};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::{
    Agent, AgentId, Environment, EnvironmentId, Event, EventId, Input, InputBody, Millis, NodeId, SessionId, TenantId,
    Timestamp, stored,
};
use tenure_store::{
    Beat, BeatReply, CatalogQuery, Checkpoint, Claim, Committed, Counts, Created, Delivered, Delivery, Due, Error,
    EventQuery, Hint, Idempotency, Kind, Lease, LeaseQuery, Leased, NewNode, NewSession, Node, PastLease, QueueDepth,
    Receipt, Remembered, Removed, Renewed, SessionQuery, SessionView, Store,
};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// What `doctor` says about a database.
#[derive(Clone, Debug)]
pub struct Facts {
    /// One line.
    pub summary: String,
    /// What should be mended.
    pub warnings: Vec<String>,
}

/// A store on PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    pool: Arc<Pool>,
    clock: Clock,
    hints: Hints,
    /// The tenant that was served last by a claim of this process.
    turn: Mutex<Option<String>>,
    skips_locked: bool,
    stop: CancellationToken,
}

impl Postgres {
    /// Connects, and makes the tables if there are none. Call inside a tokio runtime.
    ///
    /// # Errors
    /// When the database cannot be reached or used, or a newer release made its tables.
    pub async fn open(options: Options) -> Result<Arc<Self>, Error> {
        let pool = Pool::new(options.clone());
        let (clock, skips_locked) = (Clock::new(options.shift_millis.clone()), options.skips_locked);
        let stop = CancellationToken::new();
        let hints = Hints::start(options, stop.clone());
        let store = Arc::new(Self { pool, clock, hints, turn: Mutex::default(), skips_locked, stop });
        read!(store, link => migrate::migrate(&link).await)?;
        store.now().await?;
        store.finish_removals().await?;
        Ok(store)
    }

    /// What `doctor` says about the database.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn facts(&self) -> Result<Facts, Error> {
        let settings = read!(self, link => link.rows(sql::SETTINGS, params![]).await)?;
        let setting =
            |name: &str| settings.iter().find(|row| row.get::<_, &str>(0) == name).map(|row| row.get::<_, String>(1));
        let mut warnings = Vec::new();
        for name in ["fsync", "full_page_writes", "synchronous_commit"] {
            if let Some(value) = setting(name).filter(|value| value == "off") {
                warnings.push(format!("{name} is {value}: what was acknowledged can be lost when the server crashes"));
            }
        }
        if self.pool.is_exposed() {
            warnings.push(
                "the connection to the database is not encrypted; add ?sslmode=require to store.url, and \
                 sslrootcert=FILE if its certificate is from an authority of its own"
                    .to_owned(),
            );
        }
        let has_standby = setting("synchronous_standby_names").is_some_and(|names| !names.is_empty());
        let standby = if has_standby { "with a synchronous standby" } else { "without a synchronous standby" };
        let version = setting("server_version").unwrap_or_else(|| "unknown".to_owned());
        Ok(Facts { summary: format!("server {version}, tables {}, {standby}", migrate::VERSION), warnings })
    }

    /// Has the database check every statement, for tests; gives the ones that it does not take.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn wrong_statements(&self) -> Result<Vec<String>, Error> {
        let link = self.pool.link().await.map_err(Trouble::into_error)?;
        let mut wrong = Vec::new();
        for (name, text) in statements::ALL {
            if let Err(trouble) = link.prepare(text).await {
                wrong.push(format!("{name}: {}", trouble.into_error()));
            }
        }
        Ok(wrong)
    }

    /// Removes what is left of sessions whose removal was cut short.
    async fn finish_removals(&self) -> Result<(), Error> {
        let left = read!(self, link => link.rows(sql::REMOVALS, params![]).await)?;
        for row in left {
            self.remove_events(SessionId::from_bits(bits(&row, 0))).await?;
        }
        Ok(())
    }

    async fn remove_events(&self, id: SessionId) -> Result<(), Error> {
        while !transact!(self, tx => delete::some_events(&mut tx, id).await)? {}
        Ok(())
    }

    pub(crate) async fn link(&self) -> Result<Link, Trouble> {
        self.pool.link().await
    }

    pub(crate) async fn begin(&self, may_repeat: bool) -> Result<Tx, Trouble> {
        let link = self.pool.link().await?;
        let now = self.clock.read(&link).await?;
        Tx::begin(link, now, may_repeat).await
    }

    pub(crate) fn tell(&self, hints: Vec<Hint>) {
        self.hints.tell(hints);
    }

    async fn keep(&self, tenant: &TenantId, bodies: Vec<String>) -> Result<Vec<Kept>, Error> {
        if bodies.iter().all(|body| body.len() <= tenure_store::MAX_INLINE_BYTES) {
            return Ok(bodies.into_iter().map(|body| Kept { inline: Some(body), payload: None }).collect());
        }
        let mut kept = Vec::with_capacity(bodies.len());
        for body in &bodies {
            kept.push(read!(self, link => payloads::keep(&link, tenant, body).await)?);
        }
        Ok(kept)
    }

    async fn keep_events(&self, tenant: &TenantId, events: &[Event]) -> Result<Vec<NewEvent>, Error> {
        let kept = self.keep(tenant, events.iter().map(stored::encode_event).collect()).await?;
        Ok(events.iter().zip(kept).map(|(event, kept)| NewEvent::of(event, kept)).collect())
    }

    async fn keep_inputs(&self, tenant: &TenantId, inputs: Vec<(EventId, InputBody)>) -> Result<Vec<NewInput>, Error> {
        let inputs: Vec<Input> = inputs.into_iter().map(|(id, body)| Input { id, at: Timestamp(0), body }).collect();
        let kept = self.keep(tenant, inputs.iter().map(stored::encode_input).collect()).await?;
        let new = |(input, kept): (Input, Kept)| NewInput { id: input.id, body: input.body, kept };
        Ok(inputs.into_iter().zip(kept).map(new).collect())
    }

    async fn inputs(&self, stored: Vec<rows::Stored>) -> Result<Vec<(u64, Input)>, Error> {
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        read!(self, link => rows::inputs(&link, stored.clone()).await)
    }

    async fn receipt(&self, slip: Slip, body: &InputBody) -> Result<Receipt, Error> {
        Ok(match slip {
            Slip::Own(id, at) => Receipt::Queued(Input { id, at, body: body.clone() }),
            Slip::Earlier(row) => Receipt::Queued(read!(self, link => row.input(&link).await)?),
            Slip::Logged(row) => Receipt::Logged(read!(self, link => row.event(&link).await)?),
            Slip::Nothing => Receipt::Nothing,
        })
    }

    async fn leased(&self, granted: Granted) -> Result<Leased, Error> {
        let session = stored::decode_session(&granted.body).map_err(|error| corrupt(granted.lease.session, error))?;
        let inbox = self.inputs(granted.inbox).await?;
        let Granted { lease, claims, previous, queued_at, now, .. } = granted;
        Ok(Leased { lease, session, inbox, claims, previous, queued_at, now })
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.turn.lock().expect("nobody panics while holding it")
    }
}

#[async_trait]
impl Store for Postgres {
    async fn create(&self, new: NewSession) -> Result<Created, Error> {
        new.check()?;
        let NewSession { session, events, metadata, inputs, idempotency } = new;
        let events = self.keep_events(&session.tenant, &events).await?;
        let inputs = self.keep_inputs(&session.tenant, inputs).await?;
        let (body, metadata) = (stored::encode_session(&session), sessions::encode(&metadata)?);
        let new = NewHead { session, events, body, metadata, inputs, idempotency };
        let (view, is_repeat) = transact!(self, tx => create::create(&mut tx, &new).await)?;
        Ok(Created { view: view.decode()?, is_repeat })
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Error> {
        let Delivery { tenant, session, inputs, notes, idempotency } = delivery;
        let bodies: Vec<InputBody> = inputs.iter().map(|(_, body)| body.clone()).collect();
        let inputs = self.keep_inputs(&tenant, inputs).await?;
        let letters = Letters { tenant, session, inputs, notes, idempotency };
        let (slips, is_repeat) = transact!(self, tx => deliver::deliver(&mut tx, &letters).await)?;
        let mut receipts = Vec::with_capacity(slips.len());
        for (slip, body) in slips.into_iter().zip(&bodies) {
            receipts.push(self.receipt(slip, body).await?);
        }
        Ok(Delivered { receipts, is_repeat })
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Leased>, Error> {
        let turn = self.turn().clone();
        let (granted, turn) =
            transact!(self, tx => claim::claim(&mut tx, &claim, turn.clone(), self.skips_locked).await)?;
        *self.turn() = turn;
        let mut leased = Vec::with_capacity(granted.len());
        for granted in granted {
            let lease = granted.lease.clone();
            match self.leased(granted).await {
                Ok(granted) => leased.push(granted),
                Err(error) if error.kind == Kind::Retry => return Err(error),
                Err(error) => {
                    tracing::error!(session = %lease.session, %error, "session cannot be read and is set aside");
                    transact!(self, tx => claim::set_aside(&mut tx, &lease).await)?;
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
        let commit_id = key(commit_id.bits());
        let page = Page { lease, commit_id, events, is_progress, body, session, consumed, then };
        let done = transact!(self, tx => commit::commit(&mut tx, &page).await)?;
        Ok(Committed { is_held: done.is_held, inbox: self.inputs(done.inbox).await?, now: done.now })
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        transact!(self, tx => leases::release(&mut tx, lease).await)
    }

    async fn renew(&self, lease: &Lease, span: Millis) -> Result<Renewed, Error> {
        transact!(self, tx => leases::renew(&mut tx, lease, span).await)
    }

    async fn queue_depth(&self, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Error> {
        read!(self, link => leases::depth(&link, tenant, queue).await)
    }

    async fn register(&self, node: NewNode) -> Result<(), Error> {
        transact!(self, tx => nodes::register(&mut tx, &node).await)
    }

    async fn heartbeat(&self, beat: Beat) -> Result<BeatReply, Error> {
        transact!(self, tx => nodes::heartbeat(&mut tx, &beat).await)
    }

    async fn controls(&self, node: NodeId) -> Result<Vec<SessionId>, Error> {
        read!(self, link => nodes::controls(&link, node).await)
    }

    async fn sweep(&self, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error> {
        let now = self.now().await?;
        if seen.is_empty() && read!(self, link => nodes::orphans(&link, now).await)?.is_empty() {
            return Ok(Vec::new());
        }
        transact!(self, tx => nodes::sweep(&mut tx, seen).await)
    }

    async fn retire(&self, node: NodeId) -> Result<(), Error> {
        transact!(self, tx => nodes::retire(&mut tx, node).await)
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        let now = self.now().await?;
        let next = read!(self, link => timers::next(&link).await)?;
        if next.is_none_or(|next| next > now) {
            return Ok(Due { woken: 0, next, now });
        }
        transact!(self, tx => timers::due(&mut tx, limit).await)
    }

    async fn nodes(&self) -> Result<Vec<Node>, Error> {
        read!(self, link => nodes::nodes(&link).await)
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
        read!(self, link => sessions::session(&link, tenant, id).await)
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionView>, Error> {
        read!(self, link => sessions::sessions(&link, &query).await)
    }

    async fn sessions_by_tail(&self, tenant: &TenantId, tail: &str, limit: usize) -> Result<Vec<SessionId>, Error> {
        read!(self, link => sessions::by_tail(&link, tenant, tail, limit).await)
    }

    async fn counts(&self) -> Result<Counts, Error> {
        read!(self, link => sessions::counts(&link).await)
    }

    async fn phases(&self, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Error> {
        read!(self, link => sessions::phases(&link, tenant).await)
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<Event>, Error> {
        read!(self, link => sessions::events(&link, &query).await)
    }

    async fn leases(&self, query: LeaseQuery) -> Result<Vec<PastLease>, Error> {
        read!(self, link => leases::leases(&link, &query).await)
    }

    async fn remembered(&self, tenant: &TenantId, key: &Idempotency) -> Result<Option<Remembered>, Error> {
        read!(self, link => idempotency::remembered(&link, tenant, key).await)
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<(u64, Input)>, Error> {
        read!(self, link => sessions::inbox(&link, session).await)
    }

    async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<Removed, Error> {
        let (removed, left) = transact!(self, tx => delete::head(&mut tx, tenant, id).await)?;
        for session in left {
            self.remove_events(session).await?;
        }
        Ok(removed)
    }

    async fn put_agent(&self, agent: Agent, idempotency: Option<Idempotency>) -> Result<Agent, Error> {
        transact!(self, tx => catalog::put_agent(&mut tx, &agent, idempotency.as_ref()).await)
    }

    async fn agent(&self, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error> {
        read!(self, link => catalog::agent(&link, tenant, id, version).await)
    }

    async fn agents(&self, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        read!(self, link => catalog::agents(&link, &query).await)
    }

    async fn agent_versions(&self, tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        read!(self, link => catalog::versions(&link, tenant, id, &query).await)
    }

    async fn archive_agent(&self, tenant: &TenantId, id: AgentId) -> Result<Agent, Error> {
        transact!(self, tx => catalog::archive_agent(&mut tx, tenant, id).await)
    }

    async fn put_environment(
        &self,
        environment: Environment,
        idempotency: Option<Idempotency>,
    ) -> Result<Environment, Error> {
        transact!(self, tx => catalog::put_environment(&mut tx, &environment, idempotency.as_ref()).await)
    }

    async fn environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error> {
        read!(self, link => catalog::environment(&link, tenant, id).await)
    }

    async fn environments(&self, query: CatalogQuery) -> Result<Vec<Environment>, Error> {
        read!(self, link => catalog::environments(&link, &query).await)
    }

    async fn delete_environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error> {
        transact!(self, tx => catalog::delete_environment(&mut tx, tenant, id).await)
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        read!(self, link => self.clock.read(&link).await)
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    async fn close(&self) {
        self.stop.cancel();
        self.pool.close();
    }
}
