//! Frames between the host and the launcher.
//!
//! A frame is two lengths, a JSON head and a body of plain bytes. Both lengths are bounded on both
//! sides; the host treats everything from the launcher as the agent's words.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::port::{ErrorKind, FILE_BYTES, FileOp, Limits, Network, Process, Status};

/// Longest JSON head of a frame.
pub(crate) const HEAD_BYTES: usize = 4 * 1024 * 1024;
/// Longest body of a frame.
pub(crate) const BODY_BYTES: usize = FILE_BYTES + 64 * 1024;

/// How the launcher confines commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Namespaces, pivot_root, seccomp.
    Namespace,
    /// Landlock and seccomp.
    Landlock,
    /// Nothing but rlimits.
    Process,
}

/// First frame to the launcher; its descriptor is the incarnation's lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) mode: Mode,
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) workspace: String,
    pub(crate) state_dir: String,
    pub(crate) home: String,
    pub(crate) network: Network,
    pub(crate) limits: Limits,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) hidden: Vec<String>,
    /// Outside user and group that commands run as (namespace driver as root only).
    pub(crate) outside: Option<(u32, u32)>,
    /// `cgroup.procs` or `tasks` files that the launcher writes itself into.
    pub(crate) cgroup_files: Vec<String>,
    /// The cgroup already caps memory.
    pub(crate) memory_capped: bool,
    /// The cgroup already caps processes.
    pub(crate) processes_capped: bool,
}

/// From the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    Setup(Box<Setup>),
    /// Its descriptor is the output.
    Exec {
        id: u64,
        command: String,
        timeout_ms: u64,
        cwd: Option<String>,
    },
    /// The body is the content of a write.
    File {
        id: u64,
        op: FileOp,
        timeout_ms: u64,
    },
    Processes {
        id: u64,
    },
    Restart {
        id: u64,
    },
    /// Kills the tree of a command.
    Kill {
        id: u64,
        status: Status,
    },
}

/// From the launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToHost {
    Ready {
        landlock_abi: i32,
    },
    Failed {
        kind: ErrorKind,
        message: String,
    },
    Exited {
        id: u64,
        status: Status,
        still_running: Vec<Process>,
        notes: Vec<String>,
    },
    /// The body is the content or the lines, separated by null bytes.
    File {
        id: u64,
        reply: FileHead,
    },
    Processes {
        id: u64,
        list: Vec<Process>,
    },
    Restarted {
        id: u64,
    },
}

/// Answer to a file operation without its bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FileHead {
    Content { file_bytes: u64, truncated: bool },
    Written { created: bool },
    Edited { replaced: u64 },
    Matches { truncated: bool },
    Failed { kind: ErrorKind, message: String },
}

/// Writes a frame into bytes.
pub(crate) fn encode(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(head).expect("frames have string keys only");
    let mut frame = Vec::with_capacity(8 + json.len() + body.len());
    frame.extend_from_slice(&(json.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&json);
    frame.extend_from_slice(body);
    frame
}

/// Checks the two lengths at the start of a frame.
pub(crate) fn lengths(start: [u8; 8]) -> io::Result<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = start;
    let head = u32::from_le_bytes([a, b, c, d]) as usize;
    let body = u32::from_le_bytes([e, f, g, h]) as usize;
    if head > HEAD_BYTES || body > BODY_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("frame of {head} + {body} bytes is too long")));
    }
    Ok((head, body))
}

/// Reads the JSON head of a frame.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(json: &[u8]) -> io::Result<T> {
    serde_json::from_slice(json).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads the rest of a frame whose lengths are known.
pub(crate) fn read_rest(from: &mut impl Read, start: [u8; 8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (head, body) = lengths(start)?;
    let mut json = vec![0; head];
    from.read_exact(&mut json)?;
    let mut bytes = vec![0; body];
    from.read_exact(&mut bytes)?;
    Ok((json, bytes))
}
