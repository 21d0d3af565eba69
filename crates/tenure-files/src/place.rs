//! Whether the files of a session that lie here are its newest ones, and bringing them here if not.
//!
//! Beside each workspace a small file says by which lease it was used last, and which folder that
//! was. A session's log says which lease had files last, anywhere. Files of an earlier lease are old,
//! and a folder that somebody made anew is not the one that was noted: in both cases the newest
//! snapshot is restored, and nothing ever starts from silently empty or stale files (promise P17).

use crate::error::Error;
use crate::snapshots::{Id, RestoreLimits, Restored, Snapshots};
use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags, flock};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Says whose files lie here.
const NOTE: &str = "files";

/// Held while files are brought here.
const LOCK: &str = "files.lock";

/// What the log of a session says of its files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// The newest snapshot.
    pub snapshot: Option<Id>,
    /// The epoch of the newest lease that had files; 0 if none ever had.
    pub epoch: u64,
}

/// What was done so that the newest files are here.
#[derive(Debug)]
pub enum Brought {
    /// They were.
    Current,
    /// The newest snapshot was restored; what was done to files since is gone.
    Restored(Box<Restored>),
    /// They are nowhere: no snapshot was ever taken, and the folder that had them is not this one.
    Lost,
}

/// Makes sure that the newest files of a session are in `workspace`. `state` is the folder beside it.
///
/// # Errors
/// When they must be restored and cannot be; the folder is as it was then.
pub fn bring(
    snapshots: &Snapshots,
    workspace: &Path,
    state: &Path,
    wanted: &Wanted,
    limits: RestoreLimits,
) -> Result<Brought, Error> {
    let wrong = |error: std::io::Error| Error::io("look at", state.as_os_str().as_bytes(), &error);
    fs::create_dir_all(state).map_err(wrong)?;
    let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).open(state.join(LOCK)).map_err(wrong)?;
    while let Err(error) = flock(&lock, FlockOperation::LockExclusive) {
        if error != rustix::io::Errno::INTR {
            return Err(wrong(error.into()));
        }
    }
    if is_current(workspace, state, wanted) {
        return Ok(Brought::Current);
    }
    let Some(snapshot) = wanted.snapshot else { return Ok(Brought::Lost) };
    let restored = snapshots.restore(snapshot, workspace, limits)?;
    note(workspace, state, wanted.epoch)?;
    Ok(Brought::Restored(Box::new(restored)))
}

/// Whether the newest files of a session are in `workspace`.
pub fn is_current(workspace: &Path, state: &Path, wanted: &Wanted) -> bool {
    // No tool ever had files: what is here was put here, and belongs to the session.
    if wanted.epoch == 0 {
        return wanted.snapshot.is_none() || workspace.is_dir();
    }
    let Some(identity) = identity(workspace) else { return false };
    let text = fs::read_to_string(state.join(NOTE)).unwrap_or_default();
    let noted = text.trim_end().split_once(' ').and_then(|(epoch, noted)| Some((epoch.parse::<u64>().ok()?, noted)));
    // Later than the log knows: its holder was lost before it could say so.
    noted.is_some_and(|(epoch, noted)| epoch >= wanted.epoch && noted == identity)
}

/// Notes that the lease of `epoch` uses the files in `workspace`.
///
/// # Errors
/// When it cannot be written.
pub fn note(workspace: &Path, state: &Path, epoch: u64) -> Result<(), Error> {
    let wrong = |error: std::io::Error| Error::io("note the files in", state.as_os_str().as_bytes(), &error);
    let identity = identity(workspace)
        .ok_or_else(|| Error::io("look at", workspace.as_os_str().as_bytes(), &std::io::ErrorKind::NotFound.into()))?;
    let draft = state.join("files.new");
    let mut file = File::create(&draft).map_err(wrong)?;
    file.write_all(format!("{epoch} {identity}\n").as_bytes()).and_then(|()| file.sync_data()).map_err(wrong)?;
    fs::rename(&draft, state.join(NOTE)).map_err(wrong)
}

/// Which folder it is: another one at the same place has another birth.
fn identity(folder: &Path) -> Option<String> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(CWD, folder, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
    Some(format!("{:x}-{:x}-{:x}", stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}
