//! Takes a snapshot: reads what has changed, stores it, and makes the result visible last.

use super::node::{
    Attribute, Content, Entry, MAX_DEPTH, MAX_INLINE, Node, PackId, Piece, Reference, encode_pieces, is_long,
};
use super::open::for_reading;
use super::packs::Packer;
use super::record::{Consistency, Id, Reason, Record};
use super::scan::{Cache, Found, Job, Known, KnownFolder, Look, Scan, xattrs};
use super::seal::ObjectKind;
use super::store::{Snapshots, pack_name};
use crate::error::{Error, Kind};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Content up to so many bytes is one chunk.
const WHOLE_BYTES: u64 = 256 * 1024;

/// Smallest, usual and largest chunk of longer content.
const CHUNKS: (usize, usize, usize) = (64 * 1024, 256 * 1024, 1024 * 1024);

/// How often a file that changes while it is read is read anew.
const READS: u32 = 3;

/// Files from which on several threads read them.
const MANY: usize = 32;

/// Threads that read files.
const MAX_THREADS: usize = 8;

/// From so many bytes on it is worth looking what other sessions have stored.
const WORTH_LEARNING: u64 = 1024 * 1024;

/// Packs smaller than this are small.
const SMALL_PACK: u64 = 1024 * 1024;

/// Small packs that a snapshot refers to before it makes one of them.
const MAX_SMALL_PACKS: usize = 64;

/// Of a pack, one part in so many must be of use.
const MOST_WASTE: u64 = 4;

/// Bytes that one snapshot stores anew to leave wasteful packs.
const MAX_MOVED: u64 = 16 * 1024 * 1024;

/// What is to be taken.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The id of the snapshot.
    pub id: Id,
    /// Whose files they are.
    pub session: String,
    /// The epoch of the lease.
    pub epoch: u64,
    /// The entry of the session's log that will tell of it.
    pub seq: u64,
    /// The newest snapshot of these files.
    pub parent: Option<Id>,
    /// Now, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// Nothing can write while it is taken.
    pub is_frozen: bool,
}

/// A snapshot that was taken.
#[derive(Debug)]
pub struct Taken {
    /// Nothing had changed: the newest snapshot stands for this one too.
    pub is_new: bool,
    /// What the next one needs to be quick.
    pub cache: Cache,
}

/// A file that was read.
struct ReadFile {
    look: Look,
    xattrs: Vec<Attribute>,
    has_others: bool,
    content: Content,
    is_torn: bool,
}

impl Snapshots {
    /// Takes a snapshot of a folder. It is visible when this returns, and before that nothing of it
    /// is; whatever happened before stays usable.
    ///
    /// # Errors
    /// When the folder cannot be read as a whole, or the result cannot be stored.
    pub fn take(&self, folder: &Path, cache: Option<Cache>, plan: &Plan) -> Result<Taken, Error> {
        let cache = match (cache, plan.parent) {
            (Some(cache), _) => Some(cache),
            // A snapshot that cannot be read is no reason not to take another.
            (None, Some(parent)) => self.cache(parent).ok(),
            (None, None) => None,
        };
        match self.take_once(folder, cache, plan, true) {
            // Packs that were to be used again have been collected: everything is stored anew.
            Err(error) if error.kind == Kind::Gone => self.take_once(folder, None, plan, false),
            taken => taken,
        }
    }

