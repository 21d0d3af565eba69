//! The launcher's loop: takes requests, starts commands, reaps, kills trees.
//!
//! Each command has a keeper, a forked process that is the reaper of everything the command starts,
//! also of what calls setsid. A tree is therefore always "what descends from the keeper", and a kill
//! finds all of it. What loses its keeper (a command may kill it) descends from the launcher and
//! is ended with the next kill.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::shell::{self, Shell};
use super::{files, table};
use crate::port::{ErrorKind, Status};
use crate::wire::{self, FileHead, Mode, Setup, ToGuest, ToHost};

/// Rounds of looking for survivors before a kill gives up.
const KILL_ROUNDS: u32 = 2_000;
/// How often limits without a cgroup are checked.
const WATCH: Duration = Duration::from_millis(200);
/// Most commands and file operations that run at once.
const RUNNING: usize = 64;
/// Longest reply of a file operation.
const REPLY_BYTES: usize = wire::BODY_BYTES + wire::HEAD_BYTES;

/// The launcher's end of the socket.
pub(super) struct Link {
    socket: Option<File>,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket: Some(socket.into()) }
    }

    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    fn socket(&mut self) -> io::Result<&mut File> {
        self.socket.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(super) fn send(&mut self, head: &ToHost, body: &[u8]) -> io::Result<()> {
        self.socket()?.write_all(&wire::encode(head, body))
    }

    /// Waits for a frame, with the descriptor that came with it.
    pub(super) fn receive(&mut self) -> io::Result<(ToGuest, Vec<u8>, Option<OwnedFd>)> {
        let socket = self.socket()?;
        let mut start = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&*socket, &mut [IoSliceMut::new(&mut start)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptor = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.last();
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = start.get_mut(received.bytes..).unwrap_or_default();
        socket.read_exact(rest)?;
        let (json, body) = wire::read_rest(socket, start)?;
        Ok((wire::decode(&json)?, body, descriptor))
    }
}

/// A command whose shell has not ended yet.
struct Command {
    keeper: i32,
    status: File,
    state: File,
    deadline: Instant,
}

/// A file operation in its own process.
struct Operation {
    pid: i32,
    reply: File,
    bytes: Vec<u8>,
    deadline: Instant,
}

struct Supervisor<'a> {
    setup: &'a Setup,
    link: &'a mut Link,
    signals: OwnedFd,
    shell: Shell,
    commands: BTreeMap<u64, Command>,
    operations: BTreeMap<u64, Operation>,
    /// Keepers of commands, also of those whose shell has ended.
    keepers: BTreeMap<u64, i32>,
    watched: Instant,
}

/// Serves the host until its socket closes, then ends everything.
pub(super) fn run(setup: &Setup, link: &mut Link, landlock_abi: i32) -> io::Result<()> {
    let signals = crate::sys::child_signal_fd()?;
    link.send(&ToHost::Ready { landlock_abi }, &[])?;
    let mut supervisor = Supervisor {
        setup,
        link,
        signals,
        shell: Shell::new(setup),
        commands: BTreeMap::new(),
        operations: BTreeMap::new(),
        keepers: BTreeMap::new(),
        watched: Instant::now(),
    };
    let result = supervisor.serve();
    // In a pid namespace the kernel would do it; without one, this is the only place.
    supervisor.kill_all();
    result
}

/// What became ready.
enum Ready {
    Host,
    Child,
    Shell(u64),
    Reply(u64),
}

