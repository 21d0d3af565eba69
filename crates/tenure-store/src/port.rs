//! The operations and what they carry.

use crate::{Conditions, Error, Kind, Lane, LeaseQuery, PastLease, QueueDepth, Renewed};
use async_trait::async_trait;
use std::collections::BTreeMap;
use tenure_core::{
    Agent, AgentId, Environment, EnvironmentId, Event, EventId, Input, InputBody, LeaseId, Millis, NodeId, Session,
    SessionId, TenantId, Timestamp,
};
use tokio::sync::broadcast;

/// Most events that one commit may append.
pub const MAX_COMMIT_EVENTS: usize = 1_024;

/// Most rows that one read returns.
pub const MAX_PAGE: usize = 1_000;

/// A session that lost so many holders in a row at the same step is a suspect: a node is given one
/// at a time, so that the next loss says whose fault it is (hazard Z-34).
pub const SUSPECT_AFTER: u32 = 2;

/// Largest encoded event, in bytes; a larger one is refused with [`crate::Kind::Invalid`].
pub const MAX_EVENT_BYTES: usize = 48 * 1024 * 1024;

/// Events whose encoded body is larger than this are kept as blobs beside the store (design 7.2).
pub const MAX_INLINE_BYTES: usize = 32 * 1024;

/// How long an idempotency key is remembered at least, in milliseconds.
pub const IDEMPOTENCY_MILLIS: u64 = 24 * 3_600 * 1_000;

/// The port. All operations are atomic; an error means that nothing was changed, except where the
/// kind is [`crate::Kind::Retry`] after a lost reply, which every operation allows to repeat.
#[async_trait]
pub trait Store: Conditions {
    /// Adds a session, parked, with an empty log or as a fork of another one, whose rows it shares (see
    /// [`crate::lineage`]). A repeated idempotency key gives the first one.
    async fn create(&self, new: NewSession) -> Result<Created, Error>;

    /// Appends inputs to an inbox and makes the session runnable, all or nothing.
    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Error>;

    /// Leases runnable sessions, oldest first, at most one suspect to a node (see [`SUSPECT_AFTER`]). A repeated claim with the same id gives the same leases.
    async fn claim(&self, claim: Claim) -> Result<Vec<Leased>, Error>;

    /// The checkpoint: events, head, consumed inputs and status, under the lease's fence. A repeat
    /// of the same commit id after a lost reply succeeds without doing anything (hazard Z-20).
    async fn commit(&self, checkpoint: Checkpoint) -> Result<Committed, Error>;

    /// Keeps a lease of an external loop for `span` milliseconds from now on; a lease that is gone is
    /// [`Kind::Fenced`].
    async fn renew(&self, lease: &Lease, span: Millis) -> Result<Renewed, Error>;

