//! A worker: claims leases, advances each in a task of its own, and lets go in good order.

use crate::advance::Advance;
use crate::error::Stopped;
use crate::held::HeldLease;
use crate::observe::LeaseSpan;
use crate::sandboxes::Closing;
use crate::services::Services;
use crate::{conditions, node, timers};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::Invalid;
use tenure_core::failure::Class;
use tenure_store::{Claim, Error, Hint, Kind, Lane, Leased};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Most leases that one claim asks for.
const MAX_CLAIM: usize = 32;

/// Longest time between two claims, if no hint comes; drawn between half and all of it, so that
/// workers do not ask together.
const CLAIM_POLL: Duration = Duration::from_millis(1_000);

/// How a worker ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to, and let go of everything.
    Stopped,
    /// It can no longer be sure of its leases and gave them up; start a new one.
    Fenced,
}

/// Works until `stop` is cancelled or the node is fenced.
///
/// # Errors
/// When the node cannot be registered.
pub(crate) async fn run(services: Arc<Services>, stop: CancellationToken) -> Result<Ended, Error> {
    let leases = TaskTracker::new();
    let duties = TaskTracker::new();
    let heart = Heart::start(&services);
    duties.spawn(node::controls(services.clone()));
    duties.spawn(node::sweep(services.clone()));
    duties.spawn(timers::run(services.clone()));
    duties.spawn(conditions::run(services.clone()));
    duties.spawn(crate::sandboxes::reap(services.clone()));
    duties.spawn(crate::sandboxes::collect(services.clone()));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = services.fenced.cancelled() => {}
        () = claims(&services, &leases) => {}
    }
    // Stop claiming, finish or give up at a step boundary, release, exit (promise P13).
    services.stopping.cancel();
    leases.close();
    if tokio::time::timeout(services.options.grace, leases.wait()).await.is_err() {
        tracing::warn!(leases = services.held.len(), "grace time is over; giving up running steps");
        services.grace_over.cancel();
        leases.wait().await;
    }
    services.sandboxes.end_all(Closing::Stopped).await;
    let is_fenced = services.fenced.is_cancelled();
    if !is_fenced && let Err(error) = services.store.retire(services.node).await {
        tracing::warn!(%error, "retire node");
    }
    services.retired.cancel();
    duties.close();
    duties.wait().await;
    heart.stopped().await;
    Ok(if is_fenced { Ended::Fenced } else { Ended::Stopped })
}

/// What sends the heartbeats.
enum Heart {
    /// A thread and runtime of its own, so that a busy worker does not look dead (case O-040).
    Thread(std::thread::JoinHandle<()>),
    /// A task like the others: a simulated worker has one thread and one clock.
    Task(tokio::task::JoinHandle<()>),
}

impl Heart {
    fn start(services: &Arc<Services>) -> Self {
        let beats = node::heartbeat(services.clone());
        if services.is_simulated() {
            return Self::Task(tokio::spawn(beats));
        }
        let beat = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a timer and a reactor can be made");
            runtime.block_on(beats);
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
        Self::Thread(thread.expect("a thread can be started"))
    }

    /// Waits until it has stopped.
    async fn stopped(self) {
        match self {
            Self::Thread(thread) => {
                let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            }
            Self::Task(task) => {
                let _ = task.await;
            }
        }
    }
}

async fn claims(services: &Arc<Services>, leases: &TaskTracker) {
    let slots = Arc::new(Semaphore::new(services.options.slots));
    let mut hints = services.store.hints();
    loop {
        // Wait for a free slot first: a batch never pins slots that are busy (case O-049).
        let Ok(first) = slots.clone().acquire_owned().await else { return };
        let mut permits = vec![first];
        while permits.len() < MAX_CLAIM
            && let Ok(permit) = slots.clone().try_acquire_owned()
        {
            permits.push(permit);
        }
        let id = services.chance.lease();
        let claim = Claim { node: services.node, lane: Lane::Workers, id, limit: permits.len() };
        let guard = services.claims.begin(services.clock.seen());
        let leased = claim_again_if_lost(services, claim).await;
        let is_empty = leased.is_empty();
        for (leased, permit) in leased.into_iter().zip(permits) {
            services.clock.observe(leased.now);
            let observed = services.observer.lease(&leased, id);
            let held = services.held.add(leased.lease.clone(), observed.context());
            let (session, epoch) = (leased.session.id, leased.lease.epoch);
            let log = tracing::info_span!("lease", %session, epoch, trace_id = %held.trace.trace);
            leases.spawn(hold(services.clone(), held, leased, observed, permit).instrument(log));
        }
        drop(guard);
        if is_empty {
            idle(services, &mut hints).await;
        }
    }
}

