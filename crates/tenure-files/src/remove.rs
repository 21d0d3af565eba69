//! Removes whole trees.
//!
//! No depth of a tree costs memory, descriptors or stack: a folder that is not empty gives its own
//! folders to the top one, so every folder is moved once and two are open at a time. Links are removed,
//! never followed, and folders that their owner may not write are opened up first (case O-080).

use crate::error::{Error, Kind};
use crate::workspace::{Workspace, draft_name};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Rounds after which a tree that somebody fills again is given up; a round takes one level away.
const ROUNDS: u32 = 1_000_000;

/// Permission bits without which a folder cannot be emptied.
const OPEN_MODE: u32 = 0o700;

impl Workspace {
    /// Removes a file, a link, or a folder with all that is in it.
    ///
    /// # Errors
    /// When nothing is there, or something cannot be removed; what was removed before stays removed.
    pub fn remove_all(&self, path: &[u8]) -> Result<(), Error> {
        let failed = |error: Errno| Error::io("remove", path, &error.into());
        let (folder, name) = self.parent(path)?;
        let Some(name) = name else { return Err(Error::new(Kind::Invalid, "the workspace itself stays")) };
        match rustix::fs::unlinkat(&folder, name.as_slice(), AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            other => return other.map_err(failed),
        }
        let top = opened(&folder, &name).map_err(failed)?;
        for _ in 0..ROUNDS {
            let names = names(&top).map_err(failed)?;
            if names.is_empty() {
                return rustix::fs::unlinkat(&folder, name.as_slice(), AtFlags::REMOVEDIR).map_err(failed);
            }
            for name in names {
                flatten(&top, &name).map_err(failed)?;
            }
        }
        Err(Error::new(Kind::Io, format!("remove {}: it is filled again and again", String::from_utf8_lossy(path))))
    }
}

/// Removes an entry of the top folder; the folders in it become entries of the top folder.
fn flatten(top: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    if removed(top, name)? {
        return Ok(());
    }
    let folder = opened(top, name)?;
    for inner in names(&folder)? {
        if !removed(&folder, &inner)? {
            match rustix::fs::renameat(&folder, inner.as_slice(), top, draft_name().as_slice()) {
                // A folder that moves must be writable itself.
                Err(Errno::ACCESS) => {
                    opened(&folder, &inner)?;
                    rustix::fs::renameat(&folder, inner.as_slice(), top, draft_name().as_slice())?;
                }
                Err(Errno::NOENT) => {}
                other => other?,
            }
        }
    }
    // Somebody may have put something in meanwhile; the next round sees it.
    removed(top, name).map(drop)
}

/// Removes what is no folder, and empty folders. `false` for a folder that is not empty.
fn removed(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a folder for emptying.
fn opened(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // By the descriptor, so that a name that becomes a link meanwhile changes nothing outside.
    let handle = rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    let mode = rustix::fs::fstat(&handle)?.st_mode;
    if mode & OPEN_MODE != OPEN_MODE {
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        rustix::fs::chmod(path, Mode::from_raw_mode((mode & 0o7777) | OPEN_MODE))?;
    }
    rustix::fs::openat(&handle, ".", flags | OFlags::RDONLY, Mode::empty())
}

fn names(folder: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let names = rustix::fs::Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    names
        .filter(|name: &Result<Vec<u8>, Errno>| name.as_ref().map_or(true, |name| name != b"." && name != b".."))
        .collect()
}
