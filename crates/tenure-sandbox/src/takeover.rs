//! Makes sure that one incarnation at most works on a session's folder.
//!
//! The launcher holds the lock for as long as anything of its sandbox may live. A new holder that
//! cannot have the lock ends what the incarnation file names and waits for the kernel to finish.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup;
use crate::guest::table;
use crate::port::{Error, ErrorKind};
use crate::record::{self, Record};
use crate::wire::Mode;

/// Time that the kernel gets to end an old incarnation.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a launcher without a pid namespace gets to end its commands by itself.
const POLITE: Duration = Duration::from_secs(5);
/// Rounds of looking for survivors before a kill gives up.
const KILL_ROUNDS: u32 = 2_000;
/// Time between two looks at a lock that is still held.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Ends an older incarnation, then takes the lock. Refuses if a newer one is on record.
#[allow(clippy::disallowed_methods, reason = "nothing tells when a file lock is free; a thread that may block")]
pub(crate) fn take(state_dir: &Path, epoch: u64) -> Result<OwnedFd, Error> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("{what}: {error}"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(|error| failed("make the sandbox's state folder", &error))?;
    let lock = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(state_dir.join("lock"))
        .map_err(|error| failed("open the sandbox's lock", &error))?;
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let old = record::read(state_dir);
        if let Some(old) = old.as_ref().filter(|old| old.epoch > epoch) {
            let message = format!("the sandbox belongs to epoch {}, this lease has epoch {epoch}", old.epoch);
            return Err(Error::new(ErrorKind::Fenced, message));
        }
        if let Some(old) = &old {
            end(old);
            cgroup::remove_by_join_files(&old.cgroup_files);
        }
        if locked(&lock) {
            return Ok(lock.into());
        }
        if Instant::now() > deadline {
            return Err(Error::new(ErrorKind::Io, "an older incarnation of the sandbox does not end"));
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
}

/// Ends what an earlier holder on this machine left of a session's sandbox. Returns whether there was
/// anything; refuses if a newer holder than `epoch` is on record.
///
/// # Errors
/// When a newer holder owns it, or when it does not end.
pub async fn end_left(state_dir: std::path::PathBuf, epoch: u64) -> Result<bool, Error> {
    let end = move || {
        let Some(old) = record::read(&state_dir) else { return Ok(false) };
        let is_left = old.is_alive();
        let _lock = take(&state_dir, epoch)?;
        record::remove(&state_dir, &old.id);
        Ok(is_left)
    };
    let ended = tokio::task::spawn_blocking(end).await;
    ended.map_err(|error| Error::new(ErrorKind::Io, format!("end a sandbox: {error}")))?
}

/// Removes the record of an incarnation that has ended.
///
/// Only under the lock: a newer holder may be about to put its own record in this one's place. It
/// overwrites what is left here, so nothing has to be done if the lock is taken.
pub(crate) fn forget(state_dir: &Path, id: &str) {
    // Without a lock file there is no folder any more.
    let Ok(lock) = fs::OpenOptions::new().write(true).open(state_dir.join("lock")) else { return };
    if locked(&lock) {
        record::remove(state_dir, id);
    }
}

fn locked(lock: &File) -> bool {
    flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Ends what a record names and waits until it is gone.
pub(crate) fn end(record: &Record) {
    if record.is_alive()
        && let Some(pid) = Pid::from_raw(record.pid)
        && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
        // Asked again: the id could have been reused between the check and the open.
        && record.is_alive()
    {
        match record.mode {
            Mode::Namespace => {
                // The kernel ends the whole pid namespace before this process counts as gone.
                let _ = pidfd_send_signal(&process, Signal::KILL);
                gone(&process, END_TIMEOUT);
            }
            Mode::Landlock | Mode::Process => {
                // Its socket is closed: it ends its commands, which only it can find for sure.
                if !gone(&process, POLITE) {
                    // Stopped first: it must not report the commands of a lost sandbox as killed ones.
                    let _ = pidfd_send_signal(&process, Signal::STOP);
                    kill_tree(record.pid);
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                    gone(&process, END_TIMEOUT);
                }
            }
        }
    }
    cgroup::kill_by_join_files(&record.cgroup_files);
    if record.mode != Mode::Namespace {
        kill_marked(&record.id);
    }
}

fn gone(process: &OwnedFd, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Kills what descends from a stopped launcher, to which everything falls that loses its parent.
fn kill_tree(root: i32) {
    for _ in 0..KILL_ROUNDS {
        let living: Vec<_> =
            table::descendants(&table::rows(), &[root]).into_iter().filter(|row| !row.zombie).collect();
        if living.is_empty() {
            return;
        }
        for row in living {
            kill(row.pid);
        }
        std::thread::yield_now();
    }
}

/// Kills what carries the mark of an incarnation in its environment.
fn kill_marked(id: &str) {
    let mark = format!("{}={id}", crate::guest::MARK);
    for row in table::rows() {
        let environment = fs::read(format!("/proc/{}/environ", row.pid)).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            kill(row.pid);
        }
    }
}

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_11_an_ended_holder_does_not_remove_the_record_while_a_newer_one_holds_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = || {
            let text = r#"{"version":1,"id":"old","epoch":1,"mode":"Process","pid":1,"start_ticks":0,"boot_id":"","cgroup_files":[]}"#;
            fs::write(folder.path().join("incarnation.json"), text).expect("write a record");
            assert!(record::read(folder.path()).is_some(), "the record is a valid one");
        };
        let lock = take(folder.path(), 2).expect("nothing to end");
        write();
        forget(folder.path(), "old");
        assert!(record::read(folder.path()).is_some(), "the newer holder writes its own in its place");
        drop(lock);
        forget(folder.path(), "another");
        assert!(record::read(folder.path()).is_some(), "it is not this one's record");
        forget(folder.path(), "old");
        assert!(record::read(folder.path()).is_none());
    }
}
