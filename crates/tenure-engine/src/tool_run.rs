//! Runs one call in the sandbox of its session.

use crate::held::HeldLease;
use crate::masker::EventMasker;
use crate::meters::Meters;
use crate::sandboxes::{FilesNews, Home, News, NotGiven, Sandboxes, driver_name};
use async_trait::async_trait;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tenure_core::{
    Block, Body, Call, Done, Draft, EnvironmentId, Json, Outcome, Session, SessionId, SnapshotId, TenantId, undone,
};
use tenure_sandbox::{Error, ErrorKind, Incarnation};
use tenure_store::{EventQuery, Order, Store};
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
    home: Home,
    held: Arc<HeldLease>,
}

/// What a run gave.
pub(crate) struct Ran {
    /// Events that come before the result.
    pub(crate) notes: Vec<Draft>,
    pub(crate) done: Done,
    /// Why nothing of this session may run: its files are not here.
    pub(crate) blocked: Option<String>,
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
            home: Home { tenant: session.tenant.clone(), files: session.files },
            held,
        }
    }

    /// Runs a call to its end, or until `cancel`.
    pub(crate) async fn run(&self, call: &Call, input: Json, cancel: CancellationToken) -> Ran {
        if let Some(hands) = self.sandboxes.hands() {
            let done = hands.run(self.session, call, &input).await;
            return Ran { notes: Vec::new(), done, blocked: None };
        }
        let lazy = Lazy { runner: self, news: Mutex::default(), blocked: Mutex::default() };
        let _busy = self.sandboxes.busy(self.session, self.held.lease.epoch);
        let wanted =
            tenure_tools::Call { id: call.id.to_string(), name: call.name.clone(), input: input.as_str().to_owned() };
        let result = tenure_tools::Toolset.run(wanted, &lazy, cancel).await;
        let notes = match lazy.news.into_inner().expect("nobody panics while holding it") {
            Some(news) => self.notes(news).await,
            None => Vec::new(),
        };
        let blocked = lazy.blocked.into_inner().expect("nobody panics while holding it");
        if let Some(log) = &result.log_path {
            self.sandboxes.keep_output(self.session, call.id, log, &self.masker).await;
        }
        let outcome = if result.is_error { Outcome::Failed } else { Outcome::Done };
        let content = result.content.into_iter().map(Block::Text).collect();
        Ran { notes, done: Done { content, outcome }, blocked }
    }

    async fn start(&self) -> Result<crate::sandboxes::Given, NotGiven> {
        let environment = self.store.environment(&self.tenant, self.environment).await;
        let environment = match environment {
            Ok(Some(environment)) => environment,
            Ok(None) => {
                let message = format!("environment {} does not exist any more", self.environment);
                return Err(Error::new(ErrorKind::Unavailable, message).into());
            }
            Err(error) => return Err(Error::new(ErrorKind::Unavailable, error).into()),
        };
        if self.held.lost.is_cancelled() {
            return Err(Error::new(ErrorKind::Fenced, "the lease is gone").into());
        }
        let started = Instant::now();
        let given = self.sandboxes.get(self.session, &self.home, &environment, self.held.lease.epoch).await;
        // One that was there already was not started.
        if given.as_ref().map_or(true, |given| given.news.is_some()) {
            let outcome = if given.is_ok() { Outcome::Done } else { Outcome::Failed };
            self.meters.sandbox_started(driver_name(environment.driver), outcome, started.elapsed());
        }
        given
    }
}

/// Rows that are looked through for commands whose changes are gone.
const ROWS: usize = 1_000;

impl Runner {
    /// What a session is told about a new sandbox.
    async fn notes(&self, news: News) -> Vec<Draft> {
        let mut notes = Vec::new();
        let (snapshot, files) = match news.files {
            FilesNews::Kept => (None, "Files in the workspace are as they were".to_owned()),
            FilesNews::Back(id) => (Some(SnapshotId::from_bits(id.0)), self.went_back().await),
            FilesNews::Lost => (
                None,
                "The files of the workspace are gone: they are not on this machine, and there is no snapshot of them. \
                 It is empty unless somebody put files there since"
                    .to_owned(),
            ),
        };
        // A session that never had a sandbox begins with these files: nothing of it went back.
        let is_first = self.home.files.epoch == 0 && matches!(news.files, FilesNews::Back(_));
        if news.replaces.is_some() || news.files != FilesNews::Kept && !is_first {
            let ended = news.replaces.unwrap_or_default();
            let reason = format!(
                "The sandbox was started anew. {files}; running processes, files elsewhere (such as /tmp) and the \
                 shell's working directory are gone."
            );
            let reason = if ended.is_empty() { reason } else { format!("{reason} {ended}") };
            notes.push(Draft::new(Body::EnvironmentReset { reason, snapshot }));
        }
        let epoch = self.held.lease.epoch;
        notes.push(Draft::new(Body::EnvironmentStarted { driver: news.driver, missing: news.missing, epoch }));
        notes
    }

    /// Says that files went back, and what was done to them since: the log still tells of it, and the model
    /// would take it for done (hazard Z-32).
    async fn went_back(&self) -> String {
        let since = self.home.files.snapshot_seq;
        let query = EventQuery {
            tenant: self.tenant.clone(),
            session: self.session,
            after: Some(since),
            order: Order::Ascending,
            limit: ROWS,
        };
        let start = format!("Files in the workspace went back to the snapshot of event {since}");
        let Ok(rows) = self.store.events(query).await else {
            return format!("{start}; changes by later commands are gone");
        };
        match undone(&rows) {
            None => format!("{start}; no command had ended since"),
            Some(commands) => format!(
                "{start}. What these later commands did to files is gone, run them again if it is needed: {commands}"
            ),
        }
    }
}

/// Makes the sandbox when a tool first needs it.
struct Lazy<'a> {
    runner: &'a Runner,
    news: Mutex<Option<News>>,
    blocked: Mutex<Option<String>>,
}

#[async_trait]
impl SandboxProvider for Lazy<'_> {
    async fn sandbox(&self) -> Result<Arc<dyn Incarnation>, Error> {
        let given = match self.runner.start().await {
            Ok(given) => given,
            Err(NotGiven::Sandbox(error)) => return Err(error),
            Err(NotGiven::Files(error)) => {
                let reason = format!("its files could not be brought back: {error}");
                *self.blocked.lock().expect("nobody panics while holding it") = Some(reason.clone());
                return Err(Error::new(ErrorKind::Unavailable, reason));
            }
        };
        if let Some(news) = given.news {
            *self.news.lock().expect("nobody panics while holding it") = Some(news);
        }
        Ok(given.incarnation)
    }
}
