//! The store as one process of the world reaches it: over a network that loses, delays and repeats, from a
//! process that may die at any moment.
//!
//! ```text
//! process ─ request ─▶ (held up, cut off, lost) ─▶ store ─ reply ─▶ (lost) ─▶ process, if it lives
//! ```
//! A request that is on its way arrives whatever becomes of its sender.

use crate::bug::Bug;
use crate::plan::{Class, Mishap};
use crate::world::{Process, World};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::condition::{Admission, Condition, Report, Settlement};
use tenure_core::{
    Agent, AgentId, ConditionId, Environment, EnvironmentId, Event, EventId, Input, LeaseId, Millis, NodeId, SessionId,
    TenantId, Timestamp,
};
use tenure_store::memory::Memory;
use tenure_store::{
    Admit, Beat, BeatReply, CatalogQuery, Checkpoint, Claim, Committed, ConditionView, Conditions, Counts, Created,
    Delivered, Delivery, Due, Error, EventQuery, Hint, Idempotency, Kind, Lease, LeaseQuery, Leased, NewNode,
    NewSession, Node, PastLease, QueueDepth, Released, Remembered, Removed, Renewed, SessionQuery, SessionView, Store,
    Then,
};
use tokio::sync::broadcast;

/// Longest ordinary way to the store or back, in milliseconds.
const WAY: u64 = 6;

/// How long a sender waits for a reply that was lost, in milliseconds.
const GIVES_UP: u64 = 400;

/// How long a commit waits for the lock of its head, in milliseconds.
const LOCK: u64 = 4;

/// How late a write is that was acknowledged before it was done (a planted bug), in milliseconds.
const WRITE_BEHIND: u64 = 40;

/// The store, as one process reaches it.
pub(crate) struct Reached {
    world: Arc<World>,
    process: Arc<Process>,
    /// Which worker it is; none for clients.
    node: Option<usize>,
    name: String,
    /// Replaces the hints of the store, for workers that get none.
    deaf: Option<broadcast::Sender<Hint>>,
    /// Claims that were asked for before, for a planted bug.
    asked: Mutex<BTreeMap<LeaseId, u128>>,
    /// Sessions that this process let go of, for a planted bug.
    parked: Arc<Mutex<BTreeSet<SessionId>>>,
}

/// An operation that changes something.
struct Operation {
    class: Class,
    name: &'static str,
}

impl Reached {
    pub(crate) fn new(world: Arc<World>, process: Arc<Process>, node: Option<usize>, name: String) -> Self {
        let deaf = (node.is_some() && !world.plan.has_hints).then(|| broadcast::channel(1).0);
        Self { world, process, node, name, deaf, asked: Mutex::default(), parked: Arc::default() }
    }

    fn note(&self, what: &str) {
        self.world.note(format!("{} {what}", self.name));
    }

    fn away(&self, name: &str, why: &str) -> Error {
        Error::new(Kind::Retry, format!("{name}: {why}"))
    }

    async fn way(&self) {
        takes(self.world.throw(|dice| dice.between(0, WAY))).await;
    }

    /// Brings a request to the store, or does not.
    async fn bring(&self, name: &'static str) -> Result<(), Error> {
        self.process.lives().await;
        self.way().await;
        if self.world.is_cut_off(self.node) {
            return Err(self.away(name, "cut off"));
        }
        if self.world.is_store_away() {
            return Err(self.away(name, "the store is away"));
        }
        takes(self.world.slowness()).await;
        Ok(())
    }

    async fn read<T, F>(&self, name: &'static str, ask: impl FnOnce(Arc<Memory>) -> F + Send) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        self.bring(name).await?;
        if let Some(until) = self.world.held_until(self.node) {
            self.world.until(until).await;
        }
        self.process.lives().await;
        self.world.tick();
        let result = ask(self.world.memory.clone()).await;
        self.way().await;
        self.process.lives().await;
        result
    }

