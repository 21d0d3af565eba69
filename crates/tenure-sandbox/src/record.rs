//! The incarnation file: who runs the sandbox of a session now.
//!
//! The launcher writes it before the first command can run. The next holder reads it, ends what it
//! names and only then touches the workspace. A process id alone proves nothing, so the start time
//! goes with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::guest::table;
use crate::wire::{Mode, Setup};

/// Version of the stored format.
const VERSION: u32 = 1;
const FILE_NAME: &str = "incarnation.json";

/// Content of the incarnation file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) mode: Mode,
    /// PID 1 of the sandbox (or the launcher, in drivers without a pid namespace) as the host sees it.
    pub(crate) pid: i32,
    /// Start time of that process in clock ticks since boot.
    pub(crate) start_ticks: u64,
    /// Tells the same pid and start time after a reboot apart.
    pub(crate) boot_id: String,
    pub(crate) cgroup_files: Vec<String>,
}

impl Record {
    /// Says whether the recorded process is the one that has the id now.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot_id == boot_id() && table::start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// Writes the file of an incarnation that is about to begin.
pub(crate) fn write(setup: &Setup, pid: i32) -> io::Result<()> {
    let record = Record {
        version: VERSION,
        id: setup.id.clone(),
        epoch: setup.epoch,
        mode: setup.mode,
        pid,
        start_ticks: table::start_ticks(pid).unwrap_or(0),
        boot_id: boot_id(),
        cgroup_files: setup.cgroup_files.clone(),
    };
    let state = Path::new(&setup.state_dir);
    let temporary = state.join("incarnation.json.new");
    // Not synced: after a crash of the machine there is no process that it could name.
    fs::write(&temporary, serde_json::to_vec(&record).map_err(io::Error::other)?)?;
    fs::rename(temporary, path(state))
}

/// Reads the file; a damaged one counts as none, since the lock still guards the folder.
pub(crate) fn read(state_dir: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&fs::read(path(state_dir)).ok()?).ok()?;
    (record.version == VERSION).then_some(record)
}

/// Removes the file of an incarnation that has ended, unless a newer one has taken its place. The
/// caller holds the lock: between the look and the removal nobody else may write.
pub(crate) fn remove(state_dir: &Path, id: &str) {
    if read(state_dir).is_some_and(|record| record.id == id) {
        // A left-over file is harmless: it names a process that is gone.
        let _ = fs::remove_file(path(state_dir));
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE_NAME)
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
