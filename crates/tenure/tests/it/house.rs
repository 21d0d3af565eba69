//! A data folder with processes of the built binary, and nothing of the person who runs the tests.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// A process that says nothing for so long is stuck: it is killed, and the test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Exit code; -1 for a signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    /// Without the lines about progress, which come or not as the machine is slow or fast.
    pub(crate) stderr: String,
    /// What was waited for longer than a second.
    pub(crate) progress: Vec<String>,
}

impl Ran {
    /// The output, if the command succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// The error, if the command failed with this exit code and printed no result.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:#?}");
        assert_eq!(self.stdout, "", "a failed command has no result: {self:#?}");
        self.stderr
    }

    /// The lines of result, each one JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        self.stdout.lines().map(read).collect()
    }

    /// The only line of result.
    #[track_caller]
    pub(crate) fn one(&self) -> Value {
        let mut lines = self.json();
        assert_eq!(lines.len(), 1, "{self:#?}");
        lines.remove(0)
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let said = String::from_utf8(output.stderr).unwrap();
        let (progress, stderr): (Vec<&str>, Vec<&str>) =
            said.split_inclusive('\n').partition(|line| line.ends_with(" …\n"));
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: stderr.concat(),
            progress: progress.into_iter().map(|line| line.trim_end().to_owned()).collect(),
        }
    }
}

/// A folder of its own, in which the binary runs.
pub(crate) struct House {
    folder: TempDir,
    server: Option<Process>,
    workers: Vec<Process>,
    /// Where the server listened last.
    address: String,
}

/// Settings of all houses: short times, so that takeovers do not take long.
const CONFIG: &str = r#"
[providers.script]
dialect = "script"
scenarios = "scenarios"

[worker]
grace_seconds = 2

[node]
heartbeat_seconds = 1
dead_after_seconds = 3
"#;

impl House {
    /// A house in which nothing runs yet.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::Builder::new().prefix("tenure-it-").tempdir().unwrap();
        fs::create_dir(folder.path().join("scenarios")).unwrap();
        fs::write(folder.path().join("tenure.toml"), CONFIG).unwrap();
        Self { folder, server: None, workers: Vec::new(), address: "127.0.0.1:0".to_owned() }
    }

    /// A house with `tenure dev`.
    pub(crate) fn dev() -> Self {
        let mut house = Self::empty();
        house.start_server(&["dev"]);
        house
    }

    /// A house with a server and a worker that can be killed alone.
    pub(crate) fn apart() -> Self {
        let mut house = Self::empty();
        house.start_server(&["serve"]);
        house.start_worker();
        house
    }

    /// Adds a scenario for the model `script/NAME`.
    pub(crate) fn scenario(self, name: &str, text: &str) -> Self {
        fs::write(self.path("scenarios").join(format!("{name}.toml")), text).unwrap();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A command of the binary in this folder, with an environment of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.folder.path()).env("TENURE_DATA", self.path("data")).env("TZ", "UTC");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments))
    }

    /// Runs a command with text on its standard input.
    #[track_caller]
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        self.write("input", input);
        let mut command = self.command(arguments);
        command.stdin(fs::File::open(self.path("input")).unwrap());
        finish(command)
    }

    /// Starts a session that nobody follows, and returns its id.
    #[track_caller]
    pub(crate) fn detached(&self, model: &str, prompt: &str) -> String {
        let ran = self.run(&["run", "--detach", "--model", model, prompt]).ok();
        ran.stdout.trim().to_owned()
    }

    /// Starts a long-running command and reads what it prints, line by line.
    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        Process::start(self.command(arguments))
    }

    /// Starts `dev` or `serve`, where it listened before if it did, and waits until it is ready.
    pub(crate) fn start_server(&mut self, arguments: &[&str]) {
        let more = ["--listen", self.address.as_str(), "--json"];
        let all: Vec<&str> = arguments.iter().copied().chain(more).collect();
        let mut server = self.start(&all);
        let line = server.line().expect("the server ends only when it is asked to");
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["event"], "ready");
        self.address = ready["url"].as_str().unwrap().trim_start_matches("http://").to_owned();
        self.server = Some(server);
    }

    pub(crate) fn start_worker(&mut self) {
        let mut worker = self.start(&["worker", "--json"]);
        worker.line().expect("the worker ends only when it is asked to");
        self.workers.push(worker);
    }

    pub(crate) fn server(&mut self) -> &mut Process {
        self.server.as_mut().expect("a server was started")
    }

    pub(crate) fn take_server(&mut self) -> Process {
        self.server.take().expect("a server was started")
    }

    pub(crate) fn kill_server(&mut self) {
        self.server.take().expect("a server was started").kill();
    }

    /// The worker that `dev` keeps alive.
    pub(crate) fn worker_of_dev(&mut self) -> u32 {
        let server = self.server().id();
        let mut found = None;
        until(|| {
            let threads = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
            let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
            found = children.collect::<String>().split_whitespace().next().and_then(|pid| pid.parse().ok());
            found.is_some()
        });
        found.unwrap()
    }

    /// Where the server listens, also after it was started again.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn kill_a_worker(&mut self, number: usize) {
        self.workers.remove(number).kill();
    }

    pub(crate) fn kill_workers(&mut self) {
        self.workers.drain(..).for_each(Process::kill);
    }

    /// Follows a session until an event is the wanted one; returns all events until then.
    #[track_caller]
    pub(crate) fn until(&self, session: &str, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut follower = self.start(&["logs", session, "--follow", "--json"]);
        let mut events = Vec::new();
        while let Some(line) = follower.line() {
            let event: Value = serde_json::from_str(&line).unwrap();
            events.push(event);
            if events.last().is_some_and(&is_wanted) {
                follower.kill();
                return events;
            }
        }
        panic!("the event never came: {events:#?}");
    }

    /// Waits until the turn of a session ends, in whatever way.
    #[track_caller]
    pub(crate) fn until_idle(&self, session: &str) -> Vec<Value> {
        self.until(session, |event| event["type"] == "session.status_idle")
    }

    /// A file in the workspace of a session.
    pub(crate) fn in_workspace(&self, session: &str, name: &str) -> PathBuf {
        self.path("data").join("workspaces").join(session).join(name)
    }

    /// Waits until a command of a session has made a file, which says that it runs.
    pub(crate) fn until_file(&self, session: &str, name: &str) {
        let path = self.in_workspace(session, name);
        until(|| path.exists());
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.workers.drain(..).for_each(Process::kill);
        if let Some(server) = self.server.take() {
            // In order, so that a worker of `dev` is gone before its folder is.
            server.signal(rustix::process::Signal::TERM);
            server.code();
        }
    }
}

