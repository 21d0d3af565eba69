//! One incarnation at most works on a session's folder.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tenure_sandbox::{ErrorKind, Exec, Spec, Status};

use crate::machine::{Folders, PATIENCE, all, drivers, output, run};

#[tokio::test]
async fn z_11_a_new_holder_ends_the_old_incarnation_first() {
    for driver in drivers().await {
        let folders = Folders::new();
        let old = driver.start(Spec { epoch: 1, ..folders.spec() }).await.expect("start");
        output(&old, "mkfifo begun").await;
        let running =
            old.exec(Exec::new("(setsid sh -c 'while :; do echo x >> out; done' &); until test -s out; do sleep 0.01; done; echo > begun; sleep 1000"));
        let taking = async {
            output(&old, "cat begun").await;
            driver.start(Spec { epoch: 2, ..folders.spec() }).await.expect("take over")
        };
        let (outcome, new) = tokio::join!(running, taking);
        assert_eq!(outcome.expect("an outcome").status, Status::Lost);
        old.lost().await;
        // No second writer: the size stays.
        let sizes = output(&new, "a=$(stat -c %s out); sleep 0.3; test $a = $(stat -c %s out) && echo same").await;
        assert_eq!(sizes, "same\n");
        let error = driver.start(Spec { epoch: 1, ..folders.spec() }).await.err().expect("an older epoch is refused");
        assert_eq!(error.kind, ErrorKind::Fenced);
        assert_eq!(output(&new, "echo alive").await, "alive\n");
        new.stop().await;
        assert_eq!(new.exec(Exec::new("true")).await.expect_err("ended").kind, ErrorKind::Lost);
    }
}

#[tokio::test]
async fn stop_leaves_no_process_no_group_and_no_record() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        run(&sandbox, "(setsid sleep 98765 &); sleep 98765 &").await;
        let id = sandbox.id().to_owned();
        sandbox.stop().await;
        let alive = std::fs::read_dir("/proc").expect("proc").flatten().any(|entry| {
            std::fs::read(entry.path().join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&id))
        });
        assert!(!alive, "{} leaves processes", driver.name());
        assert!(!folders.path().join("state/incarnation.json").exists());
        for controller in ["memory", "pids", "cpu"] {
            let left = std::fs::read_dir(format!("/sys/fs/cgroup/{controller}")).into_iter().flatten().flatten();
            assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(&id)), "{controller}");
        }
    }
}

#[tokio::test]
async fn z_12_a_holder_that_fences_itself_ends_its_commands_and_starts_none() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        output(&sandbox, "mkfifo begun").await;
        let running =
            sandbox.exec(Exec::new("(setsid sh -c 'while :; do echo x >> out; done' &); until test -s out; do sleep 0.01; done; echo > begun; sleep 1000"));
        let fencing = async {
            output(&sandbox, "cat begun").await;
            sandbox.stop().await;
            // From here on nothing of it writes.
            let size = || std::fs::metadata(folders.workspace().join("out")).map(|metadata| metadata.len()).ok();
            let before = size();
            assert!(!is_marked_alive(sandbox.id()), "{}", driver.name());
            assert_eq!(size(), before);
        };
        let (outcome, ()) = tokio::join!(running, fencing);
        assert_eq!(outcome.expect("an outcome").status, Status::Lost, "what it did is unknown, not failed");
        assert_eq!(sandbox.exec(Exec::new("true")).await.expect_err("ended").kind, ErrorKind::Lost);
    }
}

/// Names the folder and the driver when this binary runs as a worker.
const WORKER: &str = "TENURE_TEST_WORKER";

type End = fn(Pid);

/// Ways in which a worker ends without a chance to clean up.
const ENDS: [(&str, End); 2] = [
    ("kill -9", |worker| kill_process(worker, Signal::KILL).expect("kill")),
    // As Ctrl-C or a service manager does it: whatever is in the worker's process group is hit too.
    ("a signal to its group", |worker| kill_process_group(worker, Signal::INT).expect("kill")),
];

#[tokio::test]
async fn z_11_nothing_of_the_sandbox_outlives_a_killed_worker() {
    use std::os::unix::process::CommandExt;
    for driver in drivers().await {
        for (how, end) in ENDS {
            let folders = Folders::new();
            let mut worker = std::process::Command::new(std::env::current_exe().expect("own path"))
                .args(["--exact", "takeover::runs_as_a_worker_when_asked"])
                .env(WORKER, format!("{}:{}", driver.name(), folders.path().display()))
                .process_group(0)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .expect("start a worker");
            wait_until(|| folders.workspace().join("out").exists());
            let record = std::fs::read_to_string(folders.path().join("state/incarnation.json")).expect("a record");
            let id =
                record.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id").to_owned();
            assert!(is_marked_alive(&id), "the command carries the mark");
            end(Pid::from_child(&worker));
            worker.wait().expect("reap");
            wait_until(|| !is_marked_alive(&id));
            // And the folder can be taken at once.
            let next = driver.start(Spec { epoch: 2, ..folders.spec() }).await.expect("take over");
            assert_eq!(output(&next, "echo alive").await, "alive\n", "{how}");
            next.stop().await;
        }
    }
}

#[tokio::test]
async fn runs_as_a_worker_when_asked() {
    let Ok(asked) = std::env::var(WORKER) else { return };
    let (name, folder) = asked.split_once(':').expect("a driver and a folder");
    let driver = all().into_iter().find(|driver| driver.name() == name).expect("a driver");
    let folder = std::path::Path::new(folder);
    let spec = Spec { epoch: 1, ..Spec::new(folder.join("workspace"), folder.join("state"), "sesn_test") };
    let sandbox = driver.start(spec).await.expect("start");
    run(&sandbox, "(setsid sh -c 'while :; do echo x > out; sleep 0.01; done' &); sleep 1000").await;
}

fn is_marked_alive(id: &str) -> bool {
    std::fs::read_dir("/proc").expect("proc").flatten().any(|entry| {
        std::fs::read(entry.path().join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(id))
    })
}

fn wait_until(done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !done() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
}
