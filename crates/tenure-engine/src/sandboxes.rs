//! The live sandboxes of this node: made when first needed, kept while a session is busy, ended
//! when it is idle. Their files stay (design 4.8).

use crate::services::Services;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_core::{DriverName, Environment, EventId, Network, SessionId};
use tenure_sandbox::{Driver, Error, ErrorKind, Incarnation, Limits, Spec};
use tokio_util::sync::CancellationToken;

/// How often idle sandboxes are looked for.
const REAP: Duration = Duration::from_secs(2);

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
    /// Whether an earlier one of the same session is gone.
    pub(crate) replaces: bool,
}

struct Live {
    incarnation: Arc<dyn Incarnation>,
    /// It has ended, by itself or because another holder ended it.
    lost: CancellationToken,
    used_at: Instant,
    is_busy: usize,
}

/// The live sandboxes of this node.
pub struct Sandboxes {
    drivers: BTreeMap<&'static str, Arc<dyn Driver>>,
    folders: Folders,
    hidden: Vec<PathBuf>,
    live: Mutex<BTreeMap<SessionId, Live>>,
    /// One start or end at a time for each session.
    starting: tokio::sync::Mutex<()>,
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
        Self { drivers, folders, hidden, live: Mutex::default(), starting: tokio::sync::Mutex::default() }
    }

    /// The sandbox of a session; makes one if none lives.
    pub(crate) async fn get(&self, session: SessionId, environment: &Environment, epoch: u64) -> Result<Given, Error> {
        let _one = self.starting.lock().await;
        if let Some(incarnation) = self.reuse(session) {
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
        let replaces = state_dir.join("used").exists();
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
        let incarnation = driver.start(spec).await?;
        // Remembers that commands may have run here, so that a successor says what is gone.
        let _ = std::fs::write(state_dir.join("used"), b"");
        let missing =
            incarnation.guarantees().weak().map(|line| format!("{}: {}", line.item.name(), line.why)).collect();
        let lost = watch(incarnation.clone());
        let live = Live { incarnation: incarnation.clone(), lost, used_at: Instant::now(), is_busy: 0 };
        self.lock().insert(session, live);
        Ok(Given { incarnation, news: Some(News { driver: name.to_owned(), missing, replaces }) })
    }

    /// Keeps the full output of a call under the id of the call, where readers find it.
    pub(crate) fn keep_output(&self, session: SessionId, call: EventId, log: &Path) {
        let kept = self.folders.state(session).join(format!("{call}.log"));
        // Processes that go on write into the same file under its new name.
        if let Err(error) = std::fs::rename(log, &kept) {
            tracing::warn!(%session, %call, %error, "keep the full output of a call");
        }
    }

    fn reuse(&self, session: SessionId) -> Option<Arc<dyn Incarnation>> {
        let mut live = self.lock();
        let entry = live.get_mut(&session)?;
        if entry.lost.is_cancelled() {
            live.remove(&session);
            return None;
        }
        entry.used_at = Instant::now();
        Some(entry.incarnation.clone())
    }

    /// Ends the sandbox of a session with all its processes; says what was done.
    pub(crate) async fn end(&self, session: SessionId) -> &'static str {
        let gone = self.lock().remove(&session);
        match gone {
            Some(live) => {
                live.incarnation.stop().await;
                "killed"
            }
            None => "nothing was running",
        }
    }

    /// Ends all sandboxes.
    pub(crate) async fn end_all(&self) {
        let all = std::mem::take(&mut *self.lock());
        for live in all.into_values() {
            live.incarnation.stop().await;
        }
    }

    /// Says that a call uses the sandbox of a session until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>, session: SessionId) -> Busy {
        if let Some(live) = self.lock().get_mut(&session) {
            live.is_busy += 1;
        }
        Busy { sandboxes: self.clone(), session }
    }

    fn idle(&self, idle: Duration) -> Vec<SessionId> {
        let live = self.lock();
        let is_idle = |live: &Live| live.is_busy == 0 && live.used_at.elapsed() >= idle;
        live.iter().filter(|(_, live)| is_idle(live)).map(|(session, _)| *session).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Live>> {
        self.live.lock().expect("nobody panics while holding it")
    }
}

/// A sandbox is in use.
pub(crate) struct Busy {
    sandboxes: Arc<Sandboxes>,
    session: SessionId,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(live) = self.sandboxes.lock().get_mut(&self.session) {
            live.is_busy = live.is_busy.saturating_sub(1);
            live.used_at = Instant::now();
        }
    }
}

/// Ends sandboxes of sessions that do nothing, until the worker stops.
pub(crate) async fn reap(services: Arc<Services>) {
    loop {
        tokio::select! {
            () = services.stopping.cancelled() => return,
            () = tokio::time::sleep(REAP) => {}
        }
        for session in services.sandboxes.idle(services.options.sandbox_idle) {
            if services.held.get(session).is_none() {
                services.sandboxes.end(session).await;
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

fn driver_name(name: DriverName) -> &'static str {
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
