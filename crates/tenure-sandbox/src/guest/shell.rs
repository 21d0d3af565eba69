//! Runs a command in a shell that seems to persist.
//!
//! Each command gets a fresh bash, so that a broken or killed shell costs nothing. What persists is
//! carried over by hand: at its end the shell writes its working directory and its exported
//! environment to a descriptor, and the next one starts with them. Aliases, functions that are not
//! exported and shell options do not persist.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode as FileMode, OFlags};

use super::{confine, root, supervise::number};
use crate::port::Status;
use crate::sys::{self, Fork};
use crate::wire::{Mode, Setup};

/// Exit code of a command whose shell could not be started.
pub(super) const CANNOT_START: i32 = 126;
/// Where the shell writes its state; high, so that scripts do not meet it.
const STATE_FD: RawFd = 199;
/// Longest state that is carried over.
const STATE_BYTES: u64 = 256 * 1024;
/// How much rather the kernel ends a command than the launcher when memory is short.
const OOM_SCORE: &str = "500";
/// Marks every process of an incarnation where no pid namespace does.
pub(crate) const MARK: &str = "TENURE_INCARNATION";

/// The trap runs at the end of the shell, whatever ends it but a signal, and keeps its exit code.
const SCRIPT: &str = r#"trap '{ builtin printf "%s\0" "$PWD"; /usr/bin/env -0; } >&199 2>/dev/null' EXIT
eval "$1""#;

/// What one shell hands to the next.
pub(super) struct Shell {
    directory: Vec<u8>,
    environment: Vec<Vec<u8>>,
    workspace: Vec<u8>,
    pub(super) notes: Vec<String>,
}

/// A command that has been started.
pub(super) struct Started {
    pub(super) keeper: i32,
    /// Carries the shell's wait status, four bytes.
    pub(super) status: File,
    pub(super) state: File,
}

impl Shell {
    pub(super) fn new(setup: &Setup) -> Self {
        let workspace = inside_workspace(setup).into_bytes();
        Self { directory: workspace.clone(), environment: first_environment(setup), workspace, notes: Vec::new() }
    }

    /// Takes over what the shell wrote at its end.
    pub(super) fn take_state(&mut self, state: &mut File) {
        let mut bytes = Vec::new();
        let read = state.seek(SeekFrom::Start(0)).and_then(|_| state.take(STATE_BYTES + 1).read_to_end(&mut bytes));
        if read.is_err() || bytes.is_empty() {
            return;
        }
        if bytes.len() as u64 > STATE_BYTES {
            self.notes.push(format!("the environment is larger than {STATE_BYTES} bytes and was not kept"));
            return;
        }
        let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return };
        let (directory, rest) = bytes.split_at(end);
        if directory.starts_with(b"/") {
            self.directory = directory.to_vec();
        }
        let variables: Vec<Vec<u8>> = rest
            .get(1..)
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .filter(|variable| variable.contains(&b'=') && !variable.starts_with(b"_="))
            .map(<[u8]>::to_vec)
            .collect();
        if !variables.is_empty() {
            self.environment = variables;
        }
    }

    /// The directory for the next command; falls back to the workspace when it is gone.
    fn directory(&mut self, asked: Option<String>) -> Vec<u8> {
        let wanted = asked.map_or_else(|| self.directory.clone(), String::into_bytes);
        let wanted = if wanted.starts_with(b"/") { wanted } else { [&self.workspace[..], b"/", &wanted].concat() };
        if Path::new(OsStr::from_bytes(&wanted)).is_dir() {
            return wanted;
        }
        self.notes.push(format!(
            "the working directory {} does not exist; the command ran in {}",
            String::from_utf8_lossy(&wanted),
            String::from_utf8_lossy(&self.workspace),
        ));
        self.workspace.clone()
    }
}

/// Starts a keeper that runs the command.
pub(super) fn start(
    setup: &Setup,
    shell: &mut Shell,
    command: &str,
    cwd: Option<String>,
    output: &OwnedFd,
) -> io::Result<Started> {
    let state = rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC)?;
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let directory = shell.directory(cwd);
    let text = |text: &[u8]| CString::new(text).map_err(|_| io::Error::other("the command contains a null byte"));
    let arguments = ["bash", "--noprofile", "--norc", "-c", SCRIPT, "bash", command]
        .iter()
        .map(|argument| text(argument.as_bytes()))
        .collect::<io::Result<Vec<_>>>()?;
    let environment = shell.environment.iter().map(|variable| text(variable)).collect::<io::Result<Vec<_>>>()?;
    match sys::fork()? {
        Fork::Parent(keeper) => Ok(Started { keeper, status: read.into(), state: state.into() }),
        Fork::Child => {
            let child = Child { setup, directory: &directory, arguments: &arguments, environment: &environment };
            keep(&child, &state, &File::from(write), output)
        }
    }
}

