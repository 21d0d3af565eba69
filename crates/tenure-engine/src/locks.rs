//! File locks of the workers on this machine: a free lock means that its worker is gone, at once.
//!
//! Heartbeats find workers that hang or are out of reach; locks find those that died here
//! (design 7.4). The kernel drops a lock with its process, however it ends.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use tenure_core::NodeId;

/// The folder of locks, and the own one.
#[derive(Debug)]
pub(crate) struct Locks {
    folder: PathBuf,
    own: PathBuf,
    _held: File,
}

impl Locks {
    /// Takes the lock of `node`.
    pub(crate) fn hold(data: &Path, node: NodeId) -> io::Result<Self> {
        let folder = data.join("nodes");
        std::fs::create_dir_all(&folder)?;
        let own = folder.join(format!("{node}.lock"));
        let held = OpenOptions::new().create(true).truncate(false).write(true).open(&own)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, own, _held: held })
    }

    /// Whether `node` ran on this machine and is gone.
    pub(crate) fn is_abandoned(&self, node: NodeId) -> bool {
        let path = self.folder.join(format!("{node}.lock"));
        let Ok(file) = File::open(&path) else { return false };
        let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_free {
            // Dead is final: nobody takes this lock again.
            let _ = std::fs::remove_file(&path);
        }
        is_free
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.own);
    }
}