    /// What a stored snapshot holds; everything is read again with its help, and stored only where
    /// it has changed.
    ///
    /// # Errors
    /// When the snapshot cannot be read.
    pub fn cache(&self, id: Id) -> Result<Cache, Error> {
        let record = self.record(id)?;
        let (mut folders, mut next) = (HashMap::new(), vec![(Vec::new(), record.root.clone())]);
        while let Some((path, entry)) = next.pop() {
            let Content::Folder(reference) = &entry.content else { continue };
            let folder = self.folder(reference)?;
            let mut entries = BTreeMap::new();
            for (name, mut entry) in folder.entries {
                if let Content::Pieces { list: Some(_), .. } = &entry.content {
                    let found = self.pieces(&entry.content)?;
                    if let Content::Pieces { pieces, .. } = &mut entry.content {
                        *pieces = found;
                    }
                }
                if matches!(entry.content, Content::Folder(_)) {
                    let inner = if path.is_empty() { name.clone() } else { [path.as_slice(), &name].join(&b'/') };
                    next.push((inner, entry.clone()));
                }
                if let Content::Pieces { pieces, .. } = &entry.content {
                    let mut seen = self.seen();
                    pieces.iter().for_each(|piece| seen.add(piece.reference));
                }
                entries.insert(name, Known { look: None, entry });
            }
            folders.insert(path, KnownFolder { forms: folder.forms, entries });
        }
        Ok(Cache { record, folders, wasteful: HashSet::new() })
    }

    fn take_once(&self, folder: &Path, cache: Option<Cache>, plan: &Plan, shares: bool) -> Result<Taken, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())
            .map_err(|error| Error::io("open", folder.as_os_str().as_bytes(), &error.into()))?;
        let (mut known, wasteful, parent) = match cache {
            Some(cache) => (cache.folders, cache.wasteful, Some(cache.record)),
            None => (HashMap::new(), HashSet::new(), None),
        };
        let mut scan = Scan::of(&root, &known)?;
        let work: u64 = scan.jobs.iter().map(|job| job.look.size()).sum();
        if shares && parent.is_none() && work > WORTH_LEARNING {
            self.learn()?;
        }
        let packer = Packer::new(self, shares, wasteful.clone());
        let read = read_all(&root, &scan.jobs, &packer)?;
        let is_torn = read.iter().flatten().any(|read| read.is_torn);
        let cut: Vec<Vec<u8>> = scan
            .jobs
            .iter()
            .zip(&read)
            .filter(|(_, read)| read.as_ref().is_some_and(|read| read.has_others))
            .map(|(job, _)| job.path.clone())
            .collect();
        for path in cut {
            scan.leave_out(path, Reason::Attribute);
        }
        let mut tree = Tree { snapshots: self, packer: &packer, wasteful: &wasteful, folders: HashMap::new() };
        let top = tree.store(&mut scan, &read, &mut known)?;
        let folders = tree.folders;
        let stat = rustix::fs::fstat(&root).map_err(|error| Error::io("look at", b".", &error.into()))?;
        let (root_xattrs, _) = xattrs(&root, b".")?;
        let root_entry = Entry { about: scan.about(&Look::of(&stat), root_xattrs), content: Content::Folder(top) };
        if let Some(parent) = &parent
            && parent.root == root_entry
            && wasteful.is_empty()
        {
            // Somebody may have removed it, and then it cannot stand for this one.
            if self.backend.size(&Record::name(parent.id))?.is_none() {
                return Err(Error::new(Kind::Gone, "the snapshot before was removed"));
            }
            let cache = Cache { record: parent.clone(), folders, wasteful };
            return Ok(Taken { is_new: false, cache });
        }
        let (written, chunks) = packer.finish()?;
        let mut record = Record {
            id: plan.id,
            session: plan.session.clone(),
            epoch: plan.epoch,
            seq: plan.seq,
            parent: plan.parent.or(parent.as_ref().map(|parent| parent.id)),
            taken_at_ms: plan.taken_at_ms,
            consistency: match (is_torn, plan.is_frozen) {
                (true, _) => Consistency::Torn,
                (false, true) => Consistency::Frozen,
                (false, false) => Consistency::Fuzzy,
            },
            entries: 0,
            bytes: 0,
            new_bytes: written.iter().map(|(_, bytes)| bytes).sum(),
            left_out: scan.left_out,
            left_out_count: scan.left_out_count,
            packs: Vec::new(),
            root: root_entry,
        };
        let live = count(&mut record, &folders);
        let known_packs = parent.iter().flat_map(|parent| &parent.packs).chain(&written);
        let sizes: HashMap<PackId, u64> = known_packs.copied().collect();
        for pack in live.keys() {
            let bytes = match sizes.get(pack) {
                Some(bytes) => *bytes,
                None => self.backend.size(&pack_name(pack))?.unwrap_or(0),
            };
            record.packs.push((*pack, bytes));
        }
        record.packs.sort_unstable();
        self.publish(&record)?;
        let mut seen = self.seen();
        for chunk in chunks {
            seen.add(chunk);
        }
        drop(seen);
        let wasteful = wasteful_packs(&record.packs, &live);
        Ok(Taken { is_new: true, cache: Cache { record, folders, wasteful } })
    }

    /// Makes the files of the snapshot `source` those of another session as well, as a snapshot of its own: no
    /// content is copied, and each of the two may be removed without the other. `source` stands before it if it
    /// belongs to the same line of snapshots.
    ///
    /// # Errors
    /// When there is no such snapshot, it cannot be read, or what it needs was collected.
    pub fn adopt(&self, source: Id, as_snapshot: Adopted) -> Result<Record, Error> {
        let Adopted { id, session, seq, is_in_line, taken_at_ms } = as_snapshot;
        let parent = is_in_line.then_some(source);
        let record = Record { id, session, epoch: 0, seq, parent, taken_at_ms, new_bytes: 0, ..self.record(source)? };
        self.publish(&record)?;
        Ok(record)
    }

    /// Makes a snapshot visible, if all that it needs is there. Nobody collects meanwhile (hazards
    /// Z-14, Z-15).
    fn publish(&self, record: &Record) -> Result<(), Error> {
        let _lock = self.backend.lock(false)?;
        let gone = self.gone(&record.packs)?;
        if !gone.is_empty() {
            self.seen().forget(&gone);
            return Err(Error::new(Kind::Gone, "packs of the snapshot were collected before it was whole"));
        }
        self.backend.put(&Record::name(record.id), &record.encode(&self.sealer))
    }
}

