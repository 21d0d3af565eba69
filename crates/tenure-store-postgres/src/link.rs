//! Connections: a bounded pool of them, made when needed, thrown away when anything is doubtful.

use crate::options::Options;
use crate::params::Param;
use crate::trouble::Trouble;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_store::{Error, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// How long a statement may take before its connection counts as dead: a half-open socket never says so.
const REPLY_WITHIN: Duration = Duration::from_secs(20);

/// How long an operation waits for a free connection.
const FREE_WITHIN: Duration = Duration::from_secs(20);

/// Connections that are not in use.
#[derive(Debug)]
pub(crate) struct Pool {
    options: Options,
    idle: Mutex<Vec<Client>>,
    free: Arc<Semaphore>,
}

/// A connection in use; goes back to the pool if it is clean.
#[derive(Debug)]
pub(crate) struct Link {
    client: Option<Client>,
    pool: Arc<Pool>,
    is_clean: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(options.pool));
        Arc::new(Self { options, idle: Mutex::default(), free })
    }

    /// A connection, a new one if none is idle.
    pub(crate) async fn link(self: &Arc<Self>) -> Result<Link, Trouble> {
        let permit = tokio::time::timeout(FREE_WITHIN, self.free.clone().acquire_owned()).await;
        let permit = match permit {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Error::new(Kind::Retry, "the store is closed").into()),
            Err(_) => return Err(Error::new(Kind::Retry, "all connections to the database are busy").into()),
        };
        let idle = loop {
            match self.idle.lock().expect("nobody panics while holding it").pop() {
                Some(client) if client.is_closed() => {}
                other => break other,
            }
        };
        let client = match idle {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Link { client: Some(client), pool: self.clone(), is_clean: AtomicBool::new(true), _permit: permit })
    }

    /// See [`Options::is_exposed`].
    pub(crate) fn is_exposed(&self) -> bool {
        self.options.is_exposed()
    }

    async fn connect(&self) -> Result<Client, Trouble> {
        let (client, connection) = self.options.config.connect(self.options.tls.clone()).await.map_err(unreachable)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        Ok(client)
    }

    /// No operation gets a connection any more.
    pub(crate) fn close(&self) {
        self.free.close();
        self.idle.lock().expect("nobody panics while holding it").clear();
    }
}

/// Whatever kept a connection from being made: nothing was changed.
pub(crate) fn unreachable(error: tokio_postgres::Error) -> Trouble {
    match Trouble::from(error) {
        Trouble::Refused(error) => Trouble::Refused(error),
        Trouble::Again(error) | Trouble::Lost(error) => Trouble::Again(error),
    }
}

impl Link {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is taken out only when the link is dropped")
    }

    /// All rows of a statement.
    pub(crate) async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.seen(within(self.client().query_typed(sql, &pairs(params))).await)
    }

    /// The first row, if there is one.
    pub(crate) async fn first(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, Trouble> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// The only row.
    pub(crate) async fn one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Trouble> {
        self.first(sql, params).await?.ok_or_else(|| Error::new(Kind::Broken, "a statement gave no row").into())
    }

    /// How many rows a statement changed.
    pub(crate) async fn run(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, Trouble> {
        self.seen(within(self.client().execute_typed(sql, &pairs(params))).await)
    }

    /// Has the database check a statement.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<(), Trouble> {
        within(self.client().prepare(sql)).await.map(drop)
    }

    /// Statements without parameters.
    pub(crate) async fn plain(&self, sql: &str) -> Result<(), Trouble> {
        self.seen(within(self.client().batch_execute(sql)).await)
    }

    /// It must not be used by others in the state that it is in.
    pub(crate) fn soil(&self) {
        self.is_clean.store(false, Ordering::Relaxed);
    }

    /// It can be used by others again.
    pub(crate) fn clean(&self) {
        self.is_clean.store(true, Ordering::Relaxed);
    }

    /// A connection that broke is not used again.
    fn seen<T>(&self, result: Result<T, Trouble>) -> Result<T, Trouble> {
        if matches!(result, Err(Trouble::Lost(_))) {
            self.soil();
        }
        result
    }
}

fn pairs<'a>(params: &'a [Param<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().map(Param::pair).collect()
}

async fn within<T>(reply: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Trouble> {
    match tokio::time::timeout(REPLY_WITHIN, reply).await {
        Ok(result) => result.map_err(Trouble::from),
        Err(_) => {
            Err(Trouble::Lost(Error::new(Kind::Retry, format!("the database said nothing for {REPLY_WITHIN:?}"))))
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(client) =
            self.client.take().filter(|client| self.is_clean.load(Ordering::Relaxed) && !client.is_closed())
        {
            let mut idle = self.pool.idle.lock().expect("nobody panics while holding it");
            if !self.pool.free.is_closed() {
                idle.push(client);
            }
        }
    }
}
