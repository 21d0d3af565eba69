//! The live sandboxes of this node: made when first needed, kept while a session is busy, ended
//! when it is idle. Their files stay (design 4.8).

mod hands;
mod outputs;
mod snapshots;
#[cfg(test)]
mod tests;
mod turns;

pub use hands::Hands;
pub(crate) use snapshots::{Home, Wish, collect};

use crate::masker::EventMasker;
use crate::services::Services;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_core::{DriverName, Environment, EventId, Network, SessionId};
use tenure_files::place::Brought;
use tenure_files::snapshots::{Id, Stores};
use tenure_sandbox::{Driver, Error, ErrorKind, Incarnation, Limits, Process, Spec};
use tokio_util::sync::CancellationToken;
use turns::Turns;

/// How often idle sandboxes are looked for.
const REAP: Duration = Duration::from_secs(2);

/// A sandbox in which processes live that the agent left there is kept idle so many times longer than
/// one without: somebody wanted them. After that they are ended, and the session is told.
const BACKGROUND_TIMES: u32 = 12;

/// How long the list of processes may take.
const LIST_WITHIN: Duration = Duration::from_secs(2);

/// Processes that are named when they were ended.
const NAMED_PROCESSES: usize = 10;

/// File in the state folder: commands may have run here.
const USED: &str = "used";

/// File in the state folder: why the last sandbox was ended with living processes, and which.
const ENDED: &str = "ended";

/// Where the folders of sessions are.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The data folder.
    pub data: PathBuf,
}

impl Folders {
    /// The files that the agent of a session works on.
    pub fn workspace(&self, session: SessionId) -> PathBuf {
        self.data.join("workspaces").join(session.to_string())
    }

    /// What tenure keeps beside them: the incarnation file and full outputs of commands.
    pub fn state(&self, session: SessionId) -> PathBuf {
        self.data.join("sandboxes").join(session.to_string())
    }
}

/// A sandbox that was given to a call.
pub(crate) struct Given {
    pub(crate) incarnation: Arc<dyn Incarnation>,
    /// Set if it was made for this call.
    pub(crate) news: Option<News>,
}

/// What a session is told about a new sandbox.
pub(crate) struct News {
    pub(crate) driver: String,
    pub(crate) missing: Vec<String>,
    /// Set if an earlier one of the same session is gone: what was ended with it, as far as it is known.
    pub(crate) replaces: Option<String>,
    /// What became of the files.
    pub(crate) files: FilesNews,
}

/// What became of the files of a session before a new sandbox got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesNews {
    /// They are as they were.
    Kept,
    /// They went back to this snapshot.
    Back(Id),
    /// They are gone, and there is no snapshot of them.
    Lost,
}

/// Why a sandbox was not given.
#[derive(Debug)]
pub(crate) enum NotGiven {
    /// It could not be started.
    Sandbox(Error),
    /// The files of the session are not here and cannot be brought: nothing may run without them.
    Files(tenure_files::Error),
}

impl From<Error> for NotGiven {
    fn from(error: Error) -> Self {
        Self::Sandbox(error)
    }
}

struct Live {
    incarnation: Arc<dyn Incarnation>,
    /// It has ended, by itself or because another holder ended it.
    lost: CancellationToken,
    used_at: Instant,
    /// The newest lease that used it.
    epoch: u64,
}

/// Why all sandboxes of a worker end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The worker stops in good order.
    Stopped,
    /// Its leases are not to be trusted any more: nothing may take time.
    Fenced,
}

/// The live sandboxes of this node.
pub struct Sandboxes {
    drivers: BTreeMap<&'static str, Arc<dyn Driver>>,
    folders: Folders,
    hidden: Vec<PathBuf>,
    live: Mutex<BTreeMap<SessionId, Live>>,
    /// Calls that run, by session and lease.
    calls: Mutex<BTreeMap<(SessionId, u64), usize>>,
    turns: Turns,
    /// Set if there are no sandboxes at all.
    hands: Option<Arc<dyn Hands>>,
    stores: Arc<Stores>,
    caches: snapshots::Caches,
    /// No more are given.
    is_closed: AtomicBool,
}

impl std::fmt::Debug for Sandboxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandboxes").field("drivers", &self.drivers.keys()).finish_non_exhaustive()
    }
}