/// A snapshot that another session begins with.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// Its id; new.
    pub id: Id,
    /// Whose files these are.
    pub session: String,
    /// The entry of that session's log that tells of it.
    pub seq: u64,
    /// Whether the session's earlier events saw the snapshots that led to the source.
    pub is_in_line: bool,
    /// When that was, in milliseconds since 1970.
    pub taken_at_ms: u64,
}

/// Counts what is in a snapshot, and how many bytes of each pack it uses.
fn count(record: &mut Record, folders: &HashMap<Vec<u8>, KnownFolder>) -> HashMap<PackId, u64> {
    let mut live: HashMap<PackId, u64> = HashMap::new();
    let mut note = |reference: &Reference| {
        *live.entry(reference.pack).or_default() += u64::from(reference.stored_len);
    };
    for folder in folders.values() {
        folder.forms.iter().for_each(&mut note);
        for known in folder.entries.values() {
            record.entries += 1;
            record.bytes += known.entry.content.size();
            if !matches!(known.entry.content, Content::Folder(_)) {
                known.entry.content.references().for_each(&mut note);
            }
        }
    }
    live
}

/// Packs that the next snapshot leaves.
fn wasteful_packs(packs: &[(PackId, u64)], live: &HashMap<PackId, u64>) -> HashSet<PackId> {
    let used = |pack: &PackId| live.get(pack).copied().unwrap_or(0);
    let small: Vec<PackId> = packs.iter().filter(|(_, bytes)| *bytes < SMALL_PACK).map(|(pack, _)| *pack).collect();
    let small = if small.len() > MAX_SMALL_PACKS { small } else { Vec::new() };
    let wasted = packs.iter().filter(|(pack, bytes)| *bytes >= SMALL_PACK && used(pack) * MOST_WASTE < *bytes);
    let mut moved = 0;
    small
        .into_iter()
        .chain(wasted.map(|(pack, _)| *pack))
        .take_while(|pack| {
            moved += used(pack);
            moved <= MAX_MOVED
        })
        .collect()
}

/// Stores folders from the bottom to the top.
struct Tree<'a> {
    snapshots: &'a Snapshots,
    packer: &'a Packer<'a>,
    wasteful: &'a HashSet<PackId>,
    folders: HashMap<Vec<u8>, KnownFolder>,
}

