//! Opens what an agent made: beneath a folder, without following links, whatever its mode is.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Bytes of a path that are resolved at once; the kernel takes 4,096.
const PATH_BYTES: usize = 3_000;

/// Opens the entry at `path` below `start`; an empty path is `start` itself.
pub(super) fn beneath(start: impl AsFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (mut current, mut rest) = (None::<OwnedFd>, path);
    loop {
        let from = current.as_ref().map_or(start.as_fd(), AsFd::as_fd);
        if rest.len() <= PATH_BYTES {
            let path = if rest.is_empty() { b"." } else { rest };
            return one(from, path, flags);
        }
        let cut = rest[..PATH_BYTES].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let next = one(from, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?;
        current = Some(next);
        rest = &rest[cut + 1..];
    }
}

fn one(start: impl AsFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(&start, path, flags, Mode::empty(), resolve) {
        // Filters of older containers say "not permitted" to what they do not know.
        Err(Errno::NOSYS | Errno::PERM) => {}
        other => return other,
    }
    let mut current = None::<OwnedFd>;
    let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let from = current.as_ref().map_or(start.as_fd(), AsFd::as_fd);
        let wanted = if parts.peek().is_some() {
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
        } else {
            flags
        };
        current = Some(rustix::fs::openat(from, part, wanted, Mode::empty())?);
    }
    current.ok_or(Errno::NOENT)
}

/// Opens for reading, also what its owner may not read (case O-080). The mode is put back at once.
pub(super) fn for_reading(parent: impl AsFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    match beneath(&parent, path, flags) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let handle = beneath(&parent, path, OFlags::PATH | (flags & OFlags::DIRECTORY))?;
    let mode = rustix::fs::fstat(&handle)?.st_mode;
    // By the descriptor: a name that becomes a link meanwhile changes nothing outside.
    let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let needed = if flags.contains(OFlags::DIRECTORY) { 0o500 } else { 0o400 };
    rustix::fs::chmod(&itself, Mode::from_raw_mode((mode & 0o7777) | needed))?;
    // Opened anew by the descriptor's own path, which is a link of the kernel, not of the agent.
    let opened = rustix::fs::open(&itself, flags | OFlags::CLOEXEC, Mode::empty());
    rustix::fs::chmod(&itself, Mode::from_raw_mode(mode & 0o7777))?;
    opened
}
