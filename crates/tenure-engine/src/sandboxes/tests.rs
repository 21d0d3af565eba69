//! Who gets which sandbox when, with a driver that does what the test says.

use super::*;
use async_trait::async_trait;
use futures_util::FutureExt;
use std::sync::atomic::AtomicUsize;
use tenure_core::{EnvironmentId, SandboxLimits, TenantId, Timestamp};
use tenure_sandbox::{Exec, FileOp, FileReply, Guarantees, Outcome};
use tokio::sync::{Semaphore, watch};

const ONE: SessionId = SessionId::from_bits(1);
const TWO: SessionId = SessionId::from_bits(2);

/// Starts sandboxes at once, except for sessions that have to wait.
#[derive(Default)]
struct Stage {
    slow: Option<SessionId>,
    gate: Gate,
    started: AtomicUsize,
    processes: Mutex<Vec<Process>>,
}

/// A semaphore that is closed at first.
struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

struct Fake {
    stage: Arc<Stage>,
    guarantees: Guarantees,
    ended: watch::Sender<bool>,
}

struct FakeDriver(Arc<Stage>);

#[async_trait]
impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        "process"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::default()
    }

    async fn start(&self, spec: Spec) -> Result<Arc<dyn Incarnation>, Error> {
        if self.0.slow.is_some_and(|slow| slow.to_string() == spec.session) {
            let _permit = self.0.gate.0.acquire().await.expect("it is never closed");
        }
        self.0.started.fetch_add(1, Ordering::SeqCst);
        std::fs::create_dir_all(&spec.state_dir).expect("a folder can be made");
        Ok(Arc::new(Fake {
            stage: self.0.clone(),
            guarantees: Guarantees::default(),
            ended: watch::Sender::new(false),
        }))
    }
}

#[async_trait]
impl Incarnation for Fake {
    fn id(&self) -> &str {
        "fake"
    }

