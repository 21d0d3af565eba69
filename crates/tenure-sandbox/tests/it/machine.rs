//! The drivers under test on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::contain::contained;
use tenure_sandbox::{
    Driver, Exec, Incarnation, Landlock, Launcher, Namespace, Outcome, ProcessDriver, Spec, Status, try_driver,
};

/// A limit that no healthy test reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn launcher() -> Launcher {
    Launcher {
        program: std::env::var_os("TENURE_TEST_LAUNCHER")
            .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandbox-launcher")), PathBuf::from),
        arguments: vec![tenure_sandbox::LAUNCHER_ARGUMENT.to_owned()],
    }
}

pub(crate) fn all() -> Vec<Arc<dyn Driver>> {
    vec![
        Arc::new(Namespace::new(launcher())),
        Arc::new(Landlock::new(launcher())),
        Arc::new(ProcessDriver::new(launcher())),
    ]
}

/// Drivers that work here; says why the others are left out.
///
/// Every test asks here before it starts anything, so everything is contained.
pub(crate) async fn drivers() -> Vec<Arc<dyn Driver>> {
    // Without a container only the bombs are left out; they ask themselves.
    let _ = contained();
    let mut working = Vec::new();
    for driver in all() {
        match try_driver(driver.as_ref()).await {
            Ok(()) => working.push(driver),
            Err(why) => eprintln!("left out: the {} driver: {why}", driver.name()),
        }
    }
    working
}

/// The namespace driver, if it works here.
pub(crate) async fn namespace() -> Option<Arc<dyn Driver>> {
    drivers().await.into_iter().find(|driver| driver.name() == "namespace")
}

/// A session's folders, removed at the end.
pub(crate) struct Folders {
    pub(crate) top: tempfile::TempDir,
}

impl Folders {
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().expect("a folder for the test");
        std::fs::create_dir(top.path().join("workspace")).expect("a workspace");
        Self { top }
    }

    pub(crate) fn path(&self) -> &Path {
        self.top.path()
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path().join("workspace")
    }

    pub(crate) fn spec(&self) -> Spec {
        Spec::new(self.workspace(), self.path().join("state"), "sesn_test")
    }
}

pub(crate) async fn run(sandbox: &Arc<dyn Incarnation>, command: &str) -> Outcome {
    let exec = Exec { timeout: PATIENCE, ..Exec::new(command) };
    sandbox.exec(exec).await.expect("the command runs")
}

/// Output of a command that must succeed.
pub(crate) async fn output(sandbox: &Arc<dyn Incarnation>, command: &str) -> String {
    let outcome = run(sandbox, command).await;
    let text = text(&outcome);
    assert_eq!(outcome.status, Status::Exited(0), "{command}: {text}");
    text
}

pub(crate) fn text(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&[outcome.head.as_slice(), outcome.tail.as_slice()].concat()).into_owned()
}