    /// How much waits in a queue of external loops, and how much of it is leased.
    async fn queue_depth(&self, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Error>;

    /// Gives a lease back without new events; the session is queued again. A lease that is gone
    /// already is not an error.
    async fn release(&self, lease: &Lease) -> Result<(), Error>;

    /// Adds a node. Its id must be new: a restart is a new node (hazard Z-04).
    async fn register(&self, node: NewNode) -> Result<(), Error>;

    /// Says that a node lives, and reconciles what it holds with what it owns (hazard Z-03):
    /// sessions that it owns and does not hold are queued again.
    async fn heartbeat(&self, beat: Beat) -> Result<BeatReply, Error>;

    /// Of the sessions that `node` owns, those whose inbox holds something urgent.
    async fn controls(&self, node: NodeId) -> Result<Vec<SessionId>, Error>;

    /// Declares nodes dead whose counter is still the one that was seen, and queues their sessions
    /// with a raised epoch. Also takes back leases of nodes that are unknown or dead already, and those
    /// of external loops whose time is over.
    /// Returns the sessions.
    async fn sweep(&self, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error>;

    /// Ends a node in good order; its leases, if any are left, are queued again.
    async fn retire(&self, node: NodeId) -> Result<(), Error>;

    /// Queues parked sessions whose time has come, at most `limit`.
    async fn due(&self, limit: usize) -> Result<Due, Error>;

    /// All nodes that are not forgotten, dead ones included.
    async fn nodes(&self) -> Result<Vec<Node>, Error>;

    /// The head of a session with what only the store knows about it.
    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error>;

    /// Sessions in the order of their creation.
    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionView>, Error>;

    /// Sessions whose id ends with `tail`, at most `limit`, newest first.
    async fn sessions_by_tail(&self, tenant: &TenantId, tail: &str, limit: usize) -> Result<Vec<SessionId>, Error>;

    /// How many sessions are in each state, of all tenants.
    async fn counts(&self) -> Result<Counts, Error>;

    /// How many sessions of a tenant are in each phase, archived ones included, by the word of the phase.
    async fn phases(&self, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Error>;

    /// Rows of a log.
    async fn events(&self, query: EventQuery) -> Result<Vec<Event>, Error>;

    /// Leases of a session by epoch, the one that is out now included; see [`crate::KEPT_EPOCHS`].
    async fn leases(&self, query: LeaseQuery) -> Result<Vec<PastLease>, Error>;

    /// What an earlier request with this key got, so that its repeat is known before anything is
    /// checked that may have changed since; a key of another body is refused like everywhere.
    async fn remembered(&self, tenant: &TenantId, key: &Idempotency) -> Result<Option<Remembered>, Error>;

    /// Inputs that wait in an inbox, oldest first, each with its position.
    async fn inbox(&self, session: SessionId) -> Result<Vec<(u64, Input)>, Error>;

    /// Removes a session that is not leased, with its log and inbox. Rows that forks share stay until the last
    /// of those is removed (hazard Z-13).
    async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<Removed, Error>;

    /// Adds an agent, or the next version of one: `agent.version` must be the newest plus one.
    /// A repeated idempotency key gives the first one.
    async fn put_agent(&self, agent: Agent, idempotency: Option<Idempotency>) -> Result<Agent, Error>;

    /// One version of an agent, the newest for `None`.
    async fn agent(&self, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error>;

    /// Newest versions of agents, newest agent first.
    async fn agents(&self, query: CatalogQuery) -> Result<Vec<Agent>, Error>;

    /// All versions of an agent, newest first.
    async fn agent_versions(&self, tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Result<Vec<Agent>, Error>;

    /// Archives an agent: its sessions go on, new ones are refused by the API.
    async fn archive_agent(&self, tenant: &TenantId, id: AgentId) -> Result<Agent, Error>;

    /// Adds an environment, or replaces one with the same id. A repeated key gives the first one.
    async fn put_environment(
        &self,
        environment: Environment,
        idempotency: Option<Idempotency>,
    ) -> Result<Environment, Error>;

    /// An environment.
    async fn environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error>;

    /// Environments, newest first.
    async fn environments(&self, query: CatalogQuery) -> Result<Vec<Environment>, Error>;

    /// Removes an environment that no live session uses.
    async fn delete_environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error>;

    /// The store's clock: never goes back, also over restarts (hazard Z-24).
    async fn now(&self) -> Result<Timestamp, Error>;

    /// Hints that something changed. Hints may be lost or be too many; whoever uses them polls too.
    fn hints(&self) -> broadcast::Receiver<Hint>;

    /// Ends background work after everything that was accepted is durable.
    async fn close(&self);
}

/// Something may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// This session's log, head or inbox.
    Session(SessionId),
    /// This session's inbox holds something urgent.
    Control(SessionId),
    /// A session became runnable.
    Runnable,
    /// Anything: another process wrote.
    Anything,
}

/// Makes a request safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Route and principal; a key means nothing outside of it (hazard Z-18).
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// Digest of the request's body.
    pub body_digest: [u8; 32],
}

/// What a request with an idempotency key got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// It added this session.
    Session(SessionId),
    /// It delivered; delivering again gives the receipts.
    Inputs,
    /// It added this version of an agent.
    Agent(AgentId, u32),
    /// It added or replaced this environment.
    Environment(EnvironmentId),
}

/// A session to add.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Its head: position idle; after the events, if there are any.
    pub session: Session,
    /// The first rows of its own, after those that a fork shares; only a fork begins with any.
    pub events: Vec<Event>,
    /// Notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// First inputs, delivered in the same transaction.
    pub inputs: Vec<(EventId, InputBody)>,
    /// Makes it safe to repeat.
    pub idempotency: Option<Idempotency>,
}

impl NewSession {
    /// Refuses one that breaks a rule of the port; every adapter asks before it encodes anything.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: rows of something that is no fork, a fork on another shard than its parent's, or rows that
    /// do not lead from the shared ones to the head's position.
    pub fn check(&self) -> Result<(), Error> {
        let Self { session, events, .. } = self;
        let shared = session.forked.map_or(0, |forked| forked.seq);
        let is_contiguous = (shared + 1..).zip(events).all(|(seq, event)| event.seq == seq);
        let is_whole = is_contiguous && session.last_seq == shared + events.len() as u64;
        let is_near = session.forked.is_none_or(|forked| forked.session.shard() == session.id.shard());
        let is_own = session.forked.is_some() != events.is_empty();
        if is_whole && is_near && is_own && events.len() <= MAX_COMMIT_EVENTS {
            return Ok(());
        }
        Err(Error::new(Kind::Invalid, format!("session {}: its first rows do not lead to its head", session.id)))
    }
}

/// A session that was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Rows of its log up to this one stay, because forks share them; 0 for none.
    pub kept_up_to: u64,
}

