//! Brings a worker up: identity, lock, registration, then its duties.

use crate::chance::Chance;
use crate::claims::Claims;
use crate::clock::StoreClock;
use crate::context::Contexts;
use crate::held::Held;
use crate::internal;
use crate::locks::Locks;
use crate::masker::EventMasker;
use crate::meters::Meters;
use crate::observe::Observer;
use crate::options::Options;
use crate::sandboxes::Sandboxes;
use crate::services::Services;
use crate::timers::Timers;
use crate::tools::Tools;
use crate::trust::Trust;
use crate::upstreams::Upstreams;
use crate::worker::{self, Ended};
use std::net::SocketAddr;
use std::sync::Arc;
use tenure_core::NodeId;
use tenure_model::Models;
use tenure_store::{NewNode, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Why a worker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store did not answer or refused the node.
    #[error("register node: {0}")]
    Store(#[from] tenure_store::Error),
    /// The address for other nodes is taken or forbidden.
    #[error("listen on {address} for other nodes: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The data folder cannot be written.
    #[error("take the lock of the node in the data folder: {0}")]
    Lock(std::io::Error),
}

/// A worker that is registered and ready to claim.
#[derive(Debug)]
pub struct Worker {
    services: Arc<Services>,
    /// None in a simulated world, where nobody asks for previews.
    listener: Option<TcpListener>,
    address: SocketAddr,
}

impl Worker {
    /// Registers a new node.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        store: Arc<dyn Store>,
        models: Arc<dyn Models>,
        sandboxes: Arc<Sandboxes>,
        masker: EventMasker,
        options: Options,
    ) -> Result<Self, StartError> {
        let chance = Chance::System;
        let node = chance.node();
        let locks = Locks::hold(&options.data, node).map_err(StartError::Lock)?;
        let address = options.internal_listen;
        let listener = TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let label = format!("pid {} version {}", std::process::id(), env!("CARGO_PKG_VERSION"));
        store.register(NewNode { id: node, address: address.to_string(), label }).await?;
        let services = services(node, chance, Some(locks), store, models, sandboxes, masker, options).await?;
        Ok(Self { services: Arc::new(services), listener: Some(listener), address })
    }

    /// Registers a node of a simulated world: the same worker, with all its decisions, on one thread, on
    /// the clock of its runtime, and with the chance that `seed` gives it. It takes no lock in the data
    /// folder and listens nowhere.
    ///
    /// # Errors
    /// When the store refuses the node.
    pub async fn simulated(
        seed: u64,
        store: Arc<dyn Store>,
        models: Arc<dyn Models>,
        sandboxes: Arc<Sandboxes>,
        options: Options,
    ) -> Result<Self, StartError> {
        let chance = Chance::seeded(seed);
        let node = chance.node();
        let address = options.internal_listen;
        store.register(NewNode { id: node, address: address.to_string(), label: format!("seed {seed}") }).await?;
        let masker = EventMasker::default();
        let services = services(node, chance, None, store, models, sandboxes, masker, options).await?;
        Ok(Self { services: Arc::new(services), listener: None, address })
    }

    /// Where other nodes reach this one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of this node.
    pub fn node(&self) -> NodeId {
        self.services.node
    }

    /// Works until `stop` is cancelled or the node is fenced.
    ///
    /// # Errors
    /// When the store fails for good.
    pub async fn run(self, stop: CancellationToken) -> Result<Ended, tenure_store::Error> {
        let services = self.services;
        let others = self.listener.map(|listener| tokio::spawn(internal::serve(listener, services.clone())));
        let ended = worker::run(services, stop).await;
        if let Some(others) = others {
            let _ = others.await;
        }
        ended
    }
}

#[allow(clippy::too_many_arguments, reason = "each is one part of a worker, named where it is made")]
async fn services(
    node: NodeId,
    chance: Chance,
    locks: Option<Locks>,
    store: Arc<dyn Store>,
    models: Arc<dyn Models>,
    sandboxes: Arc<Sandboxes>,
    masker: EventMasker,
    options: Options,
) -> Result<Services, tenure_store::Error> {
    let clock = StoreClock::new(store.now().await?);
    let trust = Trust::new(options.fence_after());
    let tracer = options.telemetry.tracer.clone();
    let observer = Observer { meters: Arc::new(Meters::new(&options.telemetry.registry)), tracer };
    Ok(Services {
        node,
        chance,
        options,
        store,
        models,
        tools: Tools::default(),
        sandboxes,
        masker,
        clock,
        previews: Arc::default(),
        observer,
        held: Held::default(),
        claims: Claims::default(),
        contexts: Contexts::default(),
        timers: Timers::default(),
        locks,
        trust,
        upstreams: Upstreams::default(),
        stopping: CancellationToken::new(),
        grace_over: CancellationToken::new(),
        fenced: CancellationToken::new(),
        retired: CancellationToken::new(),
    })
}
