//! The host's side of a running sandbox: starts the launcher, speaks to it, ends it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc as thread_mpsc};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cgroup::Groups;
use crate::port::{
    COMMAND_BYTES, Error, ErrorKind, Exec, FILE_BYTES, FILE_TIMEOUT, FileOp, FileReply, Guarantees, Incarnation,
    Network, Outcome, Process, Spec, Status,
};
use crate::wire::{self, FileHead, Setup, ToGuest, ToHost};
use crate::{hint, spool, usage};

/// Requests that wait for the launcher's socket.
const QUEUE: usize = 256;
/// Time that a launcher gets to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that the launcher gets, beyond a command's limit, to report its end.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);
/// Output logs that are kept for one session.
const LOGS: usize = 200;
/// Bytes of output logs that are kept for one session.
const LOGS_BYTES: u64 = 512 * 1024 * 1024;

/// Which program becomes the launcher.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the last one is usually [`crate::LAUNCHER_ARGUMENT`].
    pub arguments: Vec<String>,
}

impl Default for Launcher {
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![crate::LAUNCHER_ARGUMENT.to_owned()] }
    }
}

/// How a command ended, what outlives it, and what else is to be said.
type Ending = (Status, Vec<Process>, Vec<String>);

/// Replies that somebody waits for.
#[derive(Default)]
struct Waiting {
    commands: BTreeMap<u64, oneshot::Sender<Ending>>,
    files: BTreeMap<u64, oneshot::Sender<(FileHead, Vec<u8>)>>,
    lists: BTreeMap<u64, oneshot::Sender<Vec<Process>>>,
    restarts: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A frame on its way to the launcher.
struct Outgoing {
    frame: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

/// A running sandbox of any driver.
pub(crate) struct Running {
    id: String,
    driver: &'static str,
    guarantees: Guarantees,
    spec: Spec,
    logs: PathBuf,
    groups: Groups,
    outgoing: mpsc::Sender<Outgoing>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    ended: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
}

/// What a launcher reported when it was ready.
pub(crate) struct Started {
    pub(crate) stream: StdStream,
    pub(crate) child: Child,
    pub(crate) landlock_abi: i32,
}

/// Starts a launcher and waits until it serves.
///
/// Blocking; the child is a child of one thread that lives as long as the process, because the
/// death signal follows the thread.
pub(crate) fn launch(launcher: &Launcher, setup: &Setup, lock: &OwnedFd) -> Result<Started, Error> {
    let io_error = |what: &str, error: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("{what}: {error}"));
    let (ours, theirs) = StdStream::pair().map_err(|error| io_error("make a socket pair", &error))?;
    let mut child = spawn(launcher.clone(), theirs.into()).map_err(|error| io_error("start the launcher", &error))?;
    let frame = wire::encode(&ToGuest::Setup(Box::new(setup.clone())), &[]);
    let answer = ours
        .set_read_timeout(Some(START_TIMEOUT))
        .and_then(|()| send_blocking(&ours, &frame, lock))
        .and_then(|()| receive_blocking(&ours));
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            // It is of no use any more, and it may hang.
            let _ = child.kill();
            let _ = child.wait();
            return Err(io_error("wait for the launcher", &error));
        }
    };
    match answer {
        ToHost::Ready { landlock_abi } => {
            ours.set_read_timeout(None)
                .and_then(|()| ours.set_nonblocking(true))
                .map_err(|error| io_error("prepare the socket", &error))?;
            Ok(Started { stream: ours, child, landlock_abi })
        }
        ToHost::Failed { kind, message } => {
            drop(ours);
            let _ = child.wait();
            Err(Error::new(kind, message))
        }
        ToHost::Exited { .. } | ToHost::File { .. } | ToHost::Processes { .. } | ToHost::Restarted { .. } => {
            let _ = child.kill();
            let _ = child.wait();
            Err(io_error("wait for the launcher", &"an unexpected answer"))
        }
    }
}

type Spawn = (Launcher, OwnedFd, thread_mpsc::Sender<io::Result<Child>>);

