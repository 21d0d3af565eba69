//! Where the database is, and how it is used.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tenure_store::{Error, Kind};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

/// Most connections of one process, beside the one for notifications.
pub const POOL_SIZE: usize = 16;

/// How long a connection may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How often a silent connection is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Options of the store.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) config: Config,
    /// Most connections.
    pub pool: usize,
    /// Whether rows that others hold are passed over instead of waited for.
    pub skips_locked: bool,
    /// Whether it listens for notifications of other processes, and sends them.
    pub notifies: bool,
    /// Moves the clock, for tests.
    pub shift_millis: Arc<AtomicI64>,
}

impl Options {
    /// The password of the address, which must be masked wherever it could be shown.
    pub fn password(&self) -> Option<String> {
        self.config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
    }

    /// Reads a `postgres://` address.
    ///
    /// # Errors
    /// What is wrong with it; never shows a password.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::new(Kind::Broken, what);
        let mut config: Config = url.parse().map_err(|_| {
            wrong(
                "the address of the database cannot be read; write postgres://USER:PASSWORD@HOST:PORT/NAME".to_owned(),
            )
        })?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(wrong(
                "sslmode=require: this version speaks to the database without TLS; use a socket, a private network or a \
                 TLS proxy on this machine, and leave sslmode out"
                    .to_owned(),
            ));
        }
        config.ssl_mode(SslMode::Disable);
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        config.connect_timeout(CONNECT_WITHIN).keepalives_idle(KEEPALIVE);
        Ok(Self { config, pool: POOL_SIZE, skips_locked: true, notifies: true, shift_millis: Arc::default() })
    }
}
