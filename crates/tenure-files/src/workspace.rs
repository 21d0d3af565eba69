//! Listing, reading and writing.

use crate::error::{Error, Kind};
use crate::path::{join, parts};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most entries of one page of a listing.
pub const MAX_LIST: usize = 10_000;

/// Most bytes of one read.
pub const MAX_READ: u64 = 64 * 1024 * 1024;

/// The workspace of a session.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Other,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as bytes.
    pub name: Vec<u8>,
    /// What it is; links are not followed.
    pub kind: EntryKind,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Where a link points, as bytes.
    pub target: Option<Vec<u8>>,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: File,
    /// Its size in bytes when it was opened.
    pub size_bytes: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Changes whenever its content may have changed.
    pub tag: String,
}

/// How a file is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) mode: u32,
    /// Seconds since 1970; now if there are none.
    pub(crate) modified: Option<i64>,
    pub(crate) sync: Sync,
}

/// When a file must be on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sync {
    /// Before its name appears.
    Now,
    /// The caller waits for all files together.
    Later,
}

impl Workspace {
    /// Opens the folder, making it if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made or opened.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let name = folder.as_os_str().as_bytes();
        std::fs::create_dir_all(folder).map_err(|error| Error::io("make the workspace", name, &error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::openat(CWD, folder, flags, Mode::empty())
            .map_err(|error| Error::io("open the workspace", name, &error.into()))?;
        Ok(Self { root })
    }

    /// Entries of a folder by name, at most `limit` of those after `after`; and whether more follow.
    ///
    /// # Errors
    /// When it is no folder inside the workspace.
    pub fn list(&self, path: &[u8], after: Option<&[u8]>, limit: usize) -> Result<(Vec<Entry>, bool), Error> {
        let folder = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let wrong = |error: rustix::io::Errno| Error::io("list", path, &error.into());
        let mut names: Vec<Vec<u8>> = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." && after.is_none_or(|after| name.as_slice() > after) {
                names.push(name);
            }
        }
        names.sort_unstable();
        let limit = limit.min(MAX_LIST);
        let more = names.len() > limit;
        names.truncate(limit);
        // An entry that went away meanwhile is left out.
        let entries = names.into_iter().filter_map(|name| entry(&folder, name).ok()).collect();
        Ok((entries, more))
    }

    /// One entry; a link is described, not followed.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn stat(&self, path: &[u8]) -> Result<Entry, Error> {
        let (folder, name) = self.parent(path)?;
        match name {
            Some(name) => entry(&folder, name).map_err(|error| Error::io("look at", path, &error.into())),
            None => {
                let stat = rustix::fs::fstat(&self.root).map_err(|error| Error::io("look at", path, &error.into()))?;
                Ok(described(b".".to_vec(), &stat, None))
            }
        }
    }

    /// Opens a regular file. A FIFO or a device is refused without waiting for it.
    ///
    /// # Errors
    /// When it is no regular file inside the workspace.
    pub fn open_read(&self, path: &[u8]) -> Result<OpenFile, Error> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| Error::io("read", path, &error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::new(Kind::NotAFile, format!("{} is no regular file", String::from_utf8_lossy(path))));
        }
        let modified_ns = modified(&stat);
        let tag = format!(
            "{:x}-{:x}-{:x}-{:x}",
            stat.st_ino,
            stat.st_size,
            modified_ns,
            i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)
        );
        Ok(OpenFile { file: File::from(fd), size_bytes: u64::try_from(stat.st_size).unwrap_or(0), modified_ns, tag })
    }

    /// Reads part of a file; `len` is capped at [`MAX_READ`].
    ///
    /// # Errors
    /// When it is no regular file inside the workspace.
    pub fn read_range(&self, path: &[u8], offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        let open = self.open_read(path)?;
        let len = len.min(MAX_READ).min(open.size_bytes.saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match open.file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", path, &error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Writes a file as a whole: readers see the old or the new one, never a part. Missing folders
    /// are made. Returns the number of bytes.
    ///
    /// # Errors
    /// When the content is larger than `limit`, or the place is not inside the workspace.
    pub fn write(&self, path: &[u8], content: &mut dyn Read, mode: u32, limit: u64) -> Result<u64, Error> {
        self.write_new(path, content, limit, New { mode, modified: None, sync: Sync::Now })
    }

    pub(crate) fn write_new(&self, path: &[u8], content: &mut dyn Read, limit: u64, new: New) -> Result<u64, Error> {
        let wrong = |error: &io::Error| Error::io("write", path, error);
        let parts = parts(path)?;
        let Some((name, folders)) = parts.split_last() else {
            return Err(Error::new(Kind::NotAFile, "the workspace itself is no file"));
        };
        let folder = self.make_folders(folders)?;
        let draft = draft_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&folder, draft.as_slice(), flags, Mode::from_raw_mode(0o600))
            .map_err(|error| wrong(&error.into()))?;
        let mut file = File::from(fd);
        let result = copy(content, &mut file, limit).and_then(|size| {
            self.own_like_root(&file);
            let mode = Mode::from_raw_mode(new.mode & 0o777);
            rustix::fs::fchmod(&file, mode).map_err(|error| wrong(&error.into()))?;
            if let Some(seconds) = new.modified {
                set_modified(&file, seconds).map_err(|error| wrong(&error.into()))?;
            }
            match new.sync {
                Sync::Now => file.sync_all().map_err(|error| wrong(&error))?,
                Sync::Later => {}
            }
            rustix::fs::renameat(&folder, draft.as_slice(), &folder, *name).map_err(|error| wrong(&error.into()))?;
            Ok(size)
        });
        if result.is_err() {
            let _ = rustix::fs::unlinkat(&folder, draft.as_slice(), AtFlags::empty());
        }
        result.map_err(|error| Error {
            message: format!("write {}: {}", String::from_utf8_lossy(path), error.message),
            ..error
        })
    }

    /// Gives a second name to a regular file; a link is not followed.
    pub(crate) fn hard_link(&self, source: &[u8], place: &[&[u8]]) -> Result<(), Error> {
        let wrong = |error: rustix::io::Errno| Error::io("link", source, &error.into());
        let (from, from_name) = self.parent(source)?;
        let (Some(from_name), Some((name, folders))) = (from_name, place.split_last()) else {
            return Err(Error::new(Kind::NotAFile, "the workspace itself is no file"));
        };
        let stat = rustix::fs::statat(&from, from_name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).map_err(wrong)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::new(Kind::NotAFile, format!("{} is no regular file", String::from_utf8_lossy(source))));
        }
        let to = self.make_folders(folders)?;
        let draft = draft_name();
        rustix::fs::linkat(&from, from_name.as_slice(), &to, draft.as_slice(), AtFlags::empty()).map_err(wrong)?;
        let renamed = rustix::fs::renameat(&to, draft.as_slice(), &to, *name).map_err(wrong);
        // A rename onto another name of the same file does nothing, so the draft stays.
        let _ = rustix::fs::unlinkat(&to, draft.as_slice(), AtFlags::empty());
        renamed
    }

    /// Sets what an archive says of a folder.
    pub(crate) fn set_folder(&self, place: &[Vec<u8>], mode: u32, modified: Option<i64>) -> Result<(), Error> {
        let path = place.join(&b'/');
        let folder = self.resolve(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode & 0o777))
            .and_then(|()| modified.map_or(Ok(()), |seconds| set_modified(&folder, seconds)))
            .map_err(|error| Error::io("set the mode of", &path, &error.into()))
    }

    /// Waits until everything written so far is on the disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        rustix::fs::syncfs(&self.root).map_err(|error| Error::io("write", b"the workspace", &error.into()))
    }

    /// Removes a file, a link or an empty folder.
    ///
    /// # Errors
    /// When nothing is there, or a folder is not empty.
    pub fn remove(&self, path: &[u8]) -> Result<(), Error> {
        let (folder, name) = self.parent(path)?;
        let Some(name) = name else { return Err(Error::new(Kind::Invalid, "the workspace itself stays")) };
        let remove = |flags| rustix::fs::unlinkat(&folder, name.as_slice(), flags);
        match remove(AtFlags::empty()) {
            Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => remove(AtFlags::REMOVEDIR),
            other => other,
        }
        .map_err(|error| Error::io("remove", path, &error.into()))
    }

    /// Files and bytes in the workspace, as far as `limit` entries.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn usage(&self, limit: usize) -> Result<(u64, u64), Error> {
        let (mut files, mut bytes, mut open) = (0, 0, vec![Vec::new()]);
        while let Some(folder) = open.pop() {
            for entry in self.entries(&folder)? {
                files += 1;
                bytes += entry.size_bytes;
                if entry.kind == EntryKind::Directory && files < limit as u64 {
                    open.push(
                        [folder.as_slice(), &entry.name]
                            .iter()
                            .filter(|part| !part.is_empty())
                            .copied()
                            .collect::<Vec<_>>()
                            .join(&b'/'),
                    );
                }
            }
        }
        Ok((files, bytes))
    }

    /// All entries of a folder, page after page; an archive must not leave any out.
    pub(crate) fn entries(&self, path: &[u8]) -> Result<Vec<Entry>, Error> {
        let (mut all, mut has_more) = (Vec::new(), true);
        while has_more {
            let after = all.last().map(|entry: &Entry| entry.name.clone());
            let (entries, more) = self.list(path, after.as_deref(), MAX_LIST)?;
            // A page whose entries all went away meanwhile would be asked for again without end.
            has_more = more && !entries.is_empty();
            all.extend(entries);
        }
        Ok(all)
    }

    /// Opens a path beneath the workspace.
    fn resolve(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Error> {
        let joined = join(&parts(path)?);
        self.beneath(&self.root, &joined, flags, mode).map_err(|error| Error::io("open", path, &error.into()))
    }

    /// Opens in the kernel's own beneath mode; where that is missing, part by part without links.
    pub(crate) fn beneath(
        &self,
        start: impl AsFd,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&start, path, flags, mode, resolve) {
            // Filters of older containers say "not permitted" to what they do not know.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => self.step_by_step(start, path, flags, mode),
            other => other,
        }
    }

    fn step_by_step(&self, start: impl AsFd, path: &[u8], flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let Some((last, folders)) = parts.split_last() else { return Err(rustix::io::Errno::NOENT) };
        let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut current = rustix::fs::openat(&start, b".".as_slice(), folder_flags, Mode::empty())?;
        for part in folders {
            current = rustix::fs::openat(&current, *part, folder_flags, Mode::empty())?;
        }
        rustix::fs::openat(&current, *last, flags | OFlags::NOFOLLOW, mode)
    }

    /// The folder that holds a path, and the name in it; no name for the workspace itself.
    pub(crate) fn parent(&self, path: &[u8]) -> Result<(OwnedFd, Option<Vec<u8>>), Error> {
        let parts = parts(path)?;
        let (name, folders) = match parts.split_last() {
            Some((name, folders)) => (Some(name.to_vec()), folders),
            None => (None, &parts[..]),
        };
        let folder = self
            .beneath(&self.root, &join(folders), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .map_err(|error| Error::io("open the folder of", path, &error.into()))?;
        Ok((folder, name))
    }

    /// Opens a folder, making what is missing.
    pub(crate) fn make_folders(&self, folders: &[&[u8]]) -> Result<OwnedFd, Error> {
        let open = OFlags::RDONLY | OFlags::DIRECTORY;
        let wrong = |error: rustix::io::Errno| Error::io("make the folder", &join(folders), &error.into());
        let mut current = self.beneath(&self.root, b".", open, Mode::empty()).map_err(wrong)?;
        for (depth, part) in folders.iter().enumerate() {
            let next = join(&folders[..=depth]);
            current = match self.beneath(&self.root, &next, open, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => {
                    match rustix::fs::mkdirat(&current, *part, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(error) => return Err(wrong(error)),
                    }
                    let made = self.beneath(&self.root, &next, open, Mode::empty()).map_err(wrong)?;
                    self.own_like_root(&made);
                    made
                }
                other => other.map_err(wrong)?,
            };
        }
        Ok(current)
    }

    /// As [`Self::own_like_root`], for a symbolic link itself.
    pub(crate) fn own_link_like_root(&self, folder: impl AsFd, name: &[u8]) {
        if let Ok(stat) = rustix::fs::fstat(&self.root) {
            let owner = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
            let _ = rustix::fs::chownat(folder, name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW);
        }
    }

    /// Gives what the host made to the owner of the workspace, so that the agent can change it
    /// (case O-080). Without the right to do so both are the same user anyway.
    pub(crate) fn own_like_root(&self, file: impl AsFd) {
        if let Ok(stat) = rustix::fs::fstat(&self.root) {
            let owner = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
            let _ = rustix::fs::fchown(file, Some(owner.0), Some(owner.1));
        }
    }
}

