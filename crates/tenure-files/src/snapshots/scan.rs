//! Looks through a folder: what is there, and what of it has changed since a snapshot.

use super::node::{About, Attribute, Content, Entry, Owner, Reference};
use super::open::for_reading;
use super::record::{MAX_NAMED, Reason, Record};
use crate::error::{Error, Kind};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

/// Folders in folders, at most.
const MAX_DEPTH: usize = 200;

/// A file whose times are so close to the moment at which it was looked at may change again without
/// a visible difference; it is read again next time. Kernels without fine time stamps tick every 10 ms.
const RACY_NS: i64 = 50_000_000;

/// What the system says of an entry; equal means unchanged, except in the racy moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    device: u64,
    inode: u64,
    size: i64,
    modified_ns: i64,
    changed_ns: i64,
    mode: u32,
    uid: u32,
    gid: u32,
    names: u64,
}

impl Look {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            names: u64::from(stat.st_nlink as u32),
        }
    }

    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }

    /// Whether content that was read while it looked so cannot have changed before `now_ns` unseen.
    fn is_settled(&self, now_ns: i64) -> bool {
        self.changed_ns.max(self.modified_ns) < now_ns - RACY_NS
    }
}

fn ns(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// An entry of the newest snapshot, and how it looked when it was read.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// None if it must be read again.
    pub(super) look: Option<Look>,
    pub(super) entry: Entry,
}

/// A folder of the newest snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownFolder {
    /// The stored objects that it is made of, the newest first.
    pub(super) forms: Vec<Reference>,
    pub(super) entries: BTreeMap<Vec<u8>, Known>,
}

/// What a session's newest snapshot holds, so that the next one reads only what has changed.
#[derive(Debug)]
pub struct Cache {
    pub(super) record: Record,
    pub(super) folders: HashMap<Vec<u8>, KnownFolder>,
    /// Packs that are better left, for they hold little that is of use.
    pub(super) wasteful: std::collections::HashSet<super::node::PackId>,
}

impl Cache {
    /// The snapshot that it tells of.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Entries that it remembers, for whoever bounds the memory of many.
    pub fn len(&self) -> usize {
        self.folders.values().map(|folder| folder.entries.len() + 1).sum()
    }

    /// Whether it remembers nothing.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }
}

/// What was found under a name.
pub(super) enum Found {
    /// As it was.
    Same(Known),
    /// A file to be read.
    File(usize),
    /// A folder; its number and how it looks from outside.
    Folder { number: usize, look: Look, about: About },
    /// All that is to be known.
    Whole(Known),
}

/// A folder that was looked through.
pub(super) struct Scanned {
    pub(super) path: Vec<u8>,
    pub(super) entries: BTreeMap<Vec<u8>, Found>,
}

/// A file that must be read.
pub(super) struct Job {
    pub(super) path: Vec<u8>,
    pub(super) look: Look,
    /// How many entries wait for it.
    pub(super) names: u32,
}

/// The whole folder, looked through.
pub(super) struct Scan {
    pub(super) folders: Vec<Scanned>,
    pub(super) jobs: Vec<Job>,
    pub(super) left_out: Vec<(Vec<u8>, Reason)>,
    pub(super) left_out_count: u64,
    pub(super) owner: (u32, u32),
    now_ns: i64,
    by_inode: HashMap<(u64, u64), usize>,
}

impl Scan {
    /// Looks through `root`, compared with what is known.
    #[allow(clippy::disallowed_methods, reason = "compared with the times of files, which this machine's clock gave")]
    pub(super) fn of(root: &OwnedFd, known: &HashMap<Vec<u8>, KnownFolder>) -> Result<Self, Error> {
        let stat = rustix::fs::fstat(root).map_err(|error| Error::io("look at", b".", &error.into()))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut scan = Self {
            folders: Vec::new(),
            jobs: Vec::new(),
            left_out: Vec::new(),
            left_out_count: 0,
            owner: (stat.st_uid, stat.st_gid),
            now_ns: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
            by_inode: HashMap::new(),
        };
        scan.folder(root, Vec::new(), known, 0)?;
        Ok(scan)
    }

    pub(super) fn leave_out(&mut self, path: Vec<u8>, reason: Reason) {
        self.left_out_count += 1;
        if self.left_out.len() < MAX_NAMED {
            self.left_out.push((path, reason));
        }
    }