impl Tree<'_> {
    /// Returns where the top folder is.
    fn store(
        &mut self,
        scan: &mut Scan,
        read: &[Option<ReadFile>],
        known: &mut HashMap<Vec<u8>, KnownFolder>,
    ) -> Result<Reference, Error> {
        let mut stored: HashMap<usize, Reference> = HashMap::new();
        // Folders come before what is in them, so from the end each finds its own stored.
        for number in (0..scan.folders.len()).rev() {
            let found = std::mem::take(&mut scan.folders[number].entries);
            let mut entries = BTreeMap::new();
            for (name, found) in found {
                let known = match found {
                    Found::Same(known) => Some(self.moved(known)?),
                    Found::Whole(known) => Some(known),
                    Found::File(job) => read[job].as_ref().map(|read| {
                        let mut about = scan.about(&read.look, read.xattrs.clone());
                        about.group = Scan::group(&read.look, scan.jobs[job].names);
                        let look = (!read.is_torn).then_some(read.look);
                        Known { look, entry: Entry { about, content: read.content.clone() } }
                    }),
                    Found::Folder { number, look, about } => {
                        let reference = stored.get(&number).expect("inner folders were stored before");
                        Some(Known { look: Some(look), entry: Entry { about, content: Content::Folder(*reference) } })
                    }
                };
                if let Some(known) = known {
                    entries.insert(name, known);
                }
            }
            let path = std::mem::take(&mut scan.folders[number].path);
            let folder = self.folder(known.remove(&path), entries)?;
            stored.insert(number, folder.forms[0]);
            self.folders.insert(path, folder);
        }
        Ok(stored[&0])
    }

    fn folder(&self, old: Option<KnownFolder>, entries: BTreeMap<Vec<u8>, Known>) -> Result<KnownFolder, Error> {
        let full = |entries: BTreeMap<Vec<u8>, Known>| {
            let node = Node::Full(entries.iter().map(|(name, known)| (name.clone(), known.entry.clone())).collect());
            let reference = self.packer.object(ObjectKind::Node, &node.encode())?;
            Ok(KnownFolder { forms: vec![reference], entries })
        };
        let old = old.filter(|old| old.forms.iter().all(|form| !self.wasteful.contains(&form.pack)));
        let Some(mut old) = old else { return full(entries) };
        let changed: BTreeMap<Vec<u8>, Entry> = entries
            .iter()
            .filter(|(name, known)| old.entries.get(*name).is_none_or(|old| old.entry != known.entry))
            .map(|(name, known)| (name.clone(), known.entry.clone()))
            .collect();
        let removed: BTreeSet<Vec<u8>> =
            old.entries.keys().filter(|name| !entries.contains_key(*name)).cloned().collect();
        if changed.is_empty() && removed.is_empty() {
            return Ok(KnownFolder { forms: old.forms, entries });
        }
        let depth = u32::try_from(old.forms.len()).unwrap_or(u32::MAX);
        if depth > MAX_DEPTH || (changed.len() + removed.len()) * 2 > entries.len() {
            return full(entries);
        }
        let node = Node::Delta { base: old.forms[0], depth, removed, changed };
        let reference = self.packer.object(ObjectKind::Node, &node.encode())?;
        old.forms.insert(0, reference);
        Ok(KnownFolder { forms: old.forms, entries })
    }

    /// Stores what is in wasteful packs anew.
    fn moved(&self, mut known: Known) -> Result<Known, Error> {
        if self.wasteful.is_empty() {
            return Ok(known);
        }
        if let Content::Pieces { pieces, list, .. } = &mut known.entry.content {
            let mut is_moved = list.is_some_and(|list| self.wasteful.contains(&list.pack));
            for piece in pieces.iter_mut().filter(|piece| self.wasteful.contains(&piece.reference.pack)) {
                let raw = self.snapshots.object(ObjectKind::Chunk, &piece.reference)?;
                piece.reference = self.packer.chunk(&raw)?;
                is_moved = true;
            }
            if is_moved && list.is_some() {
                *list = Some(self.packer.object(ObjectKind::Chunks, &encode_pieces(pieces))?);
            }
        }
        Ok(known)
    }
}

