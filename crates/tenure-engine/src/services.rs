//! What the parts of a worker share.

use crate::chance::Chance;
use crate::claims::Claims;
use crate::clock::StoreClock;
use crate::context::Contexts;
use crate::error::Stopped;
use crate::held::{Held, HeldLease};
use crate::links::CallbackLinks;
use crate::locks::Locks;
use crate::masker::EventMasker;
use crate::observe::Observer;
use crate::options::Options;
use crate::previews::Previews;
use crate::sandboxes::Sandboxes;
use crate::timers::Timers;
use crate::tool_run::Runner;
use crate::tools::Tools;
use crate::trust::Trust;
use crate::upstreams::Upstreams;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Agent, Limits, Loop, NodeId, Policies, Session, SessionId, Timestamp};
use tenure_model::Models;
use tenure_store::{Lease, Store};
use tokio_util::sync::CancellationToken;

/// What the parts of a worker share; one per start.
pub(crate) struct Services {
    pub(crate) node: NodeId,
    pub(crate) chance: Chance,
    pub(crate) options: Options,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) tools: Tools,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) masker: EventMasker,
    pub(crate) clock: StoreClock,
    pub(crate) previews: Arc<Previews>,
    pub(crate) observer: Observer,
    pub(crate) held: Held,
    pub(crate) claims: Claims,
    pub(crate) contexts: Contexts,
    pub(crate) timers: Timers,
    /// None in a simulated worker, which has no process that could be gone.
    pub(crate) locks: Option<Locks>,
    pub(crate) trust: Trust,
    pub(crate) upstreams: Upstreams,
    /// No new claims; leases are given back at step boundaries.
    pub(crate) stopping: CancellationToken,
    /// Running steps are given up.
    pub(crate) grace_over: CancellationToken,
    /// The leases of this node are not to be trusted any more.
    pub(crate) fenced: CancellationToken,
    /// The node has ended; its duties end too.
    pub(crate) retired: CancellationToken,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Services {
    /// Whether this worker is one of a simulated world (see [`crate::Worker::simulated`]).
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.chance, Chance::Seeded(_))
    }

    /// Called right before an effect: stops the work if the lease may belong to somebody else.
    pub(crate) fn may_start_effect(&self, held: &HeldLease) -> Result<(), Stopped> {
        if held.lost.is_cancelled() || !self.trust.holds() { Err(Stopped::Lost) } else { Ok(()) }
    }

    /// Waits before a repeat, unless the lease is lost meanwhile.
    pub(crate) async fn pause_unless_lost(&self, lease: &Lease, span: Duration) -> Result<(), Stopped> {
        let held = self.held.get(lease.session);
        let lost = async {
            match &held {
                Some(held) => held.lost.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = lost => Err(Stopped::Lost),
            () = self.grace_over.cancelled() => Err(Stopped::Draining),
            () = tokio::time::sleep(span) => Ok(()),
        }
    }

    pub(crate) fn callback_links(&self, session: SessionId) -> CallbackLinks<'_> {
        CallbackLinks { session, public_url: &self.options.public_url, key: &self.options.installation_key }
    }

    /// Runs tools for one lease.
    pub(crate) fn runner(&self, session: &Session, held: &Arc<HeldLease>) -> Runner {
        let (store, sandboxes) = (self.store.clone(), self.sandboxes.clone());
        Runner::new(store, sandboxes, self.masker.clone(), self.observer.meters.clone(), session, held.clone())
    }
}

/// Stands for an agent that is gone, so that its session can say so.
pub(crate) fn no_agent(session: &Session) -> Agent {
    Agent {
        id: session.agent.id,
        version: session.agent.version,
        tenant: session.tenant.clone(),
        name: String::new(),
        description: None,
        model: String::new(),
        fallback_models: Vec::new(),
        system: None,
        tools: Vec::new(),
        limits: Limits::default(),
        policies: Policies::default(),
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        archived_at: None,
    }
}