impl Supervisor<'_> {
    fn serve(&mut self) -> io::Result<()> {
        loop {
            for ready in self.wait()? {
                match ready {
                    Ready::Host => match self.link.receive() {
                        Ok((frame, body, descriptor)) => self.handle(frame, body, descriptor)?,
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                        Err(error) => return Err(error),
                    },
                    Ready::Child => self.reap(),
                    Ready::Shell(id) => self.shell_ended(id)?,
                    Ready::Reply(id) => self.read_reply(id)?,
                }
            }
            self.end_overdue()?;
            self.watch()?;
        }
    }

    fn wait(&mut self) -> io::Result<Vec<Ready>> {
        let socket = self.link.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut fds = vec![PollFd::new(socket, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        let mut meaning = vec![Ready::Host, Ready::Child];
        for (id, command) in &self.commands {
            fds.push(PollFd::from_borrowed_fd(command.status.as_fd(), PollFlags::IN));
            meaning.push(Ready::Shell(*id));
        }
        for (id, operation) in &self.operations {
            fds.push(PollFd::from_borrowed_fd(operation.reply.as_fd(), PollFlags::IN));
            meaning.push(Ready::Reply(*id));
        }
        let timeout = self
            .next_deadline()
            .map(|wait| Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().map(|fd| !fd.revents().is_empty()).zip(meaning);
        Ok(ready.filter_map(|(ready, meaning)| ready.then_some(meaning)).collect())
    }

    fn next_deadline(&self) -> Option<Duration> {
        let commands = self.commands.values().map(|command| command.deadline);
        let operations = self.operations.values().map(|operation| operation.deadline);
        let watch = self.watches().then(|| self.watched + WATCH);
        let next = commands.chain(operations).chain(watch).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn handle(&mut self, frame: ToGuest, body: Vec<u8>, descriptor: Option<OwnedFd>) -> io::Result<()> {
        match frame {
            ToGuest::Setup(_) => Err(io::ErrorKind::InvalidData.into()),
            ToGuest::Exec { id, command, timeout_ms, cwd } => {
                let output = descriptor.ok_or(io::ErrorKind::InvalidData)?;
                self.exec(id, &command, Duration::from_millis(timeout_ms), cwd, output)
            }
            ToGuest::File { id, op, timeout_ms } => {
                match files::fork(self.setup, op, body, RUNNING.saturating_sub(self.operations.len())) {
                    Ok((pid, reply)) => {
                        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
                        self.operations.insert(id, Operation { pid, reply, bytes: Vec::new(), deadline });
                        Ok(())
                    }
                    Err(error) => self.fail_file(id, ErrorKind::Io, format!("start the file operation: {error}")),
                }
            }
            ToGuest::Processes { id } => {
                let list = table::describe(&self.living());
                self.link.send(&ToHost::Processes { id, list }, &[])
            }
            ToGuest::Restart { id } => {
                self.kill_all();
                self.shell = Shell::new(self.setup);
                for id in self.commands.keys().copied().collect::<Vec<_>>() {
                    self.finish(id, Status::Signalled(9))?;
                }
                self.link.send(&ToHost::Restarted { id }, &[])
            }
            ToGuest::Kill { id, status } => {
                if self.commands.contains_key(&id) {
                    self.kill_command(id);
                    self.finish(id, status)?;
                }
                Ok(())
            }
        }
    }

    fn exec(
        &mut self,
        id: u64,
        command: &str,
        timeout: Duration,
        cwd: Option<String>,
        output: OwnedFd,
    ) -> io::Result<()> {
        let started = if self.commands.len() < RUNNING {
            shell::start(self.setup, &mut self.shell, command, cwd, &output)
        } else {
            Err(io::Error::other(format!("{RUNNING} commands are running already")))
        };
        match started {
            Ok(started) => {
                self.keepers.insert(id, started.keeper);
                let deadline = Instant::now() + timeout;
                let (keeper, status, state) = (started.keeper, started.status, started.state);
                self.commands.insert(id, Command { keeper, status, state, deadline });
                Ok(())
            }
            Err(error) => {
                // No shell, no output: the reason is all there is to say.
                let note = format!("the command could not be started: {error}");
                let status = Status::Exited(shell::CANNOT_START);
                self.link.send(&ToHost::Exited { id, status, still_running: Vec::new(), notes: vec![note] }, &[])
            }
        }
    }

    fn shell_ended(&mut self, id: u64) -> io::Result<()> {
        let Some(command) = self.commands.get_mut(&id) else { return Ok(()) };
        let mut report = [0; 4];
        let status = match command.status.read_exact(&mut report) {
            Ok(()) => shell::status(i32::from_le_bytes(report)),
            // The keeper itself was killed.
            Err(_) => Status::Signalled(9),
        };
        self.finish(id, status)
    }

    fn finish(&mut self, id: u64, status: Status) -> io::Result<()> {
        let Some(mut command) = self.commands.remove(&id) else { return Ok(()) };
        let mut notes = std::mem::take(&mut self.shell.notes);
        match status {
            Status::Exited(_) | Status::Signalled(_) => self.shell.take_state(&mut command.state),
            Status::TimedOut | Status::KilledByMemory | Status::KilledByDisk | Status::Lost => {}
        }
        notes.append(&mut self.shell.notes);
        self.reap();
        let still_running = table::describe(&self.living());
        self.link.send(&ToHost::Exited { id, status, still_running, notes }, &[])
    }

    fn end_overdue(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let overdue: Vec<u64> =
            self.commands.iter().filter(|(_, command)| command.deadline <= now).map(|(id, _)| *id).collect();
        for id in overdue {
            self.kill_command(id);
            self.finish(id, Status::TimedOut)?;
        }
        let overdue: Vec<u64> =
            self.operations.iter().filter(|(_, operation)| operation.deadline <= now).map(|(id, _)| *id).collect();
        for id in overdue {
            if let Some(operation) = self.operations.remove(&id) {
                kill(operation.pid);
            }
            self.fail_file(id, ErrorKind::TimedOut, "the file operation took too long".to_owned())?;
        }
        Ok(())
    }

    fn read_reply(&mut self, id: u64) -> io::Result<()> {
        let Some(operation) = self.operations.get_mut(&id) else { return Ok(()) };
        let mut chunk = vec![0; 64 * 1024];
        let count = operation.reply.read(&mut chunk)?;
        operation.bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if count > 0 && operation.bytes.len() <= REPLY_BYTES {
            return Ok(());
        }
        let Some(operation) = self.operations.remove(&id) else { return Ok(()) };
        kill(operation.pid);
        match files::reply(&operation.bytes) {
            Ok((reply, body)) => self.link.send(&ToHost::File { id, reply }, &body),
            Err(_) => self.fail_file(id, ErrorKind::Io, "the file operation was killed".to_owned()),
        }
    }

    fn fail_file(&mut self, id: u64, kind: ErrorKind, message: String) -> io::Result<()> {
        self.link.send(&ToHost::File { id, reply: FileHead::Failed { kind, message } }, &[])
    }

    fn reap(&mut self) {
        let mut buffer = [0; 4096];
        // The descriptor only wakes the loop; what has ended is asked for below.
        let _ = rustix::io::read(&self.signals, &mut buffer);
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            self.keepers.retain(|_, keeper| *keeper != pid);
        }
    }

    /// Processes of commands: all that descends from this one, without keepers and file operations.
    fn living(&self) -> Vec<table::Row> {
        let rows = table::descendants(&table::rows(), &[std::process::id().cast_signed()]);
        let ours = |pid: i32| {
            self.keepers.values().any(|keeper| *keeper == pid) || self.operations.values().any(|op| op.pid == pid)
        };
        rows.into_iter().filter(|row| !row.zombie && !ours(row.pid)).collect()
    }

    /// Kills the tree of one command, and what has lost its keeper.
    fn kill_command(&mut self, id: u64) {
        let Some(keeper) = self.commands.get(&id).map(|command| command.keeper) else { return };
        let other: Vec<i32> = self.keepers.iter().filter(|(other, _)| **other != id).map(|(_, pid)| *pid).collect();
        let operations: Vec<i32> = self.operations.values().map(|operation| operation.pid).collect();
        self.kill_until_gone(|rows| {
            let spared: Vec<i32> = other.iter().chain(&operations).copied().collect();
            let kept: Vec<i32> = table::descendants(rows, &spared).iter().map(|row| row.pid).chain(spared).collect();
            let mut tree = table::descendants(rows, &[std::process::id().cast_signed()]);
            tree.retain(|row| !kept.contains(&row.pid));
            tree
        });
        kill(keeper);
    }

    fn kill_all(&mut self) {
        self.kill_until_gone(|rows| table::descendants(rows, &[std::process::id().cast_signed()]));
        self.keepers.clear();
    }

    /// Stops everything first, so that nothing can fork while it is being killed.
    fn kill_until_gone(&mut self, select: impl Fn(&[table::Row]) -> Vec<table::Row>) {
        for round in 0..KILL_ROUNDS {
            let targets = select(&table::rows());
            let living: Vec<&table::Row> = targets.iter().filter(|row| !row.zombie).collect();
            if living.is_empty() {
                break;
            }
            if round == 0 {
                for row in &living {
                    signal(row.pid, Signal::STOP);
                }
            }
            for row in &living {
                kill(row.pid);
            }
            self.reap();
            std::thread::yield_now();
        }
        self.reap();
    }

    fn watches(&self) -> bool {
        !(self.setup.memory_capped && (self.setup.processes_capped || self.setup.mode == Mode::Namespace))
            && !self.keepers.is_empty()
    }

    /// Checks the caps that no cgroup enforces.
    fn watch(&mut self) -> io::Result<()> {
        if !self.watches() || self.watched.elapsed() < WATCH {
            return Ok(());
        }
        self.watched = Instant::now();
        let rows = self.living();
        let memory = rows.iter().map(|row| row.resident_pages).sum::<u64>() * rustix::param::page_size() as u64;
        let threads = rows.iter().map(|row| row.threads).sum::<u64>();
        let limits = &self.setup.limits;
        let too_much_memory = !self.setup.memory_capped && memory > limits.memory_bytes;
        let too_many = !self.setup.processes_capped && threads > limits.processes.into();
        if !too_much_memory && !too_many {
            return Ok(());
        }
        // Which command is to blame cannot be known for sure, so all end.
        self.kill_all();
        let status = if too_much_memory { Status::KilledByMemory } else { Status::Signalled(9) };
        if too_many {
            let note = format!("all processes were ended: more than {} at once", limits.processes);
            self.shell.notes.push(note);
        }
        for id in self.commands.keys().copied().collect::<Vec<_>>() {
            self.finish(id, status)?;
        }
        Ok(())
    }
}

fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended already, which is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

/// Descriptors that a forked child must not keep are closed by number.
pub(super) fn number(fd: &impl AsRawFd) -> i32 {
    fd.as_raw_fd()
}