impl OpenFile {
    /// Moves to a place for reading from there.
    ///
    /// # Errors
    /// What the system said.
    pub fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset)).map(drop)
    }
}

pub(crate) fn draft_name() -> Vec<u8> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(".tenure-draft-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into_bytes()
}

/// Copies at most `limit` bytes.
pub(crate) fn copy(from: &mut dyn Read, to: &mut dyn Write, limit: u64) -> Result<u64, Error> {
    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0u64;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A bound of ours that was passed keeps its kind.
            Err(error) => {
                return Err(match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
                    Some(inner) => Error::new(inner.kind, inner.message.clone()),
                    None => Error::io("read", b"the content", &error),
                });
            }
        };
        total += read as u64;
        if total > limit {
            return Err(Error::new(Kind::TooLarge, format!("larger than {limit} bytes")));
        }
        to.write_all(&buffer[..read]).map_err(|error| Error::io("write", b"the content", &error))?;
    }
}

fn entry(folder: &OwnedFd, name: Vec<u8>) -> rustix::io::Result<Entry> {
    let stat = rustix::fs::statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let target =
        if is_link { Some(rustix::fs::readlinkat(folder, name.as_slice(), Vec::new())?.into_bytes()) } else { None };
    Ok(described(name, &stat, target))
}

fn described(name: Vec<u8>, stat: &Stat, target: Option<Vec<u8>>) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        _ => EntryKind::Other,
    };
    Entry {
        name,
        kind,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_ns: modified(stat),
        target,
    }
}

fn set_modified(file: impl AsFd, seconds: i64) -> rustix::io::Result<()> {
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
    rustix::fs::futimens(file, &rustix::fs::Timestamps { last_access: time, last_modification: time })
}

fn modified(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}
