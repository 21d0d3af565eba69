//! Runs one call in the sandbox of its session.

use crate::held::HeldLease;
use crate::masker::EventMasker;
use crate::meters::Meters;
use crate::sandboxes::{News, Sandboxes, driver_name};
use async_trait::async_trait;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tenure_core::{Block, Body, Call, Done, Draft, EnvironmentId, Json, Outcome, Session, SessionId, TenantId};
use tenure_sandbox::{Error, ErrorKind, Incarnation};
use tenure_store::Store;
use tenure_tools::SandboxProvider;
use tokio_util::sync::CancellationToken;

/// Runs the calls of one lease.
#[derive(Clone)]
pub(crate) struct Runner {
    store: Arc<dyn Store>,
    sandboxes: Arc<Sandboxes>,
    masker: EventMasker,
    meters: Arc<Meters>,
    tenant: TenantId,
    session: SessionId,
    environment: EnvironmentId,
    held: Arc<HeldLease>,
}

/// What a run gave.
pub(crate) struct Ran {
    /// Events that come before the result.
    pub(crate) notes: Vec<Draft>,
    pub(crate) done: Done,
}

impl Runner {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        sandboxes: Arc<Sandboxes>,
        masker: EventMasker,
        meters: Arc<Meters>,
        session: &Session,
        held: Arc<HeldLease>,
    ) -> Self {
        Self {
            store,
            sandboxes,
            masker,
            meters,
            tenant: session.tenant.clone(),
            session: session.id,
            environment: session.environment,
            held,
        }
    }

    /// Runs a call to its end, or until `cancel`.
    pub(crate) async fn run(&self, call: &Call, input: Json, cancel: CancellationToken) -> Ran {
        let lazy = Lazy { runner: self, news: Mutex::default() };
        let _busy = self.sandboxes.busy(self.session, self.held.lease.epoch);
        let wanted =
            tenure_tools::Call { id: call.id.to_string(), name: call.name.clone(), input: input.as_str().to_owned() };
        let result = tenure_tools::Toolset.run(wanted, &lazy, cancel).await;
        let notes = lazy.news.into_inner().expect("nobody panics while holding it").map(notes).unwrap_or_default();
        if let Some(log) = &result.log_path {
            self.sandboxes.keep_output(self.session, call.id, log, &self.masker).await;
        }
        let outcome = if result.is_error { Outcome::Failed } else { Outcome::Done };
        let content = result.content.into_iter().map(Block::Text).collect();
        Ran { notes, done: Done { content, outcome } }
    }

    async fn start(&self) -> Result<crate::sandboxes::Given, Error> {
        let environment = self.store.environment(&self.tenant, self.environment).await;
        let environment = match environment {
            Ok(Some(environment)) => environment,
            Ok(None) => {
                let message = format!("environment {} does not exist any more", self.environment);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            Err(error) => return Err(Error::new(ErrorKind::Unavailable, error)),
        };
        if self.held.lost.is_cancelled() {
            return Err(Error::new(ErrorKind::Fenced, "the lease is gone"));
        }
        let started = Instant::now();
        let given = self.sandboxes.get(self.session, &environment, self.held.lease.epoch).await;
        // One that was there already was not started.
        if given.as_ref().map_or(true, |given| given.news.is_some()) {
            let outcome = if given.is_ok() { Outcome::Done } else { Outcome::Failed };
            self.meters.sandbox_started(driver_name(environment.driver), outcome, started.elapsed());
        }
        given
    }
}

/// What a session is told about a new sandbox.
fn notes(news: News) -> Vec<Draft> {
    let mut notes = Vec::new();
    if let Some(ended) = news.replaces {
        let reason = "The sandbox was started anew. Files in the workspace are as they were; running processes, \
                      files elsewhere (such as /tmp) and the shell's working directory are gone.";
        let reason = if ended.is_empty() { reason.to_owned() } else { format!("{reason} {ended}") };
        notes.push(Draft::new(Body::EnvironmentReset { reason }));
    }
    notes.push(Draft::new(Body::EnvironmentStarted { driver: news.driver, missing: news.missing }));
    notes
}

/// Makes the sandbox when a tool first needs it.
struct Lazy<'a> {
    runner: &'a Runner,
    news: Mutex<Option<News>>,
}

#[async_trait]
impl SandboxProvider for Lazy<'_> {
    async fn sandbox(&self) -> Result<Arc<dyn Incarnation>, Error> {
        let given = self.runner.start().await?;
        if let Some(news) = given.news {
            *self.news.lock().expect("nobody panics while holding it") = Some(news);
        }
        Ok(given.incarnation)
    }
}
