//! Workers as processes of their own: this test binary again, asked for one test that does nothing
//! unless it is the child.

use crate::house::{House, PATIENCE, drivers, options, start};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_engine::{Ended, EventMasker, Options};
use tenure_store::Store;
use tenure_store_sqlite::{Sqlite, block_writes};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Tells a child its folder.
const FOLDER: &str = "TENURE_ENGINE_TEST_FOLDER";

/// Tells a child how long its grace time is, in milliseconds.
const GRACE: &str = "TENURE_ENGINE_TEST_GRACE";

/// Exit code of a worker that gave its leases up.
pub(crate) const FENCED: i32 = 3;

#[test]
fn worker() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let grace = std::env::var(GRACE).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended = runtime.block_on(async {
        let store = Sqlite::open(tenure_store_sqlite::Options::new(folder.join("store"))).unwrap();
        let options = Options { grace: Duration::from_millis(grace), ..options(&folder) };
        let worker = start(&folder, store.clone(), drivers(), EventMasker::default(), options).await;
        let stop = CancellationToken::new();
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        println!("\nready");
        let by_signal = stop.clone();
        tokio::spawn(async move {
            terminate.recv().await;
            by_signal.cancel();
        });
        let by_parent = stop.clone();
        std::thread::spawn(move || {
            // A parent that is gone closes it.
            let _ = std::io::stdin().read(&mut [0]);
            by_parent.cancel();
        });
        let ended = worker.run(stop).await.unwrap();
        store.close().await;
        ended
    });
    std::process::exit(if ended == Ended::Fenced { FENCED } else { 0 });
}

#[test]
fn locker() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let _block = block_writes(&tenure_store_sqlite::Options::new(folder.join("store"))).unwrap();
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// A child; killed when dropped.
pub(crate) struct Child {
    process: std::process::Child,
}

impl Child {
    /// A worker of the house, ready to claim.
    pub(crate) fn worker(house: &House, grace: Duration) -> Self {
        Self::start("children::worker", house.path(), grace)
    }

    /// Somebody who keeps the store locked for writing while it lives.
    pub(crate) fn locker(house: &House) -> Self {
        Self::start("children::locker", house.path(), Duration::ZERO)
    }

    fn start(test: &str, folder: &Path, grace: Duration) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .env(GRACE, grace.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "the child does not come up");
        // Whatever else it says must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).unwrap();
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> i32 {
        let wait = async {
            loop {
                if let Some(status) = self.process.try_wait().unwrap() {
                    return status.code().unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("the child ends")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where commands say that they have begun, and wait until they may go on.
pub(crate) struct Gate {
    begun: mpsc::UnboundedReceiver<String>,
    go: PathBuf,
    effects: PathBuf,
}

/// Shell: notes an effect, says its process id, waits.
pub(crate) const EFFECT_AND_WAIT: &str = "echo run >> {f}/effects; echo $$ > {f}/begun; cat {f}/go";

impl Gate {
    pub(crate) fn new(house: &House) -> Self {
        let [begun, go] = ["begun", "go"].map(|name| house.path().join(name));
        for fifo in [&begun, &go] {
            mkfifoat(CWD, fifo, Mode::RUSR | Mode::WUSR).unwrap();
        }
        // Held open for both, so that it never ends.
        let lines = BufReader::new(OpenOptions::new().read(true).write(true).open(begun).unwrap()).lines();
        let (sender, receiver) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in lines {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { begun: receiver, go, effects: house.path().join("effects") }
    }

    /// Waits until a command has begun; returns what it says.
    pub(crate) async fn begun(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.begun.recv()).await.expect("a command begins").unwrap()
    }

    /// Lets the command that waits go on.
    pub(crate) async fn go(&self) {
        let go = self.go.clone();
        let write = tokio::task::spawn_blocking(move || {
            // Opens when the other side does.
            File::options().write(true).open(go).unwrap().write_all(b"x").unwrap();
        });
        tokio::time::timeout(PATIENCE, write).await.expect("a command waits").unwrap();
    }

    /// The effects so far, in order.
    pub(crate) fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.effects).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Whether a process lives.
pub(crate) fn lives(pid: &str) -> bool {
    let pid: i32 = pid.trim().parse().unwrap();
    let is_zombie = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && !is_zombie()
}

/// Waits until a process that was told to end has ended.
pub(crate) async fn until_gone(pid: &str) {
    let gone = async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it ends");
}
