//! Restores a snapshot: everything is written beside the folder and takes its place at the end.

use super::node::{About, Content, Entry, Owner};
use super::open::beneath;
use super::packs::random;
use super::record::{Id, Record};
use super::seal::ObjectKind;
use super::store::Snapshots;
use crate::error::{Error, Kind};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads that write files.
const MAX_THREADS: usize = 8;

/// What must not be passed while a snapshot is restored (hazard Z-42).
#[derive(Clone, Copy, Debug)]
pub struct RestoreLimits {
    /// Bytes of files, holes not counted.
    pub bytes: u64,
    /// Files, folders, links and FIFOs.
    pub entries: u64,
}

impl Default for RestoreLimits {
    fn default() -> Self {
        Self { bytes: 1024 * 1024 * 1024 * 1024, entries: 50_000_000 }
    }
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The snapshot.
    pub record: Record,
    /// Owners that this process may not give, and attributes that the file system does not keep.
    pub lost: u64,
}

/// A folder that is being written.
struct Target {
    root: OwnedFd,
    owner: (u32, u32),
    lost: AtomicU64,
    bytes: AtomicU64,
    limit: u64,
    /// The first name of files with several.
    first: Mutex<HashMap<u64, Vec<u8>>>,
}

struct Plan {
    path: Vec<u8>,
    about: About,
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Snapshots {
    /// Makes a folder what it was when a snapshot was taken. What is in the folder now goes away. Every
    /// byte is checked; the folder is as it was before, or whole, and never in between.
    ///
    /// # Errors
    /// When anything of the snapshot is missing or damaged, or it does not fit.
    pub fn restore(&self, id: Id, folder: &Path, limits: RestoreLimits) -> Result<Restored, Error> {
        // Nothing of it is collected meanwhile.
        let _lock = self.backend.lock(false)?;
        let record = self.record(id)?;
        if record.entries > limits.entries || record.bytes > limits.bytes && record.packs.is_empty() {
            return Err(Error::new(Kind::TooLarge, format!("snapshot {id} has {} entries", record.entries)));
        }
        let gone = self.gone(&record.packs)?;
        if !gone.is_empty() {
            let message = format!("snapshot {id} cannot be restored: {} of its packs are missing or cut", gone.len());
            return Err(Error::new(Kind::Damaged, message));
        }
        let draft = Draft::beside(folder)?;
        let lost = self.write(&record, &draft.path, folder, limits)?;
        draft.replace(folder)?;
        Ok(Restored { record, lost })
    }

    fn write(&self, record: &Record, draft: &Path, folder: &Path, limits: RestoreLimits) -> Result<u64, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::openat(CWD, draft, flags, Mode::empty())
            .map_err(|error| Error::io("open", draft.as_os_str().as_bytes(), &error.into()))?;
        // The workspace belongs to whom it belonged, or else to whoever has it now.
        let owner = match rustix::fs::lstat(folder) {
            Ok(stat) => (stat.st_uid, stat.st_gid),
            Err(_) => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        };
        let target = Target {
            root,
            owner,
            lost: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            limit: limits.bytes,
            first: Mutex::default(),
        };
        let mut plans = Vec::new();
        let mut next = vec![(Vec::new(), record.root.clone())];
        let mut entries = 0u64;
        while let Some((path, entry)) = next.pop() {
            let Content::Folder(reference) = &entry.content else {
                return Err(Error::new(Kind::Damaged, "the top of a snapshot is no folder"));
            };
            let folder = self.folder(reference)?.entries;
            entries += folder.len() as u64;
            if entries > record.entries {
                return Err(Error::new(Kind::Damaged, "a snapshot has more entries than its record says"));
            }
            if !path.is_empty() {
                target.make_folder(&path)?;
            }
            for (name, entry) in folder.iter().filter(|(_, entry)| matches!(entry.content, Content::Folder(_))) {
                next.push((join(&path, name), entry.clone()));
            }
            plans.push(Plan { path, about: entry.about, entries: folder });
        }
        if entries != record.entries {
            return Err(Error::new(Kind::Damaged, "a snapshot has fewer entries than its record says"));
        }
        self.write_all(&target, &plans)?;
        // Folders last, from the inside: writing in one changes its time, and it may not be writable.
        for plan in plans.iter().rev() {
            target.finish_folder(&plan.path, &plan.about)?;
        }
        rustix::fs::syncfs(&target.root).map_err(|error| Error::io("restore", b".", &error.into()))?;
        Ok(target.lost.into_inner())
    }

