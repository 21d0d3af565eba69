//! What the routes share.

use crate::keys::Keys;
use crate::live::{LoopPreviews, PreviewHub};
use crate::meters::Meters;
use crate::rate::Rate;
use crate::workbench::Logins;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tenure_api::callback;
use tenure_api::event::WireEvent;
use tenure_core::{Agent, Block, Body, Event, Session, SessionId};
use tenure_store::Store;
use tenure_telemetry::Telemetry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Most reads at a time that fold a log from its beginning (hazard Z-45); others wait for their turn.
const MAX_DEEP_READS: usize = 2;

/// What a model's name means to this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// `provider/name`.
    pub name: String,
    /// Whether its price is known; a limit of money cannot bind otherwise.
    pub has_price: bool,
}

/// Judges names of models; the composition root knows the providers.
pub trait ModelCheck: Send + Sync + 'static {
    /// The model that a text names.
    ///
    /// # Errors
    /// Why there is none, in words for the caller.
    fn check(&self, model: &str) -> Result<KnownModel, String>;
}

/// A request that a model was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// The dialect that it is written in.
    pub dialect: String,
    /// Strict JSON.
    pub body: Vec<u8>,
    /// Whether it is as large as what was recorded before it was sent.
    pub is_exact: bool,
}

/// Builds requests of model calls again; the composition root knows who made them.
pub trait SeenRequests: Send + Sync + 'static {
    /// The request of the call that `start` began. `session` is the head right before it, and `rows`
    /// are those that the model saw.
    ///
    /// # Errors
    /// Why it cannot be built any more, in words for people.
    fn seen(&self, agent: &Agent, session: &Session, rows: &[Event], start: &Event) -> Result<SeenRequest, String>;
}

/// Makes the bits of new ids.
pub trait Ids: Send + Sync + 'static {
    /// 128 bits that nobody can guess and that sort by time.
    fn bits(&self) -> u128;
}

/// Version 7 UUIDs.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeIds;

impl Ids for TimeIds {
    fn bits(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }
}

/// Where the folder of a session is.
pub type FolderOf = Box<dyn Fn(SessionId) -> PathBuf + Send + Sync>;

/// What the composition root gives.
pub struct Config {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who may call.
    pub keys: Keys,
    /// Where clients reach this server, such as `https://agents.example`; for links.
    pub public_url: String,
    /// Further host names, with or without a port, under which it is reached; loopback and the public
    /// one are known.
    pub allowed_hosts: Vec<String>,
    /// Whether it stands behind a proxy that adds forwarded headers; requests with them are refused
    /// otherwise (hazard Z-07).
    pub is_behind_proxy: bool,
    /// Key of the installation, from which callback tokens are made.
    pub installation_key: [u8; 32],
    /// Key that its nodes share.
    pub node_key: String,
    /// Secret with which outside jobs sign their callbacks (Standard Webhooks); none asks for no
    /// signature.
    pub callback_secret: Option<Vec<u8>>,
    /// The files that the agent of a session works on.
    pub workspace: FolderOf,
    /// The full outputs of a session's commands.
    pub outputs: FolderOf,
    /// Judges names of models.
    pub models: Arc<dyn ModelCheck>,
    /// Builds requests of model calls again.
    pub requests: Arc<dyn SeenRequests>,
    /// Makes ids.
    pub ids: Arc<dyn Ids>,
    /// Takes known secrets out of a text before it is stored (promise P18).
    pub mask: Arc<dyn Fn(&str) -> String + Send + Sync>,
    /// Where it counts.
    pub telemetry: Telemetry,
    /// Cancelled when the server is to stop: streams end, and clients come back elsewhere.
    pub stop: CancellationToken,
}

/// What the routes share.
pub struct ServerState {
    pub(crate) config: Config,
    pub(crate) previews: PreviewHub,
    pub(crate) callbacks: Rate,
    pub(crate) loops: LoopPreviews,
    pub(crate) meters: Meters,
    pub(crate) logins: Logins,
    /// Turns for reads that fold a log from its beginning.
    pub(crate) deep_reads: Semaphore,
}

impl ServerState {
    /// State for a new server; call inside a tokio runtime, because it begins to follow the nodes.
    pub fn new(config: Config) -> Arc<Self> {
        let meters = Meters::new(&config.telemetry.registry);
        let hub = PreviewHub::counting(meters.previews_dropped.clone());
        let previews = hub.start(config.store.clone(), config.node_key.clone(), config.stop.clone());
        let deep_reads = Semaphore::new(MAX_DEEP_READS);
        let (callbacks, loops, logins) = (Rate::default(), LoopPreviews::default(), Logins::default());
        Arc::new(Self { config, previews, callbacks, loops, meters, logins, deep_reads })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.config.store
    }

    /// An event as its readers see it: with links of callbacks, which no log holds (design 7.9).
    pub(crate) fn shown(&self, session: SessionId, event: &Event) -> WireEvent {
        let Body::AgentToolResult { tool_use_id, content, outcome } = &event.body else { return WireEvent::of(event) };
        let link = |block: &Block| match block {
            Block::Text(text) => {
                let (url, key) = (&self.config.public_url, &self.config.installation_key);
                Block::Text(callback::render(text, session, url, key).into_owned())
            }
            Block::Media { .. } => block.clone(),
        };
        let content = content.iter().map(link).collect();
        let body = Body::AgentToolResult { tool_use_id: *tool_use_id, content, outcome: *outcome };
        WireEvent::of(&Event { body, ..event.clone() })
    }

    pub(crate) fn new_bits(&self) -> u128 {
        self.config.ids.bits()
    }
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").field("public_url", &self.config.public_url).finish_non_exhaustive()
    }
}