/// Looks again and again until something holds; the kernel runs others in between.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it never came to be");
        std::thread::yield_now();
    }
}

/// A process that is killed when the test is done with it.
pub(crate) struct Process {
    child: Option<Child>,
    lines: mpsc::Receiver<String>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        // What long-running commands log would mix with the output of the tests; failures show the rest.
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || forward(out, &sender));
        Self { child: Some(child), lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The next line of output; nothing when the output has ended.
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the process said nothing for {PATIENCE:?}"),
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        send(signal, self.id());
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Waits for the end.
    pub(crate) fn code(mut self) -> i32 {
        self.child.take().unwrap().wait().unwrap().code().unwrap_or(-1)
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn end(self) -> i32 {
        self.signal(rustix::process::Signal::TERM);
        self.code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a command to its end, which must come in time.
#[track_caller]
pub(crate) fn finish(mut command: Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (is_done, done) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let is_late = done.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if is_late {
            send(rustix::process::Signal::KILL, pid);
        }
        is_late
    });
    let output = child.wait_with_output().unwrap();
    drop(is_done);
    assert!(!watch.join().unwrap(), "{command:?} did not end within {PATIENCE:?}: {output:?}");
    output.into()
}

pub(crate) fn send(signal: rustix::process::Signal, pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether a process lives; one that nobody has waited for yet does not.
pub(crate) fn is_running(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn forward(out: ChildStdout, sender: &mpsc::Sender<String>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            return;
        }
    }
}

/// Text with what differs from run to run replaced: ids, tails of these sessions, times and spans.
pub(crate) fn redacted(text: &str, sessions: &[&str]) -> String {
    let mut text = text.to_owned();
    for session in sessions {
        text = text.replace(session, "SESSION").replace(&session[session.len() - 6..], "TAIL");
    }
    for (pattern, with) in [
        (r"(sevt|agent|env|call|node)_[0-9a-z]{26}", "${1}_ID"),
        (r"req_[0-9a-z]+", "req_ID"),
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"\b\d+(\.\d+)?s\b", "SPAN"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
    ] {
        text = regex::Regex::new(pattern).unwrap().replace_all(&text, with).into_owned();
    }
    // Spans have different widths, and columns follow them.
    regex::Regex::new(r"SPAN +").unwrap().replace_all(&text, "SPAN  ").into_owned()
}

/// Runs a command whose output is a terminal, and returns the bytes that the terminal got.
pub(crate) fn on_a_terminal(mut command: Command) -> Vec<u8> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let here = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&here).unwrap();
    unlockpt(&here).unwrap();
    let name = ptsname(&here, Vec::new()).unwrap();
    let there =
        rustix::fs::open(&name, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY, rustix::fs::Mode::empty());
    let there = there.unwrap();
    let mut child = command.stdout(there.try_clone().unwrap()).stderr(there).spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    // The end of the last writer is an error here, not an end.
    let _ = fs::File::from(here).read_to_end(&mut shown);
    child.wait().unwrap();
    shown
}