/// Asks again with the same claim id after an ambiguous failure (hazard Z-03).
async fn claim_again_if_lost(services: &Services, claim: Claim) -> Vec<Leased> {
    loop {
        match services.store.claim(claim.clone()).await {
            Ok(leased) => return leased,
            Err(error) if error.kind == Kind::Retry => {
                tracing::warn!(%error, "claim leases; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => {
                tracing::error!(%error, "claim leases");
                tokio::time::sleep(CLAIM_POLL).await;
                return Vec::new();
            }
        }
    }
}

async fn idle(services: &Services, hints: &mut tokio::sync::broadcast::Receiver<Hint>) {
    let pause = services.chance.part_of(CLAIM_POLL, 0.5..=1.0);
    let runnable = async {
        loop {
            match hints.recv().await {
                Ok(Hint::Runnable | Hint::Anything) | Err(_) => return,
                Ok(Hint::Session(_) | Hint::Control(_)) => {}
            }
        }
    };
    let _ = tokio::time::timeout(pause, runnable).await;
}

/// Holds one lease until its work is over, and gives it back if the work stopped early.
async fn hold(
    services: Arc<Services>,
    held: Arc<HeldLease>,
    leased: Leased,
    mut observed: LeaseSpan,
    permit: OwnedSemaphorePermit,
) {
    let session = leased.session.id;
    let result = advance(services.clone(), held.clone(), leased, &mut observed).await;
    services.previews.let_go(session, held.lease.epoch);
    let result = match result {
        Err(Stopped::Invalid(invalid)) => set_aside(&services, &held, &invalid).await,
        result => result,
    };
    observed.ends(match &result {
        Ok(()) => "let_go",
        Err(Stopped::Lost) => "lost",
        Err(Stopped::Draining) => "released",
        Err(Stopped::Store(_) | Stopped::Invalid(_)) => "failed",
    });
    match result {
        Ok(()) => {}
        Err(Stopped::Lost) => {
            tracing::warn!(%session, "lease lost; its sandbox is ended");
            services.sandboxes.end(session, held.lease.epoch).await;
        }
        Err(stopped) => {
            if !matches!(stopped, Stopped::Draining) {
                tracing::error!(%session, error = %stopped, "session cannot be advanced");
                // Not at once again: whatever failed needs a moment, and others want their turn.
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            if let Err(error) = services.store.release(&held.lease).await {
                tracing::warn!(%session, %error, "release lease; the heartbeat will");
            }
        }
    }
    services.held.remove(&held);
    drop(permit);
}

/// Parks a session whose next event breaks a rule of its log: it would break it for ever.
async fn set_aside(services: &Arc<Services>, held: &Arc<HeldLease>, invalid: &Invalid) -> Result<(), Stopped> {
    let lease = held.lease.clone();
    tracing::error!(session = %lease.session, %invalid, "an event cannot follow the log; the session is set aside");
    // As the store has it: what was pending is what broke the rule.
    let Some(view) = services.store.session(&lease.tenant, lease.session).await? else { return Err(Stopped::Lost) };
    let inbox = services.store.inbox(lease.session).await?;
    let agent = Arc::new(crate::services::no_agent(&view.session));
    let now = services.clock.now();
    let (session, queued_at) = (view.session, view.state_since);
    let leased = Leased { lease, session, inbox, claims: 1, previous: None, queued_at, now };
    let reason = format!("{invalid}, which is a fault of this program; please report it");
    Box::pin(Advance::new(services.clone(), held.clone(), agent, leased).set_aside(&reason)).await
}

async fn advance(
    services: Arc<Services>,
    held: Arc<HeldLease>,
    leased: Leased,
    observed: &mut LeaseSpan,
) -> Result<(), Stopped> {
    let session = &leased.session;
    let agent = services.store.agent(&session.tenant, session.agent.id, Some(session.agent.version)).await?;
    match agent {
        Some(agent) => {
            observed.agent(&agent);
            Box::pin(Advance::new(services, held, Arc::new(agent), leased).run()).await
        }
        None => {
            let message =
                format!("agent {} version {} does not exist any more", session.agent.id, session.agent.version);
            let placeholder = Arc::new(crate::services::no_agent(session));
            Advance::new(services, held, placeholder, leased).give_up(Class::Config, message).await
        }
    }
}