    /// Does an operation, with everything that may happen to it.
    async fn change<T, F>(
        &self,
        operation: Operation,
        apply: impl Fn(Arc<World>) -> F + Clone + Send + Sync + 'static,
    ) -> Result<T, Error>
    where
        T: Debug + Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let name = operation.name;
        self.bring(name).await?;
        // Nobody restarts a client; for it, a death is a request or reply that is lost.
        let mishap = self.world.mishap(operation.class).map(|mishap| match mishap {
            Mishap::CrashBefore if self.node.is_none() => Mishap::LoseRequest,
            Mishap::CrashAfter if self.node.is_none() => Mishap::LoseReply,
            mishap => mishap,
        });
        if let Some(mishap) = mishap {
            self.note(&format!("{name}: {mishap:?}"));
        }
        let late = match mishap {
            Some(Mishap::CrashBefore) => {
                self.process.die();
                0
            }
            Some(Mishap::LoseRequest) => {
                tokio::time::sleep(Duration::from_millis(GIVES_UP)).await;
                return Err(self.away(name, "no reply"));
            }
            Some(Mishap::Delay(late)) => late,
            Some(Mishap::CrashAfter | Mishap::LoseReply | Mishap::Repeat(_)) | None => 0,
        };
        self.process.lives().await;
        let held = self.world.held_until(self.node).map_or(0, |until| until.saturating_sub(self.world.now()));
        let on_the_way = late.max(held);
        let arrive = {
            let (world, apply) = (self.world.clone(), apply.clone());
            async move {
                takes(on_the_way).await;
                world.tick();
                apply(world.clone()).await
            }
        };
        // Whoever sent it may stop waiting; it arrives all the same.
        let result = if on_the_way > 0 {
            tokio::spawn(arrive).await.map_err(|error| Error::new(Kind::Broken, error.to_string()))?
        } else {
            arrive.await
        };
        match mishap {
            Some(Mishap::CrashAfter) => self.process.die(),
            Some(Mishap::LoseReply) => {
                tokio::time::sleep(Duration::from_millis(GIVES_UP)).await;
                self.process.lives().await;
                return Err(self.away(name, "no reply"));
            }
            Some(Mishap::Repeat(later)) => {
                let world = self.world.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(later)).await;
                    world.tick();
                    let again = apply(world.clone()).await;
                    world.note(format!("{name} again: {}", verdict(&again)));
                });
            }
            Some(Mishap::CrashBefore | Mishap::LoseRequest | Mishap::Delay(_)) | None => {}
        }
        self.way().await;
        self.process.lives().await;
        if let Err(error) = &result {
            self.note(&format!("{name}: {:?}: {error}", error.kind));
        }
        result
    }
}

/// Nothing is waited for if it takes no time: most seeds are spent on timers.
async fn takes(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

fn verdict<T>(result: &Result<T, Error>) -> String {
    match result {
        Ok(_) => "taken".to_owned(),
        Err(error) => format!("{:?}: {error}", error.kind),
    }
}

/// One commit, seen by the referee from both sides.
async fn commit(world: Arc<World>, name: String, checkpoint: Checkpoint) -> Result<Committed, Error> {
    let lease = checkpoint.lease.clone();
    world.memory.commit_comes_in(lease.session);
    tokio::time::sleep(Duration::from_millis(LOCK)).await;
    world.tick();
    let Some(before) = world.memory.session(&lease.tenant, lease.session).await? else {
        return Err(Error::new(Kind::NotFound, "no such session"));
    };
    let result = world.memory.commit(checkpoint.clone()).await;
    let Some(after) = world.memory.session(&lease.tenant, lease.session).await? else {
        return Err(Error::new(Kind::NotFound, "no such session"));
    };
    world.judge(|referee| referee.committed(&checkpoint, &before, &after, &result));
    world.note(format!(
        "{name} commit {} e{} seq {} +{} {:?}: {} -> {:?}",
        lease.session,
        lease.epoch,
        checkpoint.session.last_seq,
        checkpoint.events.len(),
        checkpoint.then,
        verdict(&result),
        after.state,
    ));
    result
}

impl Reached {
    /// The planted bug: timers are gone with the process that set them.
    pub(crate) fn forget_timers(&self) {
        let parked = self.parked.lock().expect("nobody panics while holding it");
        parked.iter().for_each(|session| self.world.memory.lose_timer(*session));
    }

    /// The planted bug: acknowledged before it is written.
    async fn commit_behind(&self, checkpoint: Checkpoint) -> Result<Committed, Error> {
        self.process.lives().await;
        self.world.tick();
        let session = checkpoint.lease.session;
        let inbox = self.world.memory.inbox(session).await?;
        let inbox = inbox.into_iter().filter(|(position, _)| *position > checkpoint.consumed).collect();
        let now = self.world.memory.now().await?;
        let (world, process, name) = (self.world.clone(), self.process.clone(), self.name.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(WRITE_BEHIND)).await;
            if !process.is_dead() {
                let _ = commit(world, name, checkpoint).await;
            }
        });
        Ok(Committed { is_held: true, inbox, now })
    }

    /// The planted bug: another id for each try.
    fn asked_anew(&self, claim: Claim) -> Claim {
        let mut asked = self.asked.lock().expect("nobody panics while holding it");
        let tries = asked.entry(claim.id).or_default();
        *tries += 1;
        let id = LeaseId::from_bits(claim.id.bits() ^ (*tries - 1) << 120);
        Claim { id, ..claim }
    }
}

