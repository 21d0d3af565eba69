//! What the cases share: ids, definitions, and a holder of a lease that keeps its head like a worker.

use crate::{
    CatalogQuery, Checkpoint, Claim, Committed, Delivered, Delivery, Error, EventQuery, Idempotency, Lane, Lease,
    Leased, NewNode, NewSession, Order, SessionQuery, SessionView, Store, Then,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure_core::{
    Agent, AgentId, AgentRef, Block, Body, CallKind, Decision, DriverName, Effect, Environment, EnvironmentId, Event,
    EventId, InputBody, Json, LeaseId, Limits, Loop, Network, NodeId, Origin, Permission, Policies, SandboxLimits,
    Session, SessionId, TenantId, Timestamp, Wait, WaitKind, apply,
};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Bits that no other call gives, and that grow.
pub fn bits() -> u128 {
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    // Like a version 7 UUID: time above, and below it digits that differ too.
    (0x0193_7aa1_u128 << 96) | (u128::from(next) << 64) | u128::from(next.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A new session id.
pub fn session_id() -> SessionId {
    SessionId::from_bits(bits())
}

/// A new event id.
pub fn event_id() -> EventId {
    EventId::from_bits(bits())
}

/// A new id of a claim or commit.
pub fn lease_id() -> LeaseId {
    LeaseId::from_bits(bits())
}

/// A tenant.
pub fn tenant() -> TenantId {
    TenantId::default_tenant()
}

/// A message.
pub fn message(text: &str) -> InputBody {
    InputBody::Message { content: vec![Block::Text(text.to_owned())] }
}

/// An idempotency key.
pub fn idempotency(key: &str, body: u8) -> Idempotency {
    Idempotency { scope: "POST /v1/sessions by key-1".to_owned(), key: key.to_owned(), body_digest: [body; 32] }
}

/// A new session of `tenant`, with inputs.
pub fn new_session(tenant: &TenantId, inputs: Vec<InputBody>) -> NewSession {
    let agent = AgentRef { id: AgentId::from_bits(7), version: 1 };
    let session =
        Session::new(session_id(), tenant.clone(), agent, EnvironmentId::from_bits(9), Timestamp(1_700_000_000_000));
    let inputs = inputs.into_iter().map(|body| (event_id(), body)).collect();
    NewSession { session, events: Vec::new(), metadata: BTreeMap::new(), inputs, idempotency: None }
}

/// Adds a session with inputs.
pub async fn create(store: &dyn Store, inputs: Vec<InputBody>) -> SessionId {
    create_for(store, &tenant(), inputs).await
}

/// Adds a session of a tenant.
pub async fn create_for(store: &dyn Store, tenant: &TenantId, inputs: Vec<InputBody>) -> SessionId {
    store.create(new_session(tenant, inputs)).await.expect("a new session is taken").view.session.id
}

/// Inputs for a session, ready to send.
pub fn delivery(session: SessionId, inputs: Vec<InputBody>) -> Delivery {
    let inputs = inputs.into_iter().map(|body| (event_id(), body)).collect();
    Delivery { tenant: tenant(), session, inputs, notes: None, idempotency: None }
}

/// Delivers one input.
pub async fn deliver(store: &dyn Store, session: SessionId, body: InputBody) -> Result<Delivered, Error> {
    store.deliver(delivery(session, vec![body])).await
}

/// Adds a node.
pub async fn node(store: &dyn Store) -> NodeId {
    let id = NodeId::from_bits(bits());
    let node = NewNode { id, address: "127.0.0.1:1".to_owned(), label: "test".to_owned() };
    store.register(node).await.expect("a new node is taken");
    id
}

/// Leases at most `limit` sessions.
pub async fn claim(store: &dyn Store, node: NodeId, limit: usize) -> Vec<Leased> {
    store.claim(Claim { node, lane: Lane::Workers, id: lease_id(), limit }).await.expect("a live node may claim")
}

/// Leases the only runnable session.
pub async fn hold(store: &dyn Store, node: NodeId) -> Holder {
    let mut leased = claim(store, node, 2).await;
    assert_eq!(leased.len(), 1, "one session is runnable");
    Holder::new(leased.remove(0))
}

/// A view that must exist.
pub async fn view(store: &dyn Store, session: SessionId) -> SessionView {
    store.session(&tenant(), session).await.expect("the store can be read").expect("the session exists")
}

/// A whole log.
pub async fn log(store: &dyn Store, session: SessionId) -> Vec<Event> {
    let query = EventQuery { tenant: tenant(), session, after: None, order: Order::Ascending, limit: 1_000 };
    store.events(query).await.expect("the store can be read")
}

/// All sessions of a tenant.
pub fn all_sessions() -> SessionQuery {
    SessionQuery {
        tenant: tenant(),
        agent: None,
        phases: Vec::new(),
        with_archived: true,
        created_from: None,
        created_before: None,
        after: None,
        order: Order::Ascending,
        limit: 1_000,
    }
}

/// The first page of a catalog.
pub fn catalog() -> CatalogQuery {
    CatalogQuery { tenant: tenant(), with_archived: false, below: None, limit: 100 }
}

/// An agent.
pub fn agent(tenant: &TenantId, id: AgentId, version: u32) -> Agent {
    Agent {
        id,
        version,
        tenant: tenant.clone(),
        name: format!("agent at {version}"),
        description: None,
        model: "script/demo".to_owned(),
        fallback_models: Vec::new(),
        system: Some("Be brief.".to_owned()),
        tools: Vec::new(),
        limits: Limits::default(),
        policies: Policies::default(),
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(1),
        updated_at: Timestamp(i64::from(version)),
        archived_at: None,
    }
}

/// An environment.
pub fn environment(tenant: &TenantId, name: &str) -> Environment {
    Environment {
        id: EnvironmentId::from_bits(bits()),
        tenant: tenant.clone(),
        name: name.to_owned(),
        description: None,
        driver: DriverName::Namespace,
        network: Network::Off,
        limits: SandboxLimits::default(),
        metadata: BTreeMap::new(),
        created_at: Timestamp(1),
        updated_at: Timestamp(1),
        archived_at: None,
    }
}

/// The holder of a lease.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The lease.
    pub lease: Lease,
    /// The head, with everything that was pushed.
    pub session: Session,
    /// What the next commit says was consumed.
    pub consumed: u64,
    /// What the newest reply said is waiting.
    pub waiting: Vec<(u64, tenure_core::Input)>,
    pending: Vec<Event>,
}

impl Holder {
    /// Takes a lease up.
    pub fn new(leased: Leased) -> Self {
        let Leased { lease, session, inbox, .. } = leased;
        Self { lease, session, consumed: 0, waiting: inbox, pending: Vec::new() }
    }

    /// Adds an event to the next commit.
    pub fn push(&mut self, body: Body) -> EventId {
        let id = event_id();
        self.push_as(id, body);
        id
    }

    /// Adds an event with a known id.
    pub fn push_as(&mut self, id: EventId, body: Body) {
        let event = Event { id, seq: self.session.last_seq + 1, at: Timestamp(1_700_000_000_001), step: 3, body };
        apply(&mut self.session, &event).expect("the event can follow");
        self.pending.push(event);
    }

    /// Adds something the model said.
    pub fn say(&mut self, text: &str) -> EventId {
        self.push(Body::AgentMessage { text: text.to_owned(), origin: Origin::default() })
    }

    /// Adds a wait until `until`.
    pub fn wait(&mut self, kind: WaitKind, until: Option<Timestamp>) {
        self.push(Body::WaitStarted { wait: Wait { kind, since: Timestamp(0), until, calls: Vec::new() } });
    }

    /// Adds a call that asks a person.
    pub fn ask(&mut self) -> EventId {
        self.push(Body::AgentToolUse {
            name: "bash".to_owned(),
            input: Json::object(),
            kind: CallKind::Sandbox,
            effect: Effect::Once,
            permission: Permission::Ask,
            malformed: None,
            origin: Origin::default(),
        })
    }

    /// Adds a call that the client answers.
    pub fn ask_client(&mut self) -> EventId {
        let (name, input, origin) = ("deploy".to_owned(), Json::object(), Origin::default());
        self.push(Body::AgentCustomToolUse { name, input, kind: CallKind::Custom, origin })
    }

    /// Takes everything that waits; the next commit says so.
    pub fn take_all(&mut self) -> Vec<tenure_core::Input> {
        if let Some((position, _)) = self.waiting.last() {
            self.consumed = *position;
        }
        self.waiting.drain(..).map(|(_, input)| input).collect()
    }

    /// The next commit, without sending it.
    pub fn checkpoint(&mut self, then: Then) -> Checkpoint {
        Checkpoint {
            lease: self.lease.clone(),
            commit_id: lease_id(),
            events: std::mem::take(&mut self.pending),
            session: self.session.clone(),
            consumed: self.consumed,
            then,
        }
    }

    /// Commits.
    pub async fn commit(&mut self, store: &dyn Store, then: Then) -> Result<Committed, Error> {
        let checkpoint = self.checkpoint(then);
        let committed = store.commit(checkpoint).await?;
        self.waiting.clone_from(&committed.inbox);
        Ok(committed)
    }

    /// Commits, takes what waits, and parks.
    pub async fn park(&mut self, store: &dyn Store) {
        self.take_all();
        let committed = self.commit(store, Then::Park).await.expect("the lease is held");
        assert!(!committed.is_held, "nothing waits, so that it parks");
    }
}

/// A yes to a call.
pub fn allow(call: EventId) -> InputBody {
    InputBody::Confirmation { tool_use_id: call, decision: Decision::Allow }
}

/// A no to a call.
pub fn deny(call: EventId) -> InputBody {
    InputBody::Confirmation { tool_use_id: call, decision: Decision::Deny { message: None } }
}