struct Child<'a> {
    setup: &'a Setup,
    directory: &'a [u8],
    arguments: &'a [CString],
    environment: &'a [CString],
}

/// The keeper: starts the shell, reports its end, then reaps until nothing is left.
fn keep(child: &Child<'_>, state: &OwnedFd, status: &File, output: &OwnedFd) -> ! {
    sys::close_all_except(&[number(state), number(status), number(output)]);
    if rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_err() {
        sys::exit(1);
    }
    let shell = match sys::fork() {
        Ok(Fork::Child) => become_shell(child, state, output),
        Ok(Fork::Parent(pid)) => pid,
        Err(error) => {
            say(output, &format!("bash: fork: {error}\n"));
            report(status, CANNOT_START << 8);
            sys::exit(1)
        }
    };
    sys::close_all_except(&[number(status)]);
    let mut reported = false;
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(Some((pid, ended))) if pid.as_raw_nonzero().get() == shell && !reported => {
                reported = true;
                report(status, ended.as_raw());
                sys::close_all_except(&[]);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No child is left.
            Err(_) => sys::exit(0),
        }
    }
}

fn report(mut status: &File, raw: i32) {
    // If the launcher is gone, nobody needs the report.
    let _ = status.write_all(&raw.to_le_bytes());
}

fn say(output: &OwnedFd, text: &str) {
    // The output is the only place where a failure before exec can be told.
    let _ = rustix::io::write(output, text.as_bytes());
}

fn become_shell(child: &Child<'_>, state: &OwnedFd, output: &OwnedFd) -> ! {
    let error = prepare(child, state, output).map_or_else(
        |error| error,
        |()| {
            sys::reset_signals();
            let bash = if Path::new("/bin/bash").exists() { c"/bin/bash" } else { c"/usr/bin/bash" };
            sys::execve(bash, child.arguments, child.environment)
        },
    );
    say(output, &format!("bash could not be started: {error}\n"));
    sys::exit(CANNOT_START)
}

fn prepare(child: &Child<'_>, state: &OwnedFd, output: &OwnedFd) -> io::Result<()> {
    // A session of its own: no controlling terminal that could be asked for a password.
    rustix::process::setsid()?;
    rustix::process::chdir(OsStr::from_bytes(child.directory))?;
    // Best effort: only makes the kernel's choice better when memory is short.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY, FileMode::empty())?;
    sys::dup_to(state.as_raw_fd(), STATE_FD)?;
    // The output may itself have a number below 3.
    let output = rustix::io::fcntl_dupfd_cloexec(output, 3)?;
    sys::dup_to(null.as_raw_fd(), 0)?;
    sys::dup_to(output.as_raw_fd(), 1)?;
    sys::dup_to(output.as_raw_fd(), 2)?;
    sys::close_all_except(&[0, 1, 2, STATE_FD]);
    std::mem::forget((null, output));
    confine::command_limits(child.setup)
}

/// Turns a wait status into ours.
pub(super) fn status(raw: i32) -> Status {
    let signal = raw & 0x7f;
    if signal == 0 { Status::Exited((raw >> 8) & 0xff) } else { Status::Signalled(signal) }
}

/// The workspace as commands see it.
pub(super) fn inside_workspace(setup: &Setup) -> String {
    match setup.mode {
        Mode::Namespace => root::WORKSPACE.to_owned(),
        Mode::Landlock | Mode::Process => setup.workspace.clone(),
    }
}

/// The environment of the first command: an own list, nothing from the worker.
fn first_environment(setup: &Setup) -> Vec<Vec<u8>> {
    let home = match setup.mode {
        Mode::Namespace => root::HOME.to_owned(),
        Mode::Landlock | Mode::Process => setup.home.clone(),
    };
    let temporary = match setup.mode {
        Mode::Namespace => "/tmp".to_owned(),
        Mode::Landlock | Mode::Process => format!("{home}/tmp"),
    };
    let mut environment: Vec<(String, String)> = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("LANG", "C.UTF-8"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/bash"),
        ("TERM", "dumb"),
        ("CI", "1"),
        ("NO_COLOR", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_EDITOR", "false"),
        ("GIT_PAGER", "cat"),
        ("EDITOR", "false"),
        ("VISUAL", "false"),
        ("PAGER", "cat"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("PIP_NO_INPUT", "1"),
        ("PYTHONUNBUFFERED", "1"),
        ("npm_config_yes", "false"),
        ("SSH_ASKPASS", "false"),
        ("SSH_ASKPASS_REQUIRE", "force"),
        ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ]
    .iter()
    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    .collect();
    environment.push(("HOME".to_owned(), home));
    environment.push(("TMPDIR".to_owned(), temporary));
    environment.push(("WORKSPACE".to_owned(), inside_workspace(setup)));
    environment.push((MARK.to_owned(), setup.id.clone()));
    for (name, value) in &setup.env {
        environment.retain(|(other, _)| other != name);
        environment.push((name.clone(), value.clone()));
    }
    environment.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}