    fn driver(&self) -> &'static str {
        "process"
    }

    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    async fn exec(&self, _: Exec) -> Result<Outcome, Error> {
        Err(Error::new(ErrorKind::Lost, "it runs nothing"))
    }

    async fn file(&self, _: FileOp) -> Result<FileReply, Error> {
        Err(Error::new(ErrorKind::Lost, "it has no files"))
    }

    async fn processes(&self) -> Result<Vec<Process>, Error> {
        Ok(self.stage.processes.lock().expect("nobody panics while holding it").clone())
    }

    async fn restart(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn stop(&self) {
        self.ended.send_replace(true);
    }

    async fn lost(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

struct Scene {
    stage: Arc<Stage>,
    sandboxes: Arc<Sandboxes>,
    environment: Environment,
    _data: tempfile::TempDir,
}

impl Scene {
    fn new(stage: Stage) -> Self {
        let (stage, data) = (Arc::new(stage), tempfile::tempdir().expect("a folder can be made"));
        let folders = Folders { data: data.path().to_owned() };
        let sandboxes = Sandboxes::new(vec![Arc::new(FakeDriver(stage.clone()))], folders, Vec::new());
        let environment = Environment {
            id: EnvironmentId::from_bits(1),
            tenant: TenantId::default_tenant(),
            name: "here".into(),
            description: None,
            driver: DriverName::Process,
            network: Network::Off,
            limits: SandboxLimits::default(),
            metadata: BTreeMap::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            archived_at: None,
        };
        Self { stage, sandboxes: Arc::new(sandboxes), environment, _data: data }
    }

    async fn get(&self, session: SessionId, epoch: u64) -> Result<Given, NotGiven> {
        let home = Home { tenant: TenantId::default_tenant(), files: Default::default() };
        self.sandboxes.get(session, &home, &self.environment, epoch).await
    }

    fn leave(&self, commands: &[&str]) {
        let process = |command: &&str| Process { pid: 7, parent: 1, command: (*command).to_owned() };
        *self.stage.processes.lock().expect("nobody panics while holding it") = commands.iter().map(process).collect();
    }
}

#[tokio::test]
async fn a_slow_start_holds_up_its_own_session_and_no_other() {
    let scene = Scene::new(Stage { slow: Some(ONE), ..Stage::default() });
    let mut slow = Box::pin(scene.get(ONE, 1));
    assert!(slow.as_mut().now_or_never().is_none());
    let mut again = Box::pin(scene.get(ONE, 1));
    assert!(again.as_mut().now_or_never().is_none());
    assert!(scene.get(TWO, 1).await.is_ok(), "another session does not wait");
    scene.stage.gate.0.add_permits(1);
    let (first, second) = tokio::join!(slow, again);
    assert!(first.is_ok_and(|given| given.news.is_some()));
    assert!(second.is_ok_and(|given| given.news.is_none()), "both calls share one sandbox");
    assert_eq!(scene.stage.started.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn z_11_a_newer_lease_never_shares_a_sandbox_with_a_call_of_an_older_one() {
    let scene = Scene::new(Stage::default());
    let old = scene.get(ONE, 1).await.expect("it starts");
    assert!(scene.get(ONE, 2).await.is_ok_and(|given| given.news.is_none()), "an idle one is used again");
    let running = scene.sandboxes.busy(ONE, 2);
    let new = scene.get(ONE, 3).await.expect("it starts");
    assert!(new.news.is_some_and(|news| news.replaces.is_some()));
    assert!(old.incarnation.lost().now_or_never().is_some(), "the old one was ended first");
    drop(running);
    assert_eq!(scene.sandboxes.end(ONE, 2).await, "a newer lease has them", "a late clean-up takes nothing away");
    assert!(new.incarnation.lost().now_or_never().is_none());
    assert_eq!(scene.sandboxes.end(ONE, 3).await, "killed");
    assert_eq!(scene.sandboxes.end(ONE, 3).await, "nothing was running");
}

#[tokio::test]
async fn a_sandbox_with_processes_that_the_agent_left_is_kept_longer_and_its_end_is_told() {
    let scene = Scene::new(Stage::default());
    let first = scene.get(ONE, 1).await.expect("it starts");
    scene.leave(&["sleep 98765", "serve\u{1b}[2J --port 80"]);
    assert_eq!(scene.sandboxes.idle(Duration::ZERO), [ONE]);
    let busy = scene.sandboxes.busy(ONE, 1);
    assert_eq!(scene.sandboxes.idle(Duration::ZERO), [], "a call runs in it");
    drop(busy);
    scene.sandboxes.end_idle(ONE, Duration::from_secs(3_600)).await;
    assert!(first.incarnation.lost().now_or_never().is_none(), "not yet");
    scene.sandboxes.end_idle(ONE, Duration::ZERO).await;
    assert!(first.incarnation.lost().now_or_never().is_some());
    let news = scene.get(ONE, 2).await.expect("it starts").news.expect("it is new");
    let ended = news.replaces.expect("an earlier one is gone");
    assert!(ended.contains("ended: sleep 98765; serve[2J --port 80."), "{ended}");
    scene.leave(&[]);
    scene.sandboxes.end_idle(ONE, Duration::from_secs(3_600)).await;
    let news = scene.get(ONE, 3).await.expect("it starts").news.expect("without processes it is ended at once");
    assert_eq!(news.replaces.as_deref(), Some(""), "told once");
}

#[tokio::test]
async fn z_12_a_worker_that_closed_gives_no_sandbox_any_more_not_even_one_that_was_being_started() {
    let scene = Scene::new(Stage { slow: Some(ONE), ..Stage::default() });
    let other = scene.get(TWO, 1).await.expect("it starts");
    let mut slow = Box::pin(scene.get(ONE, 1));
    assert!(slow.as_mut().now_or_never().is_none());
    scene.sandboxes.end_all(Closing::Fenced).await;
    assert!(other.incarnation.lost().now_or_never().is_some());
    scene.stage.gate.0.add_permits(1);
    assert!(
        slow.await
            .err()
            .is_some_and(|error| { matches!(error, NotGiven::Sandbox(error) if error.kind == ErrorKind::Fenced) })
    );
}