impl Sandboxes {
    /// No sandbox yet; `hidden` are host paths that no driver may show.
    pub fn new(drivers: Vec<Arc<dyn Driver>>, folders: Folders, hidden: Vec<PathBuf>) -> Self {
        let drivers = drivers.into_iter().map(|driver| (driver.name(), driver)).collect();
        let stores = snapshots::default_stores(&folders.data);
        Self {
            drivers,
            stores,
            caches: snapshots::Caches::default(),
            folders,
            hidden,
            live: Mutex::default(),
            calls: Mutex::default(),
            turns: Turns::default(),
            hands: None,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Keeps snapshots there instead of in the data folder.
    #[must_use]
    pub fn with_snapshots(mut self, stores: Arc<Stores>) -> Self {
        self.stores = stores;
        self
    }

    /// The sandbox of a session; makes one if none lives.
    pub(crate) async fn get(
        &self,
        session: SessionId,
        home: &Home,
        environment: &Environment,
        epoch: u64,
    ) -> Result<Given, NotGiven> {
        let _turn = self.turns.take(session).await;
        if let Some(incarnation) = self.reuse(session, epoch).await {
            return Ok(Given { incarnation, news: None });
        }
        let name = driver_name(environment.driver);
        let driver = self.drivers.get(name).ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!("this worker offers no sandbox driver {name}; tenure doctor says why"),
            )
        })?;
        let (workspace, state_dir) = (self.folders.workspace(session), self.folders.state(session));
        let ended = std::fs::read_to_string(state_dir.join(ENDED)).unwrap_or_default();
        let replaces = state_dir.join(USED).exists().then_some(ended);
        let spec = Spec {
            workspace,
            state_dir: state_dir.clone(),
            session: session.to_string(),
            epoch,
            network: match environment.network {
                Network::Off => tenure_sandbox::Network::Off,
                Network::Host => tenure_sandbox::Network::Host,
            },
            limits: limits(environment),
            env: Vec::new(),
            hidden: self.hidden.clone(),
        };
        // What still runs of an earlier holder must not write into files that are being brought.
        tenure_sandbox::end_left(state_dir.clone(), epoch).await?;
        let files = match self.bring(session, home).await.map_err(NotGiven::Files)? {
            Brought::Current => FilesNews::Kept,
            Brought::Restored(restored) => FilesNews::Back(restored.record.id),
            Brought::Lost => FilesNews::Lost,
        };
        self.note_files(session, epoch).await.map_err(NotGiven::Files)?;
        let incarnation = driver.start(spec).await?;
        // Remembers that commands may have run here, so that a successor says what is gone.
        let _ = std::fs::write(state_dir.join(USED), b"");
        let _ = std::fs::remove_file(state_dir.join(ENDED));
        let missing =
            incarnation.guarantees().weak().map(|line| format!("{}: {}", line.item.name(), line.why)).collect();
        let lost = watch(incarnation.clone());
        let live = Live { incarnation: incarnation.clone(), lost, used_at: Instant::now(), epoch };
        self.lock().insert(session, live);
        // Asked after it is among those that `end_all` finds: one of the two sees the other.
        if self.is_closed.load(Ordering::SeqCst) {
            self.lock().remove(&session);
            incarnation.stop().await;
            return Err(Error::new(ErrorKind::Fenced, "this worker gives no sandboxes any more").into());
        }
        Ok(Given { incarnation, news: Some(News { driver: name.to_owned(), missing, replaces, files }) })
    }

    /// Keeps the full output of a call under the id of the call, where readers find it.
    pub(crate) async fn keep_output(&self, session: SessionId, call: EventId, log: &Path, masker: &EventMasker) {
        let (folder, log, masker) = (self.folders.state(session), log.to_owned(), masker.clone());
        let keep = move || outputs::keep(&folder, call, &log, masker.forms(), outputs::Bounds::default());
        match tokio::task::spawn_blocking(keep).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%session, %call, %error, "keep the full output of a call"),
            Err(error) => tracing::warn!(%session, %call, %error, "keep the full output of a call"),
        }
    }

    /// The live sandbox of a session, unless a call of an older lease still runs in it: such a one is
    /// ended first, so that two leases never work on the same files (hazard Z-11).
    async fn reuse(&self, session: SessionId, epoch: u64) -> Option<Arc<dyn Incarnation>> {
        let has_older_call = self.lock_calls().range((session, 0)..(session, epoch)).next().is_some();
        let stale = {
            let mut live = self.lock();
            let entry = live.get_mut(&session)?;
            if !has_older_call && !entry.lost.is_cancelled() {
                entry.used_at = Instant::now();
                entry.epoch = epoch;
                return Some(entry.incarnation.clone());
            }
            live.remove(&session)
        };
        if let Some(stale) = stale {
            stale.incarnation.stop().await;
        }
        None
    }

    /// Ends the sandbox of a session with all its processes, unless a newer lease than `epoch` uses
    /// it; says what was done. Also one that another worker of this machine left.
    pub(crate) async fn end(&self, session: SessionId, epoch: u64) -> &'static str {
        let _turn = self.turns.take(session).await;
        let gone = {
            let mut live = self.lock();
            match live.get(&session) {
                Some(entry) if entry.epoch > epoch => return "a newer lease has them",
                Some(_) => live.remove(&session),
                None => None,
            }
        };
        let Some(live) = gone else {
            if self.hands.is_some() {
                return "killed";
            }
            return match tenure_sandbox::end_left(self.folders.state(session), epoch).await {
                Ok(true) => "killed",
                Ok(false) => "nothing was running",
                Err(error) => {
                    tracing::warn!(%session, %error, "end the sandbox that another worker left");
                    "could not be reached"
                }
            };
        };
        live.incarnation.stop().await;
        "killed"
    }

    /// Ends all sandboxes, and gives no more.
    pub(crate) async fn end_all(&self, closing: Closing) {
        self.is_closed.store(true, Ordering::SeqCst);
        let all = std::mem::take(&mut *self.lock());
        join_all(all.into_iter().map(async |(session, live)| {
            if closing == Closing::Stopped {
                self.note_ended(session, "The worker that ran it was stopped", &list(&*live.incarnation).await);
            }
            live.incarnation.stop().await;
        }))
        .await;
    }

    /// Says that a call of a lease runs until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>, session: SessionId, epoch: u64) -> Busy {
        *self.lock_calls().entry((session, epoch)).or_default() += 1;
        Busy { sandboxes: self.clone(), session, epoch }
    }

    /// Sessions whose sandbox nobody used for so long.
    fn idle(&self, idle: Duration) -> Vec<SessionId> {
        let calls = self.lock_calls();
        let is_busy = |session: SessionId| calls.range((session, 0)..=(session, u64::MAX)).next().is_some();
        let live = self.lock();
        let is_idle = |session: SessionId, live: &Live| live.used_at.elapsed() >= idle && !is_busy(session);
        live.iter().filter(|(session, live)| is_idle(**session, live)).map(|(session, _)| *session).collect()
    }

    /// Ends an idle sandbox, now or, if the agent left processes in it, later and not silently.
    async fn end_idle(&self, session: SessionId, idle: Duration) {
        let _turn = self.turns.take(session).await;
        let (incarnation, used_at) = match self.lock().get(&session) {
            Some(live) => (live.incarnation.clone(), live.used_at),
            None => return,
        };
        let left = list(&*incarnation).await;
        if !left.is_empty() && used_at.elapsed() < idle.saturating_mul(BACKGROUND_TIMES) {
            return;
        }
        self.note_ended(session, "Nothing used it for too long", &left);
        self.lock().remove(&session);
        incarnation.stop().await;
    }

    /// Remembers which processes were ended, for the event that the session gets with its next sandbox.
    fn note_ended(&self, session: SessionId, why: &str, processes: &[Process]) {
        if processes.is_empty() {
            return;
        }
        let named = processes.iter().take(NAMED_PROCESSES).map(|process| {
            let command = process.command.chars().filter(|character| !character.is_control());
            command.collect::<String>()
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let more = processes.len().saturating_sub(NAMED_PROCESSES);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let text = format!("{why}, and processes that still ran in it were ended: {named}{more}.");
        if let Err(error) = std::fs::write(self.folders.state(session).join(ENDED), text) {
            tracing::warn!(%session, %error, "note the processes that were ended");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Live>> {
        self.live.lock().expect("nobody panics while holding it")
    }

    fn lock_calls(&self) -> std::sync::MutexGuard<'_, BTreeMap<(SessionId, u64), usize>> {
        self.calls.lock().expect("nobody panics while holding it")
    }
}

/// The processes that live in a sandbox; none if it does not answer.
async fn list(incarnation: &dyn Incarnation) -> Vec<Process> {
    match tokio::time::timeout(LIST_WITHIN, incarnation.processes()).await {
        Ok(Ok(processes)) => processes,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// A sandbox is in use.
pub(crate) struct Busy {
    sandboxes: Arc<Sandboxes>,
    session: SessionId,
    epoch: u64,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut calls = self.sandboxes.lock_calls();
        let key = (self.session, self.epoch);
        if let Some(count) = calls.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&key);
            }
        }
        drop(calls);
        if let Some(live) = self.sandboxes.lock().get_mut(&self.session) {
            live.used_at = Instant::now();
        }
    }
}

