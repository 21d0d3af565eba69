//! Where the database is, and how it is used.

use crate::tls::Tls;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tenure_store::{Error, Kind};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

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
    pub(crate) tls: Tls,
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

    /// Whether what is said to the database goes over a network in the clear.
    pub fn is_exposed(&self) -> bool {
        let is_far = |host: &Host| match host {
            Host::Tcp(name) => {
                name != "localhost" && !name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Host::Unix(_) => false,
        };
        !self.tls.is_on() && self.config.get_hosts().iter().any(is_far)
    }

    /// Reads a `postgres://` address.
    ///
    /// # Errors
    /// What is wrong with it; never shows a password.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::new(Kind::Broken, what);
        let (url, encryption) = Encryption::split(url)?;
        let mut config: Config = url.parse().map_err(|_| {
            wrong(
                "the address of the database cannot be read; write postgres://USER:PASSWORD@HOST:PORT/NAME".to_owned(),
            )
        })?;
        let tls = if encryption.is_on {
            config.ssl_mode(SslMode::Require);
            Tls::trusting(encryption.roots.as_deref())?
        } else {
            config.ssl_mode(SslMode::Disable);
            Tls::off()
        };
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        config.connect_timeout(CONNECT_WITHIN).keepalives_idle(KEEPALIVE);
        Ok(Self { config, tls, pool: POOL_SIZE, skips_locked: true, notifies: true, shift_millis: Arc::default() })
    }
}

/// What an address says of encryption.
struct Encryption {
    is_on: bool,
    /// A file with authorities.
    roots: Option<String>,
}

impl Encryption {
    /// Takes `sslmode` and `sslrootcert` out of an address: the words of other clients, of which only those
    /// that keep their promise are known here.
    fn split(url: &str) -> Result<(String, Self), Error> {
        let wrong = |what: &str| Error::new(Kind::Broken, what);
        let (mut is_on, mut roots, mut rest) = (false, None, Vec::new());
        let Some((address, query)) = url.split_once('?') else {
            return Ok((url.to_owned(), Self { is_on, roots }));
        };
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslmode", "require" | "verify-full")) => is_on = true,
                Some(("sslmode", "disable")) => is_on = false,
                Some(("sslmode", _)) => {
                    return Err(wrong(
                        "sslmode: expected require, which checks the certificate, or disable; a connection that is \
                         encrypted only perhaps, or with anybody, is not offered",
                    ));
                }
                Some(("sslrootcert", file)) => roots = Some(decoded(file)),
                Some(_) | None => rest.push(pair),
            }
        }
        if roots.is_some() && !is_on {
            return Err(wrong("sslrootcert is of no use without sslmode=require"));
        }
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        Ok((format!("{address}{query}"), Self { is_on, roots }))
    }
}

/// A value of a query without its percent signs; bytes that are no text are kept as they are written.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
            }
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}