/// A session that was added.
#[derive(Clone, Debug)]
pub struct Created {
    /// As it is now.
    pub view: SessionView,
    /// Whether an earlier request with the same key added it.
    pub is_repeat: bool,
}

/// Inputs for one session.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Who sends; a session of somebody else is not found.
    pub tenant: TenantId,
    /// For whom.
    pub session: SessionId,
    /// In order, each with the id of the event that it will become.
    pub inputs: Vec<(EventId, InputBody)>,
    /// Changes of the client's notes, in the same transaction.
    pub notes: Option<Notes>,
    /// Makes it safe to repeat.
    pub idempotency: Option<Idempotency>,
}

/// Changes of the client's notes of a session: in force at once, and told by an event. The log of a
/// session that has ended is closed: its notes can be changed, and nothing tells of it.
#[derive(Clone, Debug)]
pub struct Notes {
    /// The id of the event that tells of them.
    pub id: EventId,
    /// `None` removes a key.
    pub changes: BTreeMap<String, Option<String>>,
}

impl Notes {
    /// The notes after the change; `None` if it changes nothing.
    pub fn apply(&self, before: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
        let mut after = before.clone();
        for (name, value) in &self.changes {
            match value {
                Some(value) => after.insert(name.clone(), value.clone()),
                None => after.remove(name),
            };
        }
        (after != *before).then_some(after)
    }
}

/// What became of the inputs, one for one.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// In the order of the delivery.
    pub receipts: Vec<Receipt>,
    /// Whether an earlier request with the same key delivered them.
    pub is_repeat: bool,
}

/// What became of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It waits in the inbox under this id; for a repeated answer the id of the first one.
    Queued(Input),
    /// The call was answered earlier by this event, which counts.
    Logged(Event),
    /// Nothing had to be done.
    Nothing,
}

/// Right of one worker to advance one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose.
    pub tenant: TenantId,
    /// Which session.
    pub session: SessionId,
    /// Grows with each lease, and with each loss of one.
    pub epoch: u64,
    /// Random; names the lease in every write (hazard Z-05).
    pub nonce: LeaseId,
    /// The holder.
    pub node: NodeId,
}

/// A request for leases.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who asks; must be registered and alive in the same transaction. [`crate::EXTERNAL`] for an external loop.
    pub node: NodeId,
    /// What it asks for.
    pub lane: Lane,
    /// Made by the asker, so that a lost reply can be asked for again; also the seed of the nonces.
    pub id: LeaseId,
    /// Most leases.
    pub limit: usize,
}

/// A lease that was given, with what its holder needs to start.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The lease.
    pub lease: Lease,
    /// The head.
    pub session: Session,
    /// What waits in the inbox, oldest first, at most [`MAX_PAGE`].
    pub inbox: Vec<(u64, Input)>,
    /// Claims of this session since it last moved, this one included: those that ended in good order
    /// are taken back, and a commit with an event that is progress starts anew with its own lease
    /// (promise P13).
    pub claims: u32,
    /// The claim that gave the lease before this one, as far as the store remembers: the traces of a
    /// session are linked by it. A repeated claim brings none.
    pub previous: Option<LeaseId>,
    /// When it became runnable.
    pub queued_at: Timestamp,
    /// The store's clock.
    pub now: Timestamp,
}

/// One atomic commit.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The fence.
    pub lease: Lease,
    /// Made by the holder; a repeat is recognised by it.
    pub commit_id: LeaseId,
    /// New rows; the first has `seq` = stored head + 1.
    pub events: Vec<Event>,
    /// The head after them.
    pub session: Session,
    /// Position of the last input that the events consumed; 0 for none since the last commit.
    pub consumed: u64,
    /// What becomes of the lease.
    pub then: Then,
}

impl Checkpoint {
    /// Refuses one that breaks a rule of the port; every adapter asks before it encodes anything.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: a foreign head, too many events, or events that do not lead to the head's position.
    pub fn check(&self) -> Result<(), Error> {
        let Self { lease, events, session, .. } = self;
        let invalid = |message: String| Err(Error::new(Kind::Invalid, format!("session {}: {message}", lease.session)));
        if session.id != lease.session || session.tenant != lease.tenant {
            return invalid(format!("the head is that of session {}", session.id));
        }
        if events.len() > MAX_COMMIT_EVENTS {
            return invalid(format!(
                "{} events are more than one commit may append ({MAX_COMMIT_EVENTS})",
                events.len()
            ));
        }
        let Some(first) = events.first() else {
            return Ok(());
        };
        let is_contiguous = (first.seq..).zip(events).all(|(seq, event)| event.seq == seq);
        if first.seq == 0 || !is_contiguous || events.last().is_none_or(|last| last.seq != session.last_seq) {
            return invalid(format!(
                "the events do not lead from seq {} to the head's {}",
                first.seq, session.last_seq
            ));
        }
        Ok(())
    }
}

