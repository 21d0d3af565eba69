//! What keeps a node's leases honest: heartbeats, the self-fence, and the sweep of dead nodes.
//!
//! The heartbeat runs on a thread of its own, so that a busy worker does not look dead (case O-040).
//! A worker trusts its leases until the newest good heartbeat was *sent*, plus what others wait
//! before they take over, minus a margin; after that it gives them all up and ends (hazard Z-12).

use crate::sandboxes::Closing;
use crate::services::Services;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{NodeId, SessionId};
use tenure_store::{Beat, Hint, Kind, Node};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// How often controls of held leases are looked up, if no hint comes.
const CONTROLS: Duration = Duration::from_millis(500);

/// How often dead nodes are looked for.
const SWEEP: Duration = Duration::from_millis(500);

/// Sends heartbeats until the node ends; gives up all leases when it may be taken for dead.
///
/// Returns when the node can no longer be trusted.
pub(crate) async fn heartbeat(services: Arc<Services>) {
    let options = &services.options;
    loop {
        let sent = Instant::now();
        let beat = beat(&services);
        let held: BTreeMap<SessionId, u64> = beat.held.iter().copied().collect();
        match tokio::time::timeout(services.trust.left(), services.store.heartbeat(beat)).await {
            Ok(Ok(reply)) => {
                services.trust.renew(sent);
                for (session, epoch) in reply.lost.iter().filter_map(|lost| held.get_key_value(lost)) {
                    services.held.lose(*session, *epoch);
                }
                reply.urgent.into_iter().for_each(|session| services.held.urgent(session));
            }
            Ok(Err(error)) if matches!(error.kind, Kind::Fenced | Kind::NotFound) => {
                tracing::error!(node = %services.node, "the store says that this node is dead; giving up its leases");
                break;
            }
            Ok(Err(error)) => tracing::warn!(%error, "send heartbeat"),
            Err(_) => {}
        }
        if !services.trust.holds() {
            tracing::error!(node = %services.node, "no heartbeat was stored in time; giving up all leases");
            break;
        }
        tokio::select! {
            biased;
            () = services.retired.cancelled() => return,
            () = tokio::time::sleep(options.heartbeat.min(services.trust.left())) => {}
        }
    }
    services.fenced.cancel();
    services.held.lose_all();
    services.sandboxes.end_all(Closing::Fenced).await;
}

/// What a heartbeat says. The order matters: a lease that is not among the held ones although its
/// claim counts as settled is given back, so what is settled is asked first.
fn beat(services: &Services) -> Beat {
    let claimed_before = services.claims.settled_before();
    Beat { node: services.node, held: services.held.epochs(), claimed_before }
}

/// Passes hints and urgent inputs on to the holders of leases.
pub(crate) async fn controls(services: Arc<Services>) {
    let mut hints = services.store.hints();
    loop {
        let hint = tokio::select! {
            biased;
            () = services.retired.cancelled() => return,
            hint = tokio::time::timeout(CONTROLS, hints.recv()) => hint,
        };
        match hint {
            Ok(Ok(Hint::Control(session))) => services.held.urgent(session),
            Ok(Ok(Hint::Session(session))) => {
                if let Some(held) = services.held.get(session) {
                    held.input.notify_one();
                }
            }
            Ok(Ok(Hint::Runnable)) => {}
            Ok(Ok(Hint::Anything) | Err(RecvError::Lagged(_))) | Err(_) => look_up(&services).await,
            Ok(Err(RecvError::Closed)) => return,
        }
    }
}

async fn look_up(services: &Services) {
    if services.held.len() == 0 {
        return;
    }
    match services.store.controls(services.node).await {
        Ok(sessions) => sessions.into_iter().for_each(|session| services.held.urgent(session)),
        Err(error) => tracing::warn!(%error, "look up controls"),
    }
}

/// Finds dead nodes and queues their sessions again.
pub(crate) async fn sweep(services: Arc<Services>) {
    let mut seen = Observed::default();
    loop {
        match services.store.nodes().await {
            Ok(nodes) => {
                let dead = seen.dead(&nodes, &services);
                match services.store.sweep(&dead).await {
                    Ok(sessions) => report(&dead, &sessions),
                    Err(error) => tracing::warn!(%error, "sweep dead nodes"),
                }
            }
            Err(error) => tracing::warn!(%error, "list nodes"),
        }
        tokio::select! {
            biased;
            () = services.stopping.cancelled() => return,
            () = tokio::time::sleep(SWEEP) => {}
        }
    }
}

fn report(dead: &[(NodeId, u64)], sessions: &[SessionId]) {
    for (node, _) in dead {
        tracing::warn!(%node, "node is dead");
    }
    if !sessions.is_empty() {
        tracing::warn!(sessions = sessions.len(), "took back leases of dead nodes");
    }
}

/// Heartbeat counters as they were first seen, by the monotonic clock of this process (hazard Z-24).
#[derive(Default)]
struct Observed {
    counters: BTreeMap<NodeId, (u64, Instant)>,
}

impl Observed {
    fn dead(&mut self, nodes: &[Node], services: &Services) -> Vec<(NodeId, u64)> {
        let alive = nodes.iter().filter(|node| !node.is_dead && node.id != services.node);
        let mut dead = Vec::new();
        for node in alive {
            let seen = self.counters.entry(node.id).or_insert((node.beats, Instant::now()));
            if seen.0 != node.beats {
                *seen = (node.beats, Instant::now());
            }
            if seen.1.elapsed() >= services.options.dead_after
                || services.locks.as_ref().is_some_and(|locks| locks.is_abandoned(node.id))
            {
                dead.push((node.id, node.beats));
            }
        }
        self.counters.retain(|id, _| nodes.iter().any(|node| node.id == *id && !node.is_dead));
        dead
    }
}