    fn write_all(&self, target: &Target, plans: &[Plan]) -> Result<(), Error> {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS));
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let later: Mutex<Vec<(Vec<u8>, u64)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..threads.min(plans.len()) {
                scope.spawn(|| {
                    while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = self.write_folder(target, plan, &later) {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                            next.store(plans.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        for (path, group) in later.into_inner().unwrap_or_else(PoisonError::into_inner) {
            target.link(&path, group)?;
        }
        Ok(())
    }

    fn write_folder(&self, target: &Target, plan: &Plan, later: &Mutex<Vec<(Vec<u8>, u64)>>) -> Result<(), Error> {
        let folder = target.open_folder(&plan.path)?;
        for (name, entry) in &plan.entries {
            let path = join(&plan.path, name);
            match &entry.content {
                Content::Folder(_) => {}
                Content::Link(link) => {
                    rustix::fs::symlinkat(link.as_slice(), &folder, name.as_slice()).map_err(wrong(&path))?;
                    target.finish_other(&folder, name, &path, &entry.about, true)?;
                }
                Content::Fifo => {
                    let mode = Mode::from_raw_mode(0o600);
                    rustix::fs::mknodat(&folder, name.as_slice(), rustix::fs::FileType::Fifo, mode, 0)
                        .map_err(wrong(&path))?;
                    target.finish_other(&folder, name, &path, &entry.about, false)?;
                }
                Content::Inline { .. } | Content::Pieces { .. } => {
                    if entry.about.group != 0 {
                        let mut first = target.first.lock().unwrap_or_else(PoisonError::into_inner);
                        if first.contains_key(&entry.about.group) {
                            later.lock().unwrap_or_else(PoisonError::into_inner).push((path, entry.about.group));
                            continue;
                        }
                        first.insert(entry.about.group, path.clone());
                    }
                    self.write_file(target, &folder, name, &path, entry)?;
                }
            }
        }
        Ok(())
    }

    fn write_file(
        &self,
        target: &Target,
        folder: &OwnedFd,
        name: &[u8],
        path: &[u8],
        entry: &Entry,
    ) -> Result<(), Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o600)).map_err(wrong(path))?;
        let file = File::from(file);
        let io = |error: std::io::Error| Error::io("restore", path, &error);
        let mut end = 0;
        match &entry.content {
            Content::Inline { bytes, .. } => {
                target.charge(bytes.len())?;
                file.write_all_at(bytes, 0).map_err(io)?;
                end = bytes.len() as u64;
            }
            content => {
                for piece in self.pieces(content)? {
                    let raw = self.object(ObjectKind::Chunk, &piece.reference).map_err(|error| {
                        Error::new(error.kind, format!("{}: {error}", String::from_utf8_lossy(path)))
                    })?;
                    target.charge(raw.len())?;
                    file.write_all_at(&raw, piece.offset).map_err(io)?;
                    end = piece.offset + raw.len() as u64;
                }
            }
        }
        let size = entry.content.size();
        if size < end {
            return Err(Error::new(Kind::Damaged, "a file of a snapshot is longer than it says"));
        }
        if size > end {
            file.set_len(size).map_err(io)?;
        }
        target.finish(&file, path, &entry.about)
    }
}

impl Target {
    fn charge(&self, bytes: usize) -> Result<(), Error> {
        let before = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before + bytes as u64 > self.limit {
            return Err(Error::new(Kind::TooLarge, format!("the snapshot has more than {} bytes", self.limit)));
        }
        Ok(())
    }

    fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, Error> {
        beneath(&self.root, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(wrong(path))
    }

    fn make_folder(&self, path: &[u8]) -> Result<(), Error> {
        let (parent, name) = split(path);
        let parent = beneath(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY).map_err(wrong(path))?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)).map_err(wrong(path))
    }

    /// Gives a file its other names.
    fn link(&self, path: &[u8], group: u64) -> Result<(), Error> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let from = first.get(&group).expect("the first name was noted before the others");
        let (from_parent, from_name) = split(from);
        let (parent, name) = split(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let from = beneath(&self.root, from_parent, flags).map_err(wrong(path))?;
        let to = beneath(&self.root, parent, flags).map_err(wrong(path))?;
        rustix::fs::linkat(&from, from_name, &to, name, AtFlags::empty()).map_err(wrong(path))
    }

    fn ids(&self, about: &About) -> (u32, u32) {
        let id = |owner: Owner, workspace: u32| match owner {
            Owner::Workspace => workspace,
            Owner::Id(id) => id,
        };
        (id(about.uid, self.owner.0), id(about.gid, self.owner.1))
    }

    /// The mode that an entry gets. Nothing that belongs to the machine's root runs as it, unless all of
    /// the workspace does (hazard Z-16).
    fn mode(&self, about: &About) -> Mode {
        let is_root = self.ids(about).0 == 0 && self.owner.0 != 0;
        Mode::from_raw_mode(if is_root { about.mode & 0o1777 } else { about.mode & 0o7777 })
    }

    fn finish(&self, file: impl AsFd, path: &[u8], about: &About) -> Result<(), Error> {
        let (uid, gid) = self.ids(about);
        match rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            Err(Errno::PERM | Errno::INVAL) => self.lose(),
            other => other.map_err(wrong(path))?,
        }
        for (name, value) in &about.xattrs {
            match rustix::fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
                Err(Errno::NOTSUP | Errno::PERM | Errno::INVAL) => self.lose(),
                other => other.map_err(wrong(path))?,
            }
        }
        rustix::fs::fchmod(&file, self.mode(about)).map_err(wrong(path))?;
        rustix::fs::futimens(&file, &times(about)).map_err(wrong(path))
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`Self::finish`], for what cannot be opened.
    fn finish_other(
        &self,
        folder: &OwnedFd,
        name: &[u8],
        path: &[u8],
        about: &About,
        is_link: bool,
    ) -> Result<(), Error> {
        let (uid, gid) = self.ids(about);
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(folder, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), nofollow) {
            Err(Errno::PERM | Errno::INVAL) => self.lose(),
            other => other.map_err(wrong(path))?,
        }
        if !is_link {
            rustix::fs::chmodat(folder, name, self.mode(about), AtFlags::empty()).map_err(wrong(path))?;
        }
        rustix::fs::utimensat(folder, name, &times(about), nofollow).map_err(wrong(path))
    }

    fn finish_folder(&self, path: &[u8], about: &About) -> Result<(), Error> {
        let folder = self.open_folder(path)?;
        self.finish(&folder, path, about)
    }
}

/// A folder beside another one, gone again unless it takes its place.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn beside(folder: &Path) -> Result<Self, Error> {
        let name = folder.file_name().ok_or_else(|| Error::new(Kind::Invalid, "the folder has no name"))?;
        let id = Id(u128::from_be_bytes(random()));
        let path = folder.with_file_name(format!(".{}.restoring-{id}", name.to_string_lossy()));
        let wrong = |error: std::io::Error| Error::io("make", path.as_os_str().as_bytes(), &error);
        if let Some(parent) = folder.parent() {
            std::fs::create_dir_all(parent).map_err(wrong)?;
        }
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)).map_err(|error| wrong(error.into()))?;
        Ok(Self { path })
    }

    fn replace(self, folder: &Path) -> Result<(), Error> {
        let failed = |error: Errno| Error::io("replace", folder.as_os_str().as_bytes(), &error.into());
        match rustix::fs::renameat_with(CWD, &self.path, CWD, folder, RenameFlags::EXCHANGE) {
            // There was none; what is here now is the old one otherwise, and goes with the draft.
            Err(Errno::NOENT) => rustix::fs::rename(&self.path, folder).map_err(failed)?,
            other => other.map_err(failed)?,
        }
        let parent = folder.parent().unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| Error::io("replace", b".", &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return };
        // What cannot be removed is found by its name later; the folder itself is right.
        if let Ok(parent) = crate::Workspace::open(parent) {
            let _ = parent.remove_all(name.as_bytes());
        }
    }
}

/// Removes what restores that were killed left beside folders.
///
/// # Errors
/// When the folder cannot be listed.
pub fn remove_drafts(parent: &Path) -> Result<usize, Error> {
    let entries = match std::fs::read_dir(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(|error| Error::io("list", parent.as_os_str().as_bytes(), &error))?,
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") && name.to_string_lossy().contains(".restoring-") {
            crate::Workspace::open(parent)?.remove_all(name.as_bytes())?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn times(about: &About) -> Timestamps {
    let seconds = about.modified_ns.div_euclid(1_000_000_000);
    let nanos = about.modified_ns.rem_euclid(1_000_000_000);
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps { last_access: time, last_modification: time }
}

fn wrong(path: &[u8]) -> impl Fn(Errno) -> Error + '_ {
    move |error| Error::io("restore", path, &error.into())
}

pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, name].join(&b'/') }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
