//! The configuration: what is in force, and which layer said so.
//!
//! Layers, the strongest first: flags, `TENURE_*`, `./tenure.toml`, the user's file,
//! `/etc/tenure/config.toml`, defaults. `--config FILE` stands for the three files.

mod file;
mod layers;
mod places;

pub(crate) use layers::{Flags, Setting, load};
pub(crate) use places::{API_KEY_FILE, SERVER_FILE, shown};

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tenure_model::ProviderConfig;

/// Where the server listens unless told otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7373";

/// The configuration in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Where the server listens.
    pub(crate) listen: SocketAddr,
    /// Base of links for outside jobs; the listen address if left out.
    pub(crate) public_url: Option<String>,
    /// Data folder: store file, blobs, workspaces, key.
    pub(crate) data: PathBuf,
    /// `[store]`.
    pub(crate) store: StoreConfig,
    /// `[blobs]`.
    pub(crate) blobs: BlobsConfig,
    /// `[auth]`.
    pub(crate) auth: AuthConfig,
    /// `[worker]`.
    pub(crate) worker: WorkerConfig,
    /// `[node]`.
    pub(crate) node: NodeConfig,
    /// `[providers.NAME]`.
    pub(crate) providers: BTreeMap<String, ProviderConfig>,
    /// `[models]`.
    pub(crate) models: ModelsConfig,
    /// `[telemetry]`.
    pub(crate) telemetry: tenure_telemetry::Settings,
    /// Each setting with its origin, for `config show`.
    pub(crate) settings: Vec<Setting>,
    /// The files that were read, the strongest first.
    pub(crate) files: Vec<PathBuf>,
    /// `TENURE_*` variables that mean nothing here.
    pub(crate) unknown_variables: Vec<String>,
}

/// Where the store is.
#[derive(Clone, Debug)]
pub(crate) struct StoreConfig {
    /// The place.
    pub(crate) place: StorePlace,
}

/// A file of this machine, or a database for several nodes.
#[derive(Clone)]
pub(crate) enum StorePlace {
    /// The SQLite file.
    File(PathBuf),
    /// The address of a PostgreSQL database; may hold a password.
    Database(String),
}

impl std::fmt::Debug for StorePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl StorePlace {
    /// For people: without user, password and parameters.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::File(file) => format!("sqlite:{}", file.display()),
            Self::Database(url) => {
                let place = url.split_once("://").map_or(url.as_str(), |(_, place)| place);
                let place = place.split('?').next().unwrap_or_default();
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                format!("postgres://{place}")
            }
        }
    }
}

/// Where blobs are.
#[derive(Clone, Debug)]
pub(crate) struct BlobsConfig {
    /// The folder.
    pub(crate) folder: PathBuf,
}

/// Who may call.
#[derive(Clone, Debug)]
pub(crate) struct AuthConfig {
    /// File with the keys; without it there is one key, in `api.key` of the data folder.
    pub(crate) keys_file: Option<PathBuf>,
}

/// How a worker behaves.
#[derive(Clone, Debug)]
pub(crate) struct WorkerConfig {
    /// Sessions advanced at the same time.
    pub(crate) slots: usize,
    /// After this long a lease yields if others wait.
    pub(crate) lease: Duration,
    /// How long a step may go on after a request to stop.
    pub(crate) grace: Duration,
}

/// How nodes notice each other.
#[derive(Clone, Debug)]
pub(crate) struct NodeConfig {
    /// How often a node says that it lives.
    pub(crate) heartbeat: Duration,
    /// A node that was silent for so long is dead.
    pub(crate) dead_after: Duration,
}

/// Models by default.
#[derive(Clone, Debug)]
pub(crate) struct ModelsConfig {
    /// Used by agents that name none: `PROVIDER/MODEL`.
    pub(crate) default: Option<String>,
}

impl Config {
    /// The file with the key of this installation.
    pub(crate) fn api_key_file(&self) -> PathBuf {
        self.data.join(API_KEY_FILE)
    }

    /// Where a server of this data folder says its address.
    pub(crate) fn server_file(&self) -> PathBuf {
        self.data.join(SERVER_FILE)
    }

    /// The address of a server with this configuration, seen from this machine.
    pub(crate) fn local_url(&self, address: SocketAddr) -> String {
        format!("http://{}", self.reached_at(address))
    }

    /// Where this machine reaches a server that listens there.
    pub(crate) fn reached_at(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], v6.port())),
            other => other,
        }
    }
}
