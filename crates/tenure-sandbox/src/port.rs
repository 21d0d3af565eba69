//! The port: what a driver offers and what the rest of the product may rely on.
//!
//! A [`Driver`] starts an [`Incarnation`] of a session's sandbox. An incarnation is the running
//! thing: processes, working directory, environment. The workspace folder outlives it.
//! What a driver does not enforce is data too ([`Guarantees`]), never silence.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Output kept of the beginning and of the end of one command, unless [`Exec`] says less.
pub const OUTPUT_BYTES: usize = 64 * 1024;
/// Full output of one command kept on disk.
pub const LOG_BYTES: u64 = 64 * 1024 * 1024;
/// Time limit of a command whose caller names none.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest command text.
pub const COMMAND_BYTES: usize = 96 * 1024;
/// Longest content of one file read or written through [`FileOp`].
pub const FILE_BYTES: usize = 8 * 1024 * 1024;
/// Time limit of one file operation.
pub const FILE_TIMEOUT: Duration = Duration::from_secs(30);
/// Matches that one glob or grep returns.
pub const MATCHES: usize = 1_000;

/// Starts sandboxes of one kind.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Names the driver: `namespace`, `landlock` or `process`.
    fn name(&self) -> &'static str;
    /// Says what this driver enforces on this machine with default limits.
    fn guarantees(&self) -> Guarantees;
    /// Ends an older incarnation of the same session, then starts a new one.
    async fn start(&self, spec: Spec) -> Result<Arc<dyn Incarnation>, Error>;
}

/// One running sandbox.
#[async_trait]
pub trait Incarnation: Send + Sync {
    /// Identifies this incarnation; a new one gets another id.
    fn id(&self) -> &str;
    /// Names the driver that started it.
    fn driver(&self) -> &'static str;
    /// Says what is enforced for this incarnation.
    fn guarantees(&self) -> &Guarantees;
    /// Runs a command in the persistent shell. Dropping the future kills the command's tree.
    async fn exec(&self, exec: Exec) -> Result<Outcome, Error>;
    /// Works on a file with the same view and confinement as commands.
    async fn file(&self, op: FileOp) -> Result<FileReply, Error>;
    /// Lists the processes that live in the sandbox.
    async fn processes(&self) -> Result<Vec<Process>, Error>;
    /// Ends all processes and forgets working directory and environment.
    async fn restart(&self) -> Result<(), Error>;
    /// Ends the incarnation; returns when nothing of it lives any more.
    async fn stop(&self);
    /// Resolves when the incarnation has ended, by itself or by [`Incarnation::stop`].
    async fn lost(&self);
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The workspace folder on the host; `/workspace` inside the namespace driver.
    pub workspace: PathBuf,
    /// Host folder for the incarnation file, the agent's home and output logs.
    pub state_dir: PathBuf,
    /// The session, for names and messages.
    pub session: String,
    /// The lease's epoch; an incarnation file with a higher one refuses the start.
    pub epoch: u64,
    /// Network of the sandbox.
    pub network: Network,
    /// Caps on resources.
    pub limits: Limits,
    /// Additional environment of commands. Never put a provider key here.
    pub env: Vec<(String, String)>,
    /// Host paths that no command may see, for example the data folder.
    pub hidden: Vec<PathBuf>,
}

impl Spec {
    /// Describes a sandbox with default limits and no network.
    pub fn new(workspace: impl Into<PathBuf>, state_dir: impl Into<PathBuf>, session: impl Into<String>) -> Self {
        Self {
            workspace: workspace.into(),
            state_dir: state_dir.into(),
            session: session.into(),
            epoch: 0,
            network: Network::Off,
            limits: Limits::default(),
            env: Vec::new(),
            hidden: Vec::new(),
        }
    }
}

/// Network of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Loopback only.
    #[default]
    Off,
    /// The host's network, with everything it reaches.
    Host,
}

/// Caps on the resources of one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together.
    pub memory_bytes: u64,
    /// Processes and threads together.
    pub processes: u32,
    /// Processor time: cores times 1000.
    pub cpu_millis: u32,
    /// Workspace and home together.
    pub disk_bytes: u64,
    /// Full output of one command kept on disk.
    pub output_bytes: u64,
    /// Open files of one process.
    pub open_files: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 4 * 1024 * 1024 * 1024,
            processes: 512,
            cpu_millis: 4_000,
            disk_bytes: 10 * 1024 * 1024 * 1024,
            output_bytes: LOG_BYTES,
            open_files: 4_096,
        }
    }
}

/// A property of isolation that a driver enforces or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// Own view of the file system.
    Mount,
    /// Own process table.
    Pid,
    /// Own network.
    Net,
    /// Own System V IPC and POSIX queues.
    Ipc,
    /// Own host name.
    Uts,
    /// Own user ids; root inside is nobody outside.
    User,
    /// System call filter.
    Seccomp,
    /// Programs cannot gain privileges.
    NoNewPrivs,
    /// Memory cap.
    Memory,
    /// Cap on processes and threads.
    Processes,
    /// Processor cap.
    Cpu,
    /// Disk cap.
    Disk,
    /// A timeout or stop ends all processes, whatever they did.
    TreeKill,
}

impl Item {
    /// Names the item as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Pid => "pid",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::User => "user",
            Self::Seccomp => "seccomp",
            Self::NoNewPrivs => "no_new_privs",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::TreeKill => "tree_kill",
        }
    }
}

/// How far an [`Item`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The kernel enforces it.
    Enforced,
    /// It is checked or enforced in part; `why` says which part.
    Partial,
    /// Nothing enforces it.
    Missing,
}