    fn folder(
        &mut self,
        folder: &OwnedFd,
        path: Vec<u8>,
        known: &HashMap<Vec<u8>, KnownFolder>,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let message = format!("folders are nested deeper than {MAX_DEPTH}: {}", String::from_utf8_lossy(&path));
            return Err(Error::new(Kind::TooLarge, message));
        }
        let wrong = |error: Errno| Error::io("list", &path, &error.into());
        let number = self.folders.len();
        self.folders.push(Scanned { path: path.clone(), entries: BTreeMap::new() });
        let old = known.get(&path);
        let mut entries = BTreeMap::new();
        for entry in rustix::fs::Dir::read_from(folder).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            let inner = if path.is_empty() { name.clone() } else { [path.as_slice(), &name].join(&b'/') };
            let old = old.and_then(|old| old.entries.get(&name));
            if let Some(found) = self.entry(folder, &name, inner, old, known, depth)? {
                entries.insert(name, found);
            }
        }
        self.folders[number].entries = entries;
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        old: Option<&Known>,
        known: &HashMap<Vec<u8>, KnownFolder>,
        depth: usize,
    ) -> Result<Option<Found>, Error> {
        let wrong = |error: Errno| Error::io("look at", &path, &error.into());
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Gone meanwhile.
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.map_err(wrong)?,
        };
        let look = Look::of(&stat);
        let is_same = |known: &&Known| known.look == Some(look) && look.is_settled(self.now_ns);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let inner = match for_reading(folder, name, OFlags::DIRECTORY) {
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    inner => inner.map_err(wrong)?,
                };
                let look = Look::of(&rustix::fs::fstat(&inner).map_err(wrong)?);
                let about = match old.filter(|old| old.look == Some(look) && look.is_settled(self.now_ns)) {
                    Some(old) => old.entry.about.clone(),
                    None => {
                        let xattrs = self.xattrs(&inner, &path)?;
                        self.about(&look, xattrs)
                    }
                };
                let number = self.folders.len();
                self.folder(&inner, path, known, depth + 1)?;
                Ok(Some(Found::Folder { number, look, about }))
            }
            FileType::RegularFile => {
                if let Some(old) = old.filter(is_same) {
                    return Ok(Some(Found::Same(old.clone())));
                }
                if look.names > 1
                    && let Some(job) = self.by_inode.get(&(look.device, look.inode))
                {
                    self.jobs[*job].names += 1;
                    return Ok(Some(Found::File(*job)));
                }
                let job = self.jobs.len();
                self.jobs.push(Job { path, look, names: 1 });
                if look.names > 1 {
                    self.by_inode.insert((look.device, look.inode), job);
                }
                Ok(Some(Found::File(job)))
            }
            FileType::Symlink => {
                if let Some(old) = old.filter(is_same) {
                    return Ok(Some(Found::Same(old.clone())));
                }
                let target = match rustix::fs::readlinkat(folder, name, Vec::new()) {
                    Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
                    target => target.map_err(wrong)?.into_bytes(),
                };
                let entry = Entry { about: self.about(&look, Vec::new()), content: Content::Link(target) };
                Ok(Some(Found::Whole(Known { look: Some(look), entry })))
            }
            FileType::Fifo => {
                let entry = Entry { about: self.about(&look, Vec::new()), content: Content::Fifo };
                Ok(Some(Found::Whole(Known { look: Some(look), entry })))
            }
            FileType::Socket => {
                self.leave_out(path, Reason::Socket);
                Ok(None)
            }
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                self.leave_out(path, Reason::Device);
                Ok(None)
            }
        }
    }

    pub(super) fn about(&self, look: &Look, xattrs: Vec<Attribute>) -> About {
        let owner = |id: u32, workspace: u32| if id == workspace { Owner::Workspace } else { Owner::Id(id) };
        About {
            mode: look.mode & 0o7777,
            uid: owner(look.uid, self.owner.0),
            gid: owner(look.gid, self.owner.1),
            modified_ns: look.modified_ns,
            xattrs,
            group: 0,
        }
    }

    fn xattrs(&mut self, file: impl AsFd, path: &[u8]) -> Result<Vec<Attribute>, Error> {
        let (kept, is_cut) = xattrs(file, path)?;
        if is_cut {
            self.leave_out(path.to_vec(), Reason::Attribute);
        }
        Ok(kept)
    }

    /// The number of a file with several names.
    pub(super) fn group(look: &Look, names: u32) -> u64 {
        if names < 2 {
            return 0;
        }
        let mut bytes = look.device.to_le_bytes().to_vec();
        bytes.extend_from_slice(&look.inode.to_le_bytes());
        let hash = blake3::hash(&bytes);
        let mut short = [0; 8];
        short.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(short) | 1
    }
}

/// Attributes that belong to the files: those of users and access lists. Whether others were left out.
///
/// Attributes of overlays and security modules mean something to the machine they were set on, and
/// file capabilities would hold outside of the sandbox (hazard Z-16).
pub(super) fn xattrs(file: impl AsFd, path: &[u8]) -> Result<(Vec<Attribute>, bool), Error> {
    let wrong = |error: Errno| Error::io("read the attributes of", path, &error.into());
    let len = match rustix::fs::flistxattr_query(&file) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok((Vec::new(), false)),
        len => len.map_err(wrong)?,
    };
    let mut names = Vec::with_capacity(len + 256);
    rustix::fs::flistxattr(&file, rustix::buffer::spare_capacity(&mut names)).map_err(wrong)?;
    let (mut kept, mut is_cut) = (Vec::new(), false);
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"user.") && !name.starts_with(b"user.overlay.") || name.starts_with(b"system.posix_acl_") {
            let len = rustix::fs::fgetxattr_query(&file, name).map_err(wrong)?;
            let mut value = Vec::with_capacity(len + 1);
            rustix::fs::fgetxattr(&file, name, rustix::buffer::spare_capacity(&mut value)).map_err(wrong)?;
            kept.push((name.to_vec(), value));
        } else {
            is_cut |= name == b"security.capability";
        }
    }
    kept.sort_unstable();
    Ok((kept, is_cut))
}