fn spawn(launcher: Launcher, socket: OwnedFd) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<thread_mpsc::Sender<Spawn>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = thread_mpsc::channel::<Spawn>();
        std::thread::Builder::new()
            .name("sandbox-spawner".to_owned())
            .spawn(move || {
                for (launcher, socket, answer) in receiver {
                    let child = Command::new(&launcher.program)
                        .args(&launcher.arguments)
                        .env_clear()
                        .current_dir("/")
                        .stdin(Stdio::from(socket))
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        // Ctrl-C and a service manager signal the worker's whole group; the launcher must
                        // live on until it has ended what it started.
                        .process_group(0)
                        .spawn();
                    // The caller waits for the answer.
                    let _ = answer.send(child);
                }
            })
            .expect("a thread can be started when the process starts its first sandbox");
        Mutex::new(sender)
    });
    let (answer, answered) = thread_mpsc::channel();
    let gone = || io::Error::other("the spawner thread has ended");
    spawner.lock().unwrap_or_else(PoisonError::into_inner).send((launcher, socket, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn send_with(socket: impl AsFd, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

fn send_blocking(mut socket: &StdStream, frame: &[u8], lock: &OwnedFd) -> io::Result<()> {
    // The descriptor goes with the eight bytes of the lengths, which the launcher reads alone.
    let (start, rest) = frame.split_at(8);
    let sent = send_with(socket, start, lock)?;
    io::Write::write_all(&mut socket, start.get(sent..).unwrap_or_default())?;
    io::Write::write_all(&mut socket, rest)
}

fn receive_blocking(mut socket: &StdStream) -> io::Result<ToHost> {
    let mut start = [0; 8];
    io::Read::read_exact(&mut socket, &mut start)?;
    let (json, _) = wire::read_rest(&mut socket, start)?;
    wire::decode(&json)
}

impl Running {
    /// Takes a ready launcher over.
    pub(crate) fn new(
        driver: &'static str,
        id: String,
        spec: Spec,
        guarantees: Guarantees,
        groups: Groups,
        started: Started,
    ) -> Result<Arc<Self>, Error> {
        let stream = UnixStream::from_std(started.stream)
            .map_err(|error| Error::new(ErrorKind::Io, format!("register the launcher's socket: {error}")))?;
        let logs = spec.state_dir.join("logs");
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (ended_sender, ended) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let task = Task { waiting: Arc::clone(&waiting), ended: ended_sender, groups: groups.clone() };
        tokio::spawn(task.run(stream, queue, stopped, started.child, spec.state_dir.clone(), id.clone()));
        Ok(Arc::new(Self {
            id,
            driver,
            guarantees,
            spec,
            logs,
            groups,
            outgoing,
            waiting,
            next: AtomicU64::new(1),
            ended,
            stop,
        }))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> Error {
        Error::new(ErrorKind::Lost, format!("sandbox {} has ended", self.id))
    }

    async fn send(&self, frame: &ToGuest, body: &[u8], descriptor: Option<OwnedFd>) -> Result<(), Error> {
        let outgoing = Outgoing { frame: wire::encode(frame, body), descriptor };
        self.outgoing.send(outgoing).await.map_err(|_| self.lost())
    }

    fn log_path(&self, number: u64) -> PathBuf {
        self.logs.join(format!("{}-{number:06}.log", self.id))
    }
}

/// Kills the command of a caller that went away.
struct KillOnDrop<'a> {
    running: &'a Running,
    number: u64,
    armed: bool,
}

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            let frame = wire::encode(&ToGuest::Kill { id: self.number, status: Status::Signalled(9) }, &[]);
            // A full queue or a closed one: the timeout or the end of the sandbox kills it then.
            let _ = self.running.outgoing.try_send(Outgoing { frame, descriptor: None });
            self.running.waiting().commands.remove(&self.number);
        }
    }
}

#[async_trait]
impl Incarnation for Running {
    fn id(&self) -> &str {
        &self.id
    }

