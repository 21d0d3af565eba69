//! A store that counts how long each of its operations takes.

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tenure_core::condition::{Admission, Condition, Report, Settlement};
use tenure_core::{
    Agent, AgentId, ConditionId, Environment, EnvironmentId, Event, Input, Millis, NodeId, SessionId, TenantId,
    Timestamp,
};
use tenure_store::{
    Admit, Beat, BeatReply, CatalogQuery, Checkpoint, Claim, Committed, ConditionView, Conditions, Counts, Created,
    Delivered, Delivery, Due, Error, EventQuery, Hint, Idempotency, Kind, Lease, LeaseQuery, Leased, NewNode,
    NewSession, Node, PastLease, QueueDepth, Released, Remembered, Removed, Renewed, SessionQuery, SessionView, Store,
};
use tenure_telemetry::{Histogram, Registry, Spec, buckets};
use tokio::sync::broadcast;

const OPERATION_DURATION: Spec = Spec {
    name: "tenure_store_operation_duration_seconds",
    kind: tenure_telemetry::Kind::Histogram(buckets::SECONDS),
    labels: &["operation", "outcome"],
    help: "How long operations of the store took, by what came of them; commits are operation=\"commit\".",
};

/// The instruments of a store.
#[cfg(test)]
pub(crate) const METERS: &[Spec] = &[OPERATION_DURATION];

/// Passes everything on, and counts it.
pub(crate) struct ObservedStore {
    inner: Arc<dyn Store>,
    duration: Histogram,
}

impl ObservedStore {
    /// Counts into `registry`.
    pub(crate) fn over(inner: Arc<dyn Store>, registry: &Registry) -> Arc<Self> {
        Arc::new(Self { inner, duration: registry.histogram(&OPERATION_DURATION) })
    }

    fn took<T>(&self, operation: &str, started: Instant, result: &Result<T, Error>) {
        let outcome = match result.as_ref().map_err(|error| error.kind) {
            Ok(_) => "done",
            Err(Kind::Retry) => "retry",
            Err(Kind::Fenced) => "fenced",
            Err(Kind::NotFound | Kind::Conflict | Kind::IdempotencyMismatch | Kind::Invalid | Kind::Full) => "refused",
            Err(Kind::NoSpace) => "no_space",
            Err(Kind::Corrupt | Kind::Broken) => "broken",
        };
        self.duration.observe(&[operation, outcome], started.elapsed().as_secs_f64());
    }
}

macro_rules! pass_on {
    ($port:ident { $($name:ident($($arg:ident: $kind:ty),*) -> $ok:ty;)* } $($rest:tt)*) => {
        #[async_trait]
        impl $port for ObservedStore {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$ok, Error> {
                let started = Instant::now();
                let result = self.inner.$name($($arg),*).await;
                self.took(stringify!($name), started, &result);
                result
            })*

            $($rest)*
        }
    };
}

pass_on! {
    Conditions {
        report_condition(report: Report) -> Condition;
        admit(admit: Admit) -> Admission;
        settle_probe(id: ConditionId, number: u64, settlement: Settlement) -> bool;
        release_waiting() -> Released;
        conditions(tenant: Option<TenantId>) -> Vec<ConditionView>;
        clear_condition(id: ConditionId) -> Option<Condition>;
        hasten_condition(id: ConditionId) -> Option<Condition>;
    }
}

pass_on! {
    Store {
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

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.inner.hints()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