/// Ends sandboxes of sessions that do nothing, until the worker stops.
pub(crate) async fn reap(services: Arc<Services>) {
    let idle = services.options.sandbox_idle;
    loop {
        tokio::select! {
            biased;
            () = services.stopping.cancelled() => return,
            () = tokio::time::sleep(REAP) => {}
        }
        for session in services.sandboxes.idle(idle) {
            if services.held.get(session).is_none() {
                services.sandboxes.end_idle(session, idle).await;
            }
        }
    }
}

/// A token that is cancelled when the incarnation has ended.
fn watch(incarnation: Arc<dyn Incarnation>) -> CancellationToken {
    let lost = CancellationToken::new();
    let ended = lost.clone();
    tokio::spawn(async move {
        incarnation.lost().await;
        ended.cancel();
    });
    lost
}

/// The word for a driver.
pub(crate) fn driver_name(name: DriverName) -> &'static str {
    match name {
        DriverName::Namespace => "namespace",
        DriverName::Landlock => "landlock",
        DriverName::Process => "process",
    }
}

fn limits(environment: &Environment) -> Limits {
    let mut limits = Limits::default();
    let wanted = environment.limits;
    if let Some(bytes) = wanted.memory_bytes {
        limits.memory_bytes = bytes;
    }
    if let Some(processes) = wanted.processes {
        limits.processes = processes;
    }
    if let Some(millis) = wanted.cpu_millis {
        limits.cpu_millis = millis;
    }
    if let Some(bytes) = wanted.disk_bytes {
        limits.disk_bytes = bytes;
    }
    limits
}