/// Reads all files that must be read; nothing for those that went away.
fn read_all(root: &OwnedFd, jobs: &[Job], packer: &Packer<'_>) -> Result<Vec<Option<ReadFile>>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS));
    if jobs.len() < MANY || threads == 1 {
        return jobs.iter().map(|job| read_file(root, job, packer)).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<ReadFile>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let lock_failed = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, job)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(number).map(|job| (number, job))
                } {
                    match read_file(root, job, packer) {
                        Ok(read) => results.lock().unwrap_or_else(PoisonError::into_inner)[number] = read,
                        Err(error) => {
                            lock_failed().get_or_insert(error);
                            next.store(jobs.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Reads one file, again if it changes meanwhile (case O-075).
fn read_file(root: &OwnedFd, job: &Job, packer: &Packer<'_>) -> Result<Option<ReadFile>, Error> {
    let wrong = |error: Errno| Error::io("read", &job.path, &error.into());
    let mut tries = 0;
    loop {
        tries += 1;
        let file = match for_reading(root, &job.path, OFlags::empty()) {
            // Gone, or a link by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            file => File::from(file.map_err(wrong)?),
        };
        let before = rustix::fs::fstat(&file).map_err(wrong)?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let content = content(&file, &before, packer).map_err(|error| match error {
            Failed::Ours(error) => error,
            Failed::Io(error) => Error::io("read", &job.path, &error),
        })?;
        let (xattrs, has_others) = xattrs(&file, &job.path)?;
        let (before, after) = (Look::of(&before), Look::of(&rustix::fs::fstat(&file).map_err(wrong)?));
        let is_torn = before != after;
        if !is_torn || tries >= READS {
            return Ok(Some(ReadFile { look: after, xattrs, has_others, content, is_torn }));
        }
    }
}

enum Failed {
    Ours(Error),
    Io(std::io::Error),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Failed {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

fn content(file: &File, stat: &rustix::fs::Stat, packer: &Packer<'_>) -> Result<Content, Failed> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let is_sparse = u64::try_from(stat.st_blocks).unwrap_or(0) * 512 < size;
    if size <= MAX_INLINE && !is_sparse {
        let bytes = read_range(file, 0, size)?;
        return Ok(Content::Inline { size: bytes.len() as u64, bytes });
    }
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < size {
        let (start, end) = if is_sparse {
            match data_from(file, at, size)? {
                Some(data) => data,
                None => break,
            }
        } else {
            (at, size)
        };
        at = end;
        if end - start <= WHOLE_BYTES {
            let bytes = read_range(file, start, end - start)?;
            if !bytes.is_empty() {
                pieces.push(Piece { offset: start, reference: packer.chunk(&bytes)? });
            }
            continue;
        }
        let range = Range { file, at: start, end };
        for chunk in fastcdc::v2020::StreamCDC::new(range, CHUNKS.0, CHUNKS.1, CHUNKS.2) {
            let chunk = chunk.map_err(|error| match error {
                fastcdc::v2020::Error::IoError(error) => Failed::Io(error),
                other => Failed::Io(std::io::Error::other(other.to_string())),
            })?;
            pieces.push(Piece { offset: start + chunk.offset, reference: packer.chunk(&chunk.data)? });
        }
    }
    if pieces.is_empty() {
        // One hole.
        return Ok(Content::Inline { size, bytes: Vec::new() });
    }
    let end = pieces.last().map_or(0, |piece| piece.offset + u64::from(piece.reference.raw_len));
    let list = if is_long(&pieces) { Some(packer.object(ObjectKind::Chunks, &encode_pieces(&pieces))?) } else { None };
    Ok(Content::Pieces { size: size.max(end), pieces, list })
}

/// The next part of a file that is no hole.
fn data_from(file: &File, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => return Ok(Some((at, size))),
        start => start?,
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some((start, end)))
}

/// So many bytes, or fewer if the file has become shorter.
fn read_range(file: &File, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// A part of a file.
struct Range<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
