//! A store that fails when a test says so.

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::*;
use tenure_store::*;
use tokio::sync::broadcast;

/// Passes everything on, or fails with a kind.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    fails: Mutex<Option<(Kind, u32)>>,
    hints: broadcast::Sender<Hint>,
}

impl Faulty {
    pub(crate) fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, fails: Mutex::new(None), hints: broadcast::channel(16).0 })
    }

    /// Fails the next operations; readers are told that something changed.
    pub(crate) fn fail(&self, kind: Kind, times: u32) {
        *self.fails.lock().unwrap() = Some((kind, times));
        let _ = self.hints.send(Hint::Anything);
    }

    /// Works again.
    pub(crate) fn mend(&self) {
        *self.fails.lock().unwrap() = None;
        let _ = self.hints.send(Hint::Anything);
    }

    /// Whether all failures that were asked for have happened.
    pub(crate) fn has_failed(&self) -> bool {
        self.fails.lock().unwrap().is_none()
    }

    fn check(&self) -> Result<(), Error> {
        let mut fails = self.fails.lock().unwrap();
        let Some((kind, times)) = *fails else { return Ok(()) };
        *fails = (times > 1).then_some((kind, times - 1));
        Err(Error::new(kind, "disk /dev/secret-path failed"))
    }
}

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $ok:ty;)*) => {
        #[async_trait]
        impl Store for Faulty {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$ok, Error> {
                self.check()?;
                self.inner.$name($($arg),*).await
            })*

            fn hints(&self) -> broadcast::Receiver<Hint> {
                self.hints.subscribe()
            }

            async fn close(&self) {
                self.inner.close().await;
            }
        }
    };
}

pass_on! {
    create(new: NewSession) -> Created;
    deliver(delivery: Delivery) -> Delivered;
    claim(claim: Claim) -> Vec<Leased>;
    commit(checkpoint: Checkpoint) -> Committed;
    renew(lease: &Lease, span: Millis) -> Renewed;
    queue_depth(tenant: &TenantId, queue: &str) -> QueueDepth;
    release(lease: &Lease) -> ();
    register(node: NewNode) -> ();
    heartbeat(beat: Beat) -> BeatReply;
    controls(node: NodeId) -> Vec<SessionId>;
    sweep(seen: &[(NodeId, u64)]) -> Vec<SessionId>;
    retire(node: NodeId) -> ();
    due(limit: usize) -> Due;
    nodes() -> Vec<Node>;
    session(tenant: &TenantId, id: SessionId) -> Option<SessionView>;
    sessions(query: SessionQuery) -> Vec<SessionView>;
    sessions_by_tail(tenant: &TenantId, tail: &str, limit: usize) -> Vec<SessionId>;
    counts() -> Counts;
    phases(tenant: &TenantId) -> BTreeMap<String, u64>;
    events(query: EventQuery) -> Vec<Event>;
    leases(query: LeaseQuery) -> Vec<PastLease>;
    remembered(tenant: &TenantId, key: &Idempotency) -> Option<Remembered>;
    inbox(session: SessionId) -> Vec<(u64, Input)>;
    delete(tenant: &TenantId, id: SessionId) -> Removed;
    put_agent(agent: Agent, idempotency: Option<Idempotency>) -> Agent;
    agent(tenant: &TenantId, id: AgentId, version: Option<u32>) -> Option<Agent>;
    agents(query: CatalogQuery) -> Vec<Agent>;
    agent_versions(tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Vec<Agent>;
    archive_agent(tenant: &TenantId, id: AgentId) -> Agent;
    put_environment(environment: Environment, idempotency: Option<Idempotency>) -> Environment;
    environment(tenant: &TenantId, id: EnvironmentId) -> Option<Environment>;
    environments(query: CatalogQuery) -> Vec<Environment>;
    delete_environment(tenant: &TenantId, id: EnvironmentId) -> ();
    now() -> Timestamp;
}

#[async_trait]
impl Conditions for Faulty {
    async fn report_condition(&self, report: condition::Report) -> Result<condition::Condition, Error> {
        self.check()?;
        self.inner.report_condition(report).await
    }

    async fn admit(&self, admit: Admit) -> Result<condition::Admission, Error> {
        self.check()?;
        self.inner.admit(admit).await
    }

    async fn settle_probe(
        &self,
        id: ConditionId,
        number: u64,
        settlement: condition::Settlement,
    ) -> Result<bool, Error> {
        self.check()?;
        self.inner.settle_probe(id, number, settlement).await
    }

    async fn release_waiting(&self) -> Result<Released, Error> {
        self.check()?;
        self.inner.release_waiting().await
    }

    async fn conditions(&self, tenant: Option<TenantId>) -> Result<Vec<ConditionView>, Error> {
        self.check()?;
        self.inner.conditions(tenant).await
    }

    async fn clear_condition(&self, id: ConditionId) -> Result<Option<condition::Condition>, Error> {
        self.check()?;
        self.inner.clear_condition(id).await
    }

    async fn hasten_condition(&self, id: ConditionId) -> Result<Option<condition::Condition>, Error> {
        self.check()?;
        self.inner.hasten_condition(id).await
    }
}