    fn driver(&self) -> &'static str {
        self.driver
    }

    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    async fn exec(&self, exec: Exec) -> Result<Outcome, Error> {
        if exec.command.len() > COMMAND_BYTES || exec.command.contains('\0') {
            let message = format!(
                "a command has at most {COMMAND_BYTES} bytes and no null byte; put a longer script into a file"
            );
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let log_path = self.log_path(number);
        make_room(&self.logs)
            .map_err(|error| Error::new(ErrorKind::Io, format!("make room for the output: {error}")))?;
        let (mut spool, output) = spool::start(&log_path, self.spec.limits.output_bytes, exec.output_bytes)
            .map_err(|error| Error::new(ErrorKind::Io, format!("keep the output: {error}")))?;
        let (sender, answer) = oneshot::channel();
        self.waiting().commands.insert(number, sender);
        let mut guard = KillOnDrop { running: self, number, armed: true };
        let memory_kills = self.groups.memory_kills();
        let begun = Instant::now();
        let timeout_ms = u64::try_from(exec.timeout.as_millis()).unwrap_or(u64::MAX).clamp(1, 7 * 24 * 3_600_000);
        let frame = ToGuest::Exec { id: number, command: exec.command, timeout_ms, cwd: exec.cwd };
        self.send(&frame, &[], Some(output)).await?;
        let limit = Duration::from_millis(timeout_ms) + REPORT_TIMEOUT;
        let disk = usage::watch(&self.spec, self.outgoing_kill(number));
        let (status, still_running, mut notes) = tokio::select! {
            answer = tokio::time::timeout(limit, answer) => match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => (Status::Lost, Vec::new(), Vec::new()),
                Err(_) => {
                    // The launcher is stuck: what the command does cannot be known any more.
                    self.stop.send_replace(true);
                    let _ = self.ended.clone().wait_for(|ended| *ended).await;
                    (Status::Lost, Vec::new(), Vec::new())
                }
            },
            never = disk => match never {},
        };
        guard.armed = false;
        let duration = begun.elapsed();
        let kept = spool.settle().await;
        let failed = !matches!(status, Status::Exited(0));
        let by_memory = failed && status != Status::TimedOut && self.groups.memory_kills() > memory_kills;
        let status = if by_memory { Status::KilledByMemory } else { status };
        let tail: Vec<u8> = kept.tail.into();
        let network_hint =
            (failed && self.spec.network == Network::Off).then(|| hint::network(&kept.head, &tail)).flatten();
        // Programs without a network often ask for it, too.
        if network_hint.is_none() {
            notes.extend(hint::question(status, &kept.head, &tail));
        }
        Ok(Outcome {
            status,
            head: kept.head,
            tail,
            total_bytes: kept.total,
            log_path: Some(log_path),
            still_running,
            duration,
            network_hint,
            notes,
        })
    }

    async fn file(&self, op: FileOp) -> Result<FileReply, Error> {
        let body = match &op {
            FileOp::Write { content, .. } if content.len() > FILE_BYTES => {
                return Err(Error::new(ErrorKind::Refused, format!("the content is larger than {FILE_BYTES} bytes")));
            }
            FileOp::Write { content, .. } => content.clone(),
            FileOp::Read { .. }
            | FileOp::ReadLines { .. }
            | FileOp::Edit { .. }
            | FileOp::Glob { .. }
            | FileOp::Grep { .. } => Vec::new(),
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().files.insert(number, sender);
        let timeout_ms = u64::try_from(FILE_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let frame = ToGuest::File { id: number, op, timeout_ms };
        if wire::encode(&frame, &[]).len() > wire::HEAD_BYTES {
            return Err(Error::new(ErrorKind::Refused, "the request is too large"));
        }
        self.send(&frame, &body, None).await?;
        let answer = tokio::time::timeout(FILE_TIMEOUT + REPORT_TIMEOUT, answer).await;
        let (head, body) = answer
            .map_err(|_| Error::new(ErrorKind::TimedOut, "the file operation took too long"))?
            .map_err(|_| self.lost())?;
        match head {
            FileHead::Content { file_bytes, truncated } => {
                Ok(FileReply::Content { bytes: body, file_bytes, truncated })
            }
            FileHead::Written { created } => Ok(FileReply::Written { created }),
            FileHead::Edited { replaced } => Ok(FileReply::Edited { replaced }),
            FileHead::Matches { truncated } => {
                let mut lines: Vec<Vec<u8>> = body.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
                // Each line ends with a null byte, so the last piece is empty.
                lines.pop();
                Ok(FileReply::Matches { lines, truncated })
            }
            FileHead::Failed { kind, message } => Err(Error::new(kind, message)),
        }
    }

    async fn processes(&self) -> Result<Vec<Process>, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().lists.insert(number, sender);
        self.send(&ToGuest::Processes { id: number }, &[], None).await?;
        answer.await.map_err(|_| Running::lost(self))
    }

    async fn restart(&self) -> Result<(), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().restarts.insert(number, sender);
        self.send(&ToGuest::Restart { id: number }, &[], None).await?;
        answer.await.map_err(|_| Running::lost(self))
    }

    async fn stop(&self) {
        self.stop.send_replace(true);
        // An error means that the task has ended, which is what is waited for.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    async fn lost(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

impl Running {
    fn outgoing_kill(&self, number: u64) -> impl Fn() + Send + Sync + 'static {
        let outgoing = self.outgoing.clone();
        move || {
            let frame = wire::encode(&ToGuest::Kill { id: number, status: Status::KilledByDisk }, &[]);
            // A full queue is asked again at the next check.
            let _ = outgoing.try_send(Outgoing { frame, descriptor: None });
        }
    }
}