macro_rules! read {
    ($self:ident . $name:ident ( $($argument:expr),* )) => {
        $self.read(stringify!($name), |memory| async move { memory.$name($($argument),*).await }).await
    };
}

macro_rules! change {
    ($self:ident . $name:ident ( $($owned:ident),* )) => {
        $self
            .change(Operation { class: Class::Other, name: stringify!($name) }, move |world| {
                $(let $owned = $owned.clone();)*
                async move { world.memory.$name($($owned),*).await }
            })
            .await
    };
}

#[async_trait]
impl Conditions for Reached {
    async fn report_condition(&self, report: Report) -> Result<Condition, Error> {
        change!(self.report_condition(report))
    }

    async fn admit(&self, admit: Admit) -> Result<Admission, Error> {
        change!(self.admit(admit))
    }

    async fn settle_probe(&self, id: ConditionId, number: u64, settlement: Settlement) -> Result<bool, Error> {
        change!(self.settle_probe(id, number, settlement))
    }

    async fn release_waiting(&self) -> Result<Released, Error> {
        read!(self.release_waiting())
    }

    async fn conditions(&self, tenant: Option<TenantId>) -> Result<Vec<ConditionView>, Error> {
        read!(self.conditions(tenant))
    }

    async fn clear_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        change!(self.clear_condition(id))
    }

    async fn hasten_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        change!(self.hasten_condition(id))
    }
}