/// What becomes of a lease after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The holder goes on.
    Keep,
    /// The session parks, if its inbox is empty; else the holder keeps it (promise P6).
    Park,
    /// The session is queued behind the others.
    Yield,
}

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Whether the holder still has the lease.
    pub is_held: bool,
    /// What waits in the inbox after the consumed position, oldest first.
    pub inbox: Vec<(u64, Input)>,
    /// The store's clock.
    pub now: Timestamp,
}

/// A node to add.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// New for each start of a process.
    pub id: NodeId,
    /// Where other nodes reach it.
    pub address: String,
    /// For people: host name, process id, version.
    pub label: String,
}

/// A node as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Where other nodes reach it.
    pub address: String,
    /// For people.
    pub label: String,
    /// Grows with each heartbeat.
    pub beats: u64,
    /// When the newest heartbeat was stored.
    pub beat_at: Timestamp,
    /// Dead is final.
    pub is_dead: bool,
    /// Leases that it owns.
    pub leases: u64,
}

/// A heartbeat.
#[derive(Clone, Debug)]
pub struct Beat {
    /// Who lives.
    pub node: NodeId,
    /// Sessions that it holds in memory, with their epochs.
    pub held: Vec<(SessionId, u64)>,
    /// Claims that are still under way are younger than this and are not reconciled.
    pub claimed_before: Timestamp,
}

/// What a node must know.
#[derive(Clone, Debug, Default)]
pub struct BeatReply {
    /// Held in memory, but owned by others: to be dropped at once.
    pub lost: Vec<SessionId>,
    /// Owned and held, with something urgent in the inbox.
    pub urgent: Vec<SessionId>,
}

/// What [`Store::due`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// How many became runnable.
    pub woken: usize,
    /// When the next one is due, if any is.
    pub next: Option<Timestamp>,
    /// The store's clock.
    pub now: Timestamp,
}

/// State of a session in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waits for a worker.
    Queued,
    /// A worker advances it.
    Leased,
    /// Waits for an input or a time.
    Parked,
    /// Has ended.
    Ended,
}

/// A head with what only the store knows about it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The head.
    pub session: Session,
    /// Notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// State in the queue.
    pub state: State,
    /// Grows with each lease.
    pub epoch: u64,
    /// Who holds it.
    pub node: Option<NodeId>,
    /// When the state last changed.
    pub state_since: Timestamp,
    /// When the head last changed.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
    /// Inputs that wait in its inbox.
    pub inbox_len: u64,
    /// Sessions that are queued before it, if it is queued.
    pub queue_position: Option<u64>,
}

/// How many sessions are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the states")]
pub struct Counts {
    pub queued: u64,
    pub leased: u64,
    pub parked: u64,
    pub ended: u64,
    /// Since when the oldest of the queued ones waits.
    pub queued_since: Option<Timestamp>,
}

/// Order of a list by time of creation or `seq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Order {
    #[default]
    Ascending,
    Descending,
}

/// Which sessions to list.
#[derive(Clone, Debug)]
pub struct SessionQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Only of this agent.
    pub agent: Option<AgentId>,
    /// Only with these phases of the head; empty for all. `Working` is a leased session.
    pub phases: Vec<tenure_core::Phase>,
    /// Whether archived ones are listed.
    pub with_archived: bool,
    /// Created at or after.
    pub created_from: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// Starts after this one, in the order of the list.
    pub after: Option<SessionId>,
    /// By id, which is by creation.
    pub order: Order,
    /// Most rows; at most [`MAX_PAGE`].
    pub limit: usize,
}

/// Which rows of a log to read.
#[derive(Clone, Debug)]
pub struct EventQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Which session.
    pub session: SessionId,
    /// Beyond this `seq`: above it when ascending, below it when descending. `None` from the start
    /// of the order.
    pub after: Option<u64>,
    /// By `seq`.
    pub order: Order,
    /// Most rows; at most [`MAX_PAGE`].
    pub limit: usize,
}

/// Which agents or environments to list.
#[derive(Clone, Debug)]
pub struct CatalogQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Whether archived ones are listed.
    pub with_archived: bool,
    /// Only rows below this one, which was shown last: the bits of its id, or its version. A page
    /// stays where it is when something new is made.
    pub below: Option<u128>,
    /// Most rows; at most [`MAX_PAGE`].
    pub limit: usize,
}