/// Owns the socket and the launcher process.
struct Task {
    waiting: Arc<Mutex<Waiting>>,
    ended: watch::Sender<bool>,
    groups: Groups,
}

impl Task {
    async fn run(
        self,
        stream: UnixStream,
        queue: mpsc::Receiver<Outgoing>,
        mut stopped: watch::Receiver<bool>,
        mut child: Child,
        state_dir: PathBuf,
        id: String,
    ) {
        let (mut read, write) = stream.into_split();
        tokio::select! {
            _ = self.receive(&mut read) => {}
            () = send(write, queue) => {}
            // An error means that the handle is gone: nobody can use the sandbox any more.
            _ = stopped.wait_for(|stop| *stop) => {}
        }
        drop(read);
        // The closed socket ends the launcher; the kill is for one that does not listen.
        let record = crate::record::read(&state_dir).filter(|record| record.id == id);
        let groups = self.groups.clone();
        let ended = tokio::task::spawn_blocking(move || {
            if let Some(record) = &record {
                crate::takeover::end(record);
            }
            let _ = child.wait();
            groups.remove();
            crate::takeover::forget(&state_dir, &id);
        });
        if let Err(error) = ended.await {
            tracing::error!(%error, "end a sandbox");
        }
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::default();
        self.ended.send_replace(true);
    }

    async fn receive(&self, read: &mut tokio::net::unix::OwnedReadHalf) -> io::Result<()> {
        loop {
            let mut start = [0; 8];
            read.read_exact(&mut start).await?;
            let (head, body) = wire::lengths(start)?;
            let (mut json, mut bytes) = (vec![0; head], vec![0; body]);
            read.read_exact(&mut json).await?;
            read.read_exact(&mut bytes).await?;
            self.deliver(wire::decode(&json)?, bytes);
        }
    }

    fn deliver(&self, frame: ToHost, body: Vec<u8>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // A reply that nobody waits for any more is dropped.
        let _ = match frame {
            ToHost::Ready { .. } | ToHost::Failed { .. } => Some(()),
            ToHost::Exited { id, status, still_running, notes } => {
                waiting.commands.remove(&id).and_then(|sender| sender.send((status, still_running, notes)).ok())
            }
            ToHost::File { id, reply } => waiting.files.remove(&id).and_then(|sender| sender.send((reply, body)).ok()),
            ToHost::Processes { id, list } => waiting.lists.remove(&id).and_then(|sender| sender.send(list).ok()),
            ToHost::Restarted { id } => waiting.restarts.remove(&id).and_then(|sender| sender.send(()).ok()),
        };
    }
}

async fn send(mut write: tokio::net::unix::OwnedWriteHalf, mut queue: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing { frame, descriptor }) = queue.recv().await {
        let mut sent = 0;
        if let Some(descriptor) = descriptor {
            let start = frame.get(..8).unwrap_or_default();
            let stream: &UnixStream = write.as_ref();
            sent = loop {
                if stream.writable().await.is_err() {
                    return;
                }
                match stream.try_io(Interest::WRITABLE, || send_with(stream, start, &descriptor)) {
                    Ok(sent) => break sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            };
        }
        if write.write_all(frame.get(sent..).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}

/// Removes the oldest logs until one more fits.
fn make_room(logs: &Path) -> io::Result<()> {
    fs::create_dir_all(logs)?;
    let mut list: Vec<(std::time::SystemTime, u64, PathBuf)> = fs::read_dir(logs)?
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    list.sort();
    let mut bytes: u64 = list.iter().map(|(_, len, _)| len).sum();
    let mut count = list.len();
    for (_, len, path) in &list {
        if count < LOGS && bytes <= LOGS_BYTES {
            break;
        }
        fs::remove_file(path)?;
        count -= 1;
        bytes -= len;
    }
    Ok(())
}