#[async_trait]
impl Store for Reached {
    async fn create(&self, new: NewSession) -> Result<Created, Error> {
        change!(self.create(new))
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Error> {
        let name = self.name.clone();
        let operation = Operation { class: Class::Deliver, name: "deliver" };
        self.change(operation, move |world| {
            let (delivery, name) = (delivery.clone(), name.clone());
            async move {
                let (session, bodies) = (delivery.session, format!("{:?}", delivery.inputs));
                let ids: Vec<EventId> = delivery.inputs.iter().map(|(id, _)| *id).collect();
                world.judge(|referee| referee.of(session).sent.extend(ids));
                let result = world.memory.deliver(delivery).await;
                world.note(format!("{name} deliver {session} {bodies}: {}", verdict(&result)));
                result
            }
        })
        .await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Leased>, Error> {
        let claim = if self.world.bug == Some(Bug::LostClaim) { self.asked_anew(claim) } else { claim };
        let name = self.name.clone();
        // Only those that give something count, and most do not.
        let is_idle = self.world.memory.counts().await?.queued == 0;
        if is_idle {
            return read!(self.claim(claim));
        }
        self.change(Operation { class: Class::Claim, name: "claim" }, move |world| {
            let (claim, name) = (claim.clone(), name.clone());
            async move {
                let result = world.memory.claim(claim).await;
                for leased in result.iter().flatten() {
                    world.judge(|referee| referee.leased(leased));
                    world.note(format!("{name} claims {} e{}", leased.lease.session, leased.lease.epoch));
                }
                result
            }
        })
        .await
    }

    async fn commit(&self, checkpoint: Checkpoint) -> Result<Committed, Error> {
        if self.world.bug == Some(Bug::EffectBeforeCommit) && checkpoint.then == Then::Keep {
            return self.commit_behind(checkpoint).await;
        }
        let name = self.name.clone();
        let parked = self.parked.clone();
        self.change(Operation { class: Class::Commit, name: "commit" }, move |world| {
            let (name, checkpoint, parked) = (name.clone(), checkpoint.clone(), parked.clone());
            async move {
                let session = checkpoint.lease.session;
                let result = commit(world, name, checkpoint).await;
                if result.as_ref().is_ok_and(|committed| !committed.is_held) {
                    parked.lock().expect("nobody panics while holding it").insert(session);
                }
                result
            }
        })
        .await
    }

    async fn renew(&self, lease: &Lease, span: Millis) -> Result<Renewed, Error> {
        let lease = lease.clone();
        self.change(Operation { class: Class::Other, name: "renew" }, move |world| {
            let lease = lease.clone();
            async move { world.memory.renew(&lease, span).await }
        })
        .await
    }

    async fn queue_depth(&self, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Error> {
        read!(self.queue_depth(tenant, queue))
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let lease = lease.clone();
        self.change(Operation { class: Class::Other, name: "release" }, move |world| {
            let lease = lease.clone();
            async move {
                world.note(format!("release {} e{}", lease.session, lease.epoch));
                world.memory.release(&lease).await
            }
        })
        .await
    }

    async fn register(&self, node: NewNode) -> Result<(), Error> {
        self.note(&format!("registers {}", node.id));
        change!(self.register(node))
    }

    async fn heartbeat(&self, beat: Beat) -> Result<BeatReply, Error> {
        let beat = match self.world.bug {
            Some(Bug::LostClaim) => Beat { claimed_before: Timestamp(0), ..beat },
            _ => beat,
        };
        self.change(Operation { class: Class::Heartbeat, name: "heartbeat" }, move |world| {
            let beat = beat.clone();
            async move { world.memory.heartbeat(beat).await }
        })
        .await
    }

    async fn controls(&self, node: NodeId) -> Result<Vec<SessionId>, Error> {
        read!(self.controls(node))
    }

    async fn sweep(&self, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error> {
        let seen = seen.to_vec();
        let swept = read!(self.sweep(&seen))?;
        if !swept.is_empty() {
            self.note(&format!("sweeps {swept:?}"));
        }
        Ok(swept)
    }

    async fn retire(&self, node: NodeId) -> Result<(), Error> {
        self.note(&format!("retires {node}"));
        change!(self.retire(node))
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        let due = read!(self.due(limit))?;
        if due.woken > 0 {
            self.note(&format!("wakes {}", due.woken));
        }
        Ok(due)
    }

    async fn nodes(&self) -> Result<Vec<Node>, Error> {
        read!(self.nodes())
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
        read!(self.session(tenant, id))
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionView>, Error> {
        read!(self.sessions(query))
    }

    async fn sessions_by_tail(&self, tenant: &TenantId, tail: &str, limit: usize) -> Result<Vec<SessionId>, Error> {
        read!(self.sessions_by_tail(tenant, tail, limit))
    }

    async fn counts(&self) -> Result<Counts, Error> {
        read!(self.counts())
    }

    async fn phases(&self, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Error> {
        read!(self.phases(tenant))
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<Event>, Error> {
        read!(self.events(query))
    }

    async fn leases(&self, query: LeaseQuery) -> Result<Vec<PastLease>, Error> {
        read!(self.leases(query))
    }

    async fn remembered(&self, tenant: &TenantId, key: &Idempotency) -> Result<Option<Remembered>, Error> {
        read!(self.remembered(tenant, key))
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<(u64, Input)>, Error> {
        read!(self.inbox(session))
    }

    async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<Removed, Error> {
        read!(self.delete(tenant, id))
    }

    async fn put_agent(&self, agent: Agent, idempotency: Option<Idempotency>) -> Result<Agent, Error> {
        read!(self.put_agent(agent, idempotency))
    }

    async fn agent(&self, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error> {
        read!(self.agent(tenant, id, version))
    }

    async fn agents(&self, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        read!(self.agents(query))
    }

    async fn agent_versions(&self, tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        read!(self.agent_versions(tenant, id, query))
    }

    async fn archive_agent(&self, tenant: &TenantId, id: AgentId) -> Result<Agent, Error> {
        read!(self.archive_agent(tenant, id))
    }

    async fn put_environment(
        &self,
        environment: Environment,
        idempotency: Option<Idempotency>,
    ) -> Result<Environment, Error> {
        read!(self.put_environment(environment, idempotency))
    }

    async fn environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error> {
        read!(self.environment(tenant, id))
    }

    async fn environments(&self, query: CatalogQuery) -> Result<Vec<Environment>, Error> {
        read!(self.environments(query))
    }

    async fn delete_environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error> {
        read!(self.delete_environment(tenant, id))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        read!(self.now())
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        match &self.deaf {
            Some(nobody) => nobody.subscribe(),
            None => self.world.memory.hints(),
        }
    }

    async fn close(&self) {}
}
