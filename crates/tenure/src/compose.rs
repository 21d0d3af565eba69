//! The one place that names adapters: puts store, models, sandboxes, worker and server together.

use crate::config::{Config, StorePlace};
use crate::failure::Failure;
use crate::observed_store::ObservedStore;
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::scope::Scope;
use tenure_core::redact::Masker;
use tenure_core::{Agent, Event, Session, TenantId};
use tenure_engine::{Ended, EventMasker, Folders, Rebuilt, Requests, Sandboxes, Worker};
use tenure_model::{Models, Providers};
use tenure_sandbox::{Driver, Landlock, Launcher, Namespace, ProcessDriver};
use tenure_server::{Caller, Keys, KnownModel, ModelCheck, SeenRequest, SeenRequests, ServerState, TimeIds};
use tenure_store::Store;
use tenure_store_postgres::Postgres;
use tenure_store_sqlite::Sqlite;
use tenure_telemetry::{Exporter, Telemetry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Waits up to this long stay in the lease.
const SHORT_WAIT: Duration = Duration::from_secs(5);

/// Sandboxes that are idle for so long are ended.
const SANDBOX_IDLE: Duration = Duration::from_secs(5 * 60);

/// Key of the installation, for callback tokens.
const INSTALLATION_KEY: &str = "installation.key";

/// Key that the nodes of the installation share.
const NODE_KEY: &str = "node.key";

/// Serves the API until `stop` is cancelled; calls `ready` once, when the server has answered, with a
/// link that opens the workbench.
///
/// # Errors
/// When the store cannot be opened, or a key file cannot be read.
pub(crate) async fn run_server(
    config: &Config,
    listener: TcpListener,
    stop: CancellationToken,
    ready: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<()> {
    let (telemetry, exporter) = telemetry(config)?;
    let store = ObservedStore::over(open_store(config).await?, &telemetry.registry);
    let address = listener.local_addr()?;
    let public_url = config.public_url.clone().unwrap_or_else(|| config.local_url(address));
    fs::write(config.server_file(), config.local_url(address))
        .context("say the address of the server in the data folder")?;
    let models = Arc::new(providers(config)?);
    let masker = Masker::new(secrets(config)?.iter().map(String::as_str));
    let (workspaces, outputs) = (folders(config), folders(config));
    let link_url = public_url.trim().trim_end_matches('/').to_owned();
    let state = ServerState::new(tenure_server::Config {
        store: store.clone(),
        keys: keys(config)?,
        public_url: public_url.trim_end_matches('/').to_owned(),
        allowed_hosts: vec![address.to_string()],
        is_behind_proxy: false,
        installation_key: installation_key(config)?,
        node_key: secret_file(&config.data.join(NODE_KEY), "node")?,
        callback_secret: None,
        workspace: Box::new(move |session| workspaces.workspace(session)),
        outputs: Box::new(move |session| outputs.state(session)),
        requests: Arc::new(SeenByModels(Requests::new(models.clone(), link_url, installation_key(config)?))),
        models: Arc::new(KnownModels(models)),
        ids: Arc::new(TimeIds),
        mask: Arc::new(move |text| masker.mask(text).into_owned()),
        telemetry,
        stop: stop.clone(),
    });
    let own_key = secret_file(&config.api_key_file(), "tk")?;
    let link = state.login_link(&own_key).context("the key of this installation is not valid in it")?;
    let mut serving = pin!(tenure_server::serve(listener, state));
    let served = tokio::select! {
        served = &mut serving => served,
        () = answers(config.reached_at(address)) => {
            ready(&link)?;
            serving.await
        }
    };
    store.close().await;
    stop_exporter(exporter).await;
    let _ = fs::remove_file(config.server_file());
    served.context("serve the API")
}

/// Returns when the server at this address has answered. Who reads that it is ready may use it at once.
async fn answers(address: SocketAddr) {
    /// Wait before another try; the listener stands already, so there is hardly ever one.
    const AGAIN: Duration = Duration::from_millis(20);
    let asked = async || {
        let mut connection = TcpStream::connect(address).await?;
        let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        connection.read_u8().await
    };
    while asked().await.is_err() {
        tokio::time::sleep(AGAIN).await;
    }
}

/// Advances sessions until `stop` is cancelled.
///
/// # Errors
/// When the store or a provider cannot be used, or when the node lost its leases and must be started
/// anew.
pub(crate) async fn run_worker(config: &Config, stop: CancellationToken) -> Result<()> {
    let (telemetry, exporter) = telemetry(config)?;
    let store = ObservedStore::over(open_store(config).await?, &telemetry.registry);
    let models: Arc<dyn Models> = Arc::new(providers(config)?);
    let sandboxes = Arc::new(Sandboxes::new(drivers(), folders(config), hidden(config)));
    let public_url = match &config.public_url {
        Some(url) => url.clone(),
        None => fs::read_to_string(config.server_file()).unwrap_or_else(|_| config.local_url(config.listen)),
    };
    let options = tenure_engine::Options {
        slots: config.worker.slots,
        quantum: config.worker.lease,
        short_wait: SHORT_WAIT,
        grace: config.worker.grace,
        heartbeat: config.node.heartbeat,
        dead_after: config.node.dead_after,
        sandbox_idle: SANDBOX_IDLE,
        data: config.data.clone(),
        public_url: public_url.trim().trim_end_matches('/').to_owned(),
        installation_key: installation_key(config)?,
        node_key: secret_file(&config.data.join(NODE_KEY), "node")?,
        internal_listen: ([127, 0, 0, 1], 0).into(),
        telemetry,
    };
    let masker = EventMasker::new(&secrets(config)?);
    let worker = Worker::start(store.clone(), models, sandboxes, masker, options).await.context("start the worker")?;
    tracing::info!(node = %worker.node(), address = %worker.address(), "worker is ready");
    let ended = worker.run(stop).await.context("run the worker")?;
    store.close().await;
    stop_exporter(exporter).await;
    match ended {
        Ended::Stopped => Ok(()),
        Ended::Fenced => bail!("this worker could not reach its store in time and gave up its leases; start it again"),
    }
}

/// Where this process counts and traces.
fn telemetry(config: &Config) -> Result<(Telemetry, Option<Exporter>)> {
    let mut telemetry = Telemetry::default();
    let masker = Masker::new(secrets(config)?.iter().map(String::as_str));
    let mask = Arc::new(move |text: String| masker.mask(&text).into_owned());
    let exporter = Exporter::start(&mut telemetry, &config.telemetry, &|name| std::env::var(name).ok(), mask)?;
    Ok((telemetry, exporter))
}

/// Sends the last spans.
async fn stop_exporter(exporter: Option<Exporter>) {
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
}

/// What no command may see: the data folder, and files of keys wherever they are (hazard Z-06).
fn hidden(config: &Config) -> Vec<PathBuf> {
    let keys = config.auth.keys_file.iter();
    let of_providers = config.providers.values().filter_map(|provider| provider.api_key_file.as_ref());
    // The real place: a link may lead into a tree that is shown.
    let files = keys.chain(of_providers).flat_map(|file| [Some(file.clone()), fs::canonicalize(file).ok()]);
    std::iter::once(config.data.clone()).chain(files.flatten()).collect()
}

/// All drivers; each session's environment names one.
pub(crate) fn drivers() -> Vec<Arc<dyn Driver>> {
    let launcher = Launcher::default();
    vec![
        Arc::new(Namespace::new(launcher.clone())),
        Arc::new(Landlock::new(launcher.clone())),
        Arc::new(ProcessDriver::new(launcher)),
    ]
}

/// Opens the store that the configuration names.
async fn open_store(config: &Config) -> Result<Arc<dyn Store>> {
    Ok(match &config.store.place {
        StorePlace::File(_) => open_file(config)?,
        StorePlace::Database(url) => open_database(url).await?,
    })
}

/// Opens the embedded store.
pub(crate) fn open_file(config: &Config) -> Result<Arc<Sqlite>> {
    Ok(Sqlite::open(tenure_store_sqlite::Options::new(&config.data))?)
}

/// Connects to a database.
pub(crate) async fn open_database(url: &str) -> Result<Arc<Postgres>> {
    Ok(Postgres::open(tenure_store_postgres::Options::parse(url)?).await?)
}

fn folders(config: &Config) -> Folders {
    Folders { data: config.data.clone() }
}

/// The configured models.
///
/// # Errors
/// What is wrong with which provider.
pub(crate) fn providers(config: &Config) -> Result<Providers> {
    Ok(Providers::new(config.providers.clone(), config.models.default.clone())?)
}

struct KnownModels(Arc<Providers>);

impl ModelCheck for KnownModels {
    fn check(&self, model: &str) -> Result<KnownModel, String> {
        let resolved = self.0.resolve(model).map_err(|problem| problem.to_string())?;
        Ok(KnownModel { name: resolved.full_name, has_price: resolved.price.is_some() })
    }
}

struct SeenByModels(Requests);

impl SeenRequests for SeenByModels {
    fn seen(&self, agent: &Agent, session: &Session, rows: &[Event], start: &Event) -> Result<SeenRequest, String> {
        let Rebuilt { written, is_exact } = self.0.rebuild(agent, session, rows, start)?;
        Ok(SeenRequest { dialect: written.dialect, body: written.body, is_exact })
    }
}

/// Who may call: the one key of this installation, and those of the configured file.
fn keys(config: &Config) -> Result<Keys> {
    let mut keys = Keys::new();
    let own = secret_file(&config.api_key_file(), "tk")?;
    let caller = Caller { tenant: TenantId::default_tenant(), key_name: "local".to_owned(), scope: Scope::Person };
    keys.add(&own, caller);
    if let Some(file) = &config.auth.keys_file {
        let text = fs::read_to_string(file).with_context(|| format!("read auth.keys_file {}", file.display()))?;
        keys.add_lines(&text).with_context(|| format!("read auth.keys_file {}", file.display()))?;
    }
    Ok(keys)
}

/// What must never be stored or shown: keys of providers and of this installation.
fn secrets(config: &Config) -> Result<Vec<String>> {
    let mut secrets =
        vec![secret_file(&config.api_key_file(), "tk")?, secret_file(&config.data.join(NODE_KEY), "node")?];
    for provider in config.providers.values() {
        secrets.extend(provider.key_env().and_then(|name| std::env::var(name).ok()));
        let file = provider.api_key_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
        secrets.extend(file.map(|key| key.trim().to_owned()));
        secrets.extend(provider.headers.values().cloned());
    }
    if let StorePlace::Database(url) = &config.store.place {
        secrets.extend(tenure_store_postgres::Options::parse(url)?.password());
    }
    secrets.extend(config.telemetry.secrets(&|name| std::env::var(name).ok()));
    let keys = config.auth.keys_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
    secrets.extend(keys.iter().flat_map(|keys| Keys::listed(keys)).map(str::to_owned));
    Ok(secrets)
}

fn installation_key(config: &Config) -> Result<[u8; 32]> {
    let text = secret_file(&config.data.join(INSTALLATION_KEY), "inst")?;
    let digits = text.trim_start_matches("inst_");
    let mut key = [0; 32];
    for (place, byte) in key.iter_mut().enumerate() {
        let pair = digits
            .get(place * 2..place * 2 + 2)
            .context("the installation key is damaged; restore it from a backup")?;
        *byte = u8::from_str_radix(pair, 16).context("the installation key is damaged; restore it from a backup")?;
    }
    Ok(key)
}

/// A secret in a file of its own, readable by this user only; made at the first look.
///
/// Two processes may look at once: whoever makes the file wins, the other one reads it.
pub(crate) fn secret_file(path: &Path, prefix: &str) -> Result<String> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let bytes: [u8; 32] = rand::random();
    let secret = format!("{prefix}_{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let draft = draft_of(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(secret.as_bytes())?;
    file.sync_all()?;
    // A link is made only if nobody else made it, and never half written.
    let made = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match made {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let known = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            Ok(known.trim().to_owned())
        }
        Err(error) => Err(error).with_context(|| format!("make {}", path.display())),
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", rand::random::<u64>()));
    PathBuf::from(name)
}