/// One line of [`Guarantees`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// What.
    pub item: Item,
    /// How far.
    pub state: State,
    /// By what means, or why not.
    pub why: String,
    /// What would make it better; empty if there is nothing to do.
    pub fix: String,
}

/// What is enforced for a sandbox and what is not, one line for each [`Item`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees(pub Vec<Guarantee>);

impl Guarantees {
    /// Returns the state of an item; an item without a line is missing.
    pub fn state(&self, item: Item) -> State {
        self.0.iter().find(|line| line.item == item).map_or(State::Missing, |line| line.state)
    }

    /// Lists what is not fully enforced.
    pub fn weak(&self) -> impl Iterator<Item = &Guarantee> {
        self.0.iter().filter(|line| line.state != State::Enforced)
    }

    pub(crate) fn set(&mut self, item: Item, state: State, why: impl Into<String>, fix: impl Into<String>) {
        self.0.retain(|line| line.item != item);
        self.0.push(Guarantee { item, state, why: why.into(), fix: fix.into() });
        self.0.sort_by_key(|line| line.item);
    }
}

/// A command for the persistent shell.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Text for `bash -c`.
    pub command: String,
    /// After this the whole tree is killed.
    pub timeout: Duration,
    /// Bytes kept of head and tail together; the log holds all.
    pub output_bytes: usize,
    /// Working directory of this command; `None` is where the last one ended.
    pub cwd: Option<String>,
}

impl Exec {
    /// Describes a command with default bounds.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), timeout: COMMAND_TIMEOUT, output_bytes: OUTPUT_BYTES, cwd: None }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The shell ended with this code.
    Exited(i32),
    /// A signal ended the shell.
    Signalled(i32),
    /// The time limit passed; nothing of its tree lives.
    TimedOut,
    /// The memory cap ended one of its processes.
    KilledByMemory,
    /// The disk cap was passed; its tree was killed.
    KilledByDisk,
    /// The incarnation ended while the command ran; what it did is unknown.
    Lost,
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Beginning of the output (stdout and stderr in the order written).
    pub head: Vec<u8>,
    /// End of the output; empty when `head` holds all.
    pub tail: Vec<u8>,
    /// True size of the output up to the shell's end.
    pub total_bytes: u64,
    /// Host file with the full output, capped at [`Limits::output_bytes`]; late output goes there too.
    pub log_path: Option<PathBuf>,
    /// Processes of the sandbox that outlive the call.
    pub still_running: Vec<Process>,
    /// From start to the shell's end.
    pub duration: Duration,
    /// Set when the command seems to have failed for want of a network.
    pub network_hint: Option<String>,
    /// What the reader of the output should know: the shell could not keep its state as promised, for
    /// example a removed working directory; or the command seems to have wanted an answer.
    pub notes: Vec<String>,
}

/// A process of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id as commands see it.
    pub pid: i32,
    /// Parent as commands see it.
    pub parent: i32,
    /// Command line, shortened.
    pub command: String,
}

/// An operation on files with the view of commands. Relative paths start at the workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOp {
    /// Reads bytes; at most [`FILE_BYTES`].
    Read {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        /// At most so many bytes.
        limit: u64,
    },
    /// Reads lines, both ends included, counted from 1; at most [`FILE_BYTES`].
    ReadLines {
        /// The file.
        path: String,
        /// First line.
        first: u64,
        /// Last line; `None` reads to the end.
        last: Option<u64>,
    },
    /// Replaces or creates a file, with its parent directories, in one step.
    Write {
        /// The file.
        path: String,
        /// New content; at most [`FILE_BYTES`].
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// Replaces text in a file.
    Edit {
        /// The file.
        path: String,
        /// Text to find; must not be empty.
        old: String,
        /// Text to put there.
        new: String,
        /// Every occurrence instead of exactly one.
        replace_all: bool,
    },
    /// Lists files that match a pattern with `**`, newest first.
    Glob {
        /// The pattern.
        pattern: String,
        /// Where to start.
        path: Option<String>,
    },
    /// Lists lines that match a regular expression.
    Grep {
        /// The expression.
        pattern: String,
        /// File or directory to start at.
        path: Option<String>,
    },
}

/// Answer to a [`FileOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileReply {
    /// Content of `Read` and `ReadLines`.
    Content {
        /// The bytes asked for.
        bytes: Vec<u8>,
        /// Size of the whole file.
        file_bytes: u64,
        /// More follows that the bound cut off.
        truncated: bool,
    },
    /// A file was written; `created` says that it is new.
    Written {
        /// No file of that name was there before.
        created: bool,
    },
    /// An edit was done.
    Edited {
        /// Number of places.
        replaced: u64,
    },
    /// Names (bytes) of `Glob`, or `path:line:text` lines of `Grep`.
    Matches {
        /// One entry for each match.
        lines: Vec<Vec<u8>>,
        /// More exist that the bound cut off.
        truncated: bool,
    },
}

/// What kind of failure an [`Error`] is, that is: what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The machine cannot run this driver; pick another or follow the message.
    Unavailable,
    /// A newer holder owns the sandbox; give up the lease.
    Fenced,
    /// The incarnation has ended; start a new one.
    Lost,
    /// The caller must change the request (bad path, no match, too large).
    Refused,
    /// No such file or directory.
    NotFound,
    /// It took longer than its limit.
    TimedOut,
    /// Anything else that the machine said.
    Io,
}

/// A failure of a driver or an incarnation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about it.
    pub kind: ErrorKind,
    /// What happened, in words.
    pub message: String,
}

impl Error {
    /// Makes an error.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }
}
