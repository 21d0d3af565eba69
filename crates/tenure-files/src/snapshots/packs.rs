//! Packs: many objects in one stored file, written by one snapshot, never changed.

use super::codec::{Reader, Writer};
use super::node::{PackId, Reference};
use super::record::{open_file, seal_file};
use super::seal::{FileKey, Hash, MAX_OBJECT, ObjectKind, compress, encrypt};
use super::store::{Snapshots, pack_name, pack_of};
use crate::error::{Error, Kind};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// A pack is stored when it holds so many bytes.
const PACK_BYTES: usize = 16 * 1024 * 1024;

const MAGIC: &[u8; 8] = b"TENPACK\n";

/// Length of the directory, its first bytes and the end mark, at the end of a pack.
const TAIL: usize = 12;

/// Packs that were stored, with their sizes, and the chunks in them.
pub(super) type Packed = (Vec<(PackId, u64)>, Vec<Reference>);

/// Packs that are being written for one snapshot.
pub(super) struct Packer<'a> {
    snapshots: &'a Snapshots,
    open: Mutex<Open>,
    done: Mutex<Done>,
    /// Chunks of other snapshots are used again.
    shares: bool,
    /// Packs whose chunks are not used again.
    avoid: HashSet<PackId>,
}

struct Open {
    id: PackId,
    key: Option<FileKey>,
    bytes: Vec<u8>,
    objects: Vec<(ObjectKind, Reference)>,
}

#[derive(Default)]
struct Done {
    packs: Vec<(PackId, u64)>,
    chunks: HashMap<Hash, Reference>,
    objects: Vec<Reference>,
}

impl<'a> Packer<'a> {
    pub(super) fn new(snapshots: &'a Snapshots, shares: bool, avoid: HashSet<PackId>) -> Self {
        Self { snapshots, open: Mutex::new(Open::new(snapshots)), done: Mutex::default(), shares, avoid }
    }

    /// Stores a piece of content, if it is not stored already.
    pub(super) fn chunk(&self, raw: &[u8]) -> Result<Reference, Error> {
        let hash = self.snapshots.sealer.hash(ObjectKind::Chunk, raw);
        let known = lock(&self.done).chunks.get(&hash).copied();
        let known = known.or_else(|| if self.shares { self.snapshots.seen().get(&hash) } else { None });
        if let Some(known) =
            known.filter(|known| known.raw_len as usize == raw.len() && !self.avoid.contains(&known.pack))
        {
            return Ok(known);
        }
        let reference = self.append(ObjectKind::Chunk, hash, raw)?;
        lock(&self.done).chunks.insert(hash, reference);
        Ok(reference)
    }

    /// Stores an object that is no chunk.
    pub(super) fn object(&self, kind: ObjectKind, raw: &[u8]) -> Result<Reference, Error> {
        self.append(kind, self.snapshots.sealer.hash(kind, raw), raw)
    }

    fn append(&self, kind: ObjectKind, hash: Hash, raw: &[u8]) -> Result<Reference, Error> {
        if raw.len() > MAX_OBJECT {
            return Err(Error::new(Kind::TooLarge, "a folder has too many entries for a snapshot"));
        }
        let mut stored = compress(raw);
        let mut open = lock(&self.open);
        let offset = open.bytes.len() as u64;
        encrypt(open.key.as_ref(), offset, &mut stored);
        let small = |len: usize| u32::try_from(len).expect("an object is smaller than 4 GiB");
        let reference =
            Reference { hash, pack: open.id, offset, stored_len: small(stored.len()), raw_len: small(raw.len()) };
        open.bytes.extend_from_slice(&stored);
        open.objects.push((kind, reference));
        if open.bytes.len() < PACK_BYTES {
            return Ok(reference);
        }
        let full = std::mem::replace(&mut *open, Open::new(self.snapshots));
        drop(open);
        self.store(full)?;
        Ok(reference)
    }

    fn store(&self, mut pack: Open) -> Result<(), Error> {
        if pack.objects.is_empty() {
            return Ok(());
        }
        let directory = seal_file(
            &self.snapshots.sealer,
            MAGIC,
            ObjectKind::Directory,
            &directory_name(&pack.id),
            &encode_directory(&pack.objects),
        );
        pack.bytes.extend_from_slice(&directory);
        let len = u32::try_from(directory.len()).expect("a directory is smaller than its pack");
        pack.bytes.extend_from_slice(&len.to_le_bytes());
        pack.bytes.extend_from_slice(MAGIC);
        self.snapshots.backend.put(&pack_name(&pack.id), &pack.bytes)?;
        let mut done = lock(&self.done);
        done.packs.push((pack.id, pack.bytes.len() as u64));
        let chunks = pack.objects.iter().filter(|(kind, _)| *kind == ObjectKind::Chunk);
        done.objects.extend(chunks.map(|(_, reference)| *reference));
        Ok(())
    }

    /// Stores what is open. Returns the packs with their sizes, and the chunks in them.
    pub(super) fn finish(self) -> Result<Packed, Error> {
        let open = std::mem::replace(&mut *lock(&self.open), Open::new(self.snapshots));
        self.store(open)?;
        let done = std::mem::take(&mut *lock(&self.done));
        Ok((done.packs, done.objects))
    }
}

impl Open {
    fn new(snapshots: &Snapshots) -> Self {
        let id = random();
        Self { id, key: snapshots.sealer.file_key(&id), bytes: Vec::new(), objects: Vec::new() }
    }
}

/// The directory is sealed like a file of its own, which no object of the pack shares a key with.
fn directory_name(id: &PackId) -> Vec<u8> {
    [b"directory".as_slice(), id].concat()
}

fn encode_directory(objects: &[(ObjectKind, Reference)]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(objects.len() as u64);
    for (kind, reference) in objects {
        writer.number(u64::from(*kind as u8));
        writer.number(reference.offset);
        writer.number(u64::from(reference.stored_len));
        writer.number(u64::from(reference.raw_len));
        writer.raw(&reference.hash);
    }
    writer.0
}

impl Snapshots {
    /// Learns which chunks other snapshots have stored meanwhile. What cannot be read is not learnt.
    pub(super) fn learn(&self) -> Result<(), Error> {
        for stored in self.backend.list("packs")? {
            let Some(pack) = pack_of(&stored.name) else { continue };
            if self.seen().knows(&pack) {
                continue;
            }
            if let Ok(chunks) = self.directory(&pack, stored.bytes) {
                let mut seen = self.seen();
                for chunk in chunks {
                    seen.add(chunk);
                }
            }
        }
        Ok(())
    }

    /// The chunks of a pack, from its own directory.
    fn directory(&self, pack: &PackId, bytes: u64) -> Result<Vec<Reference>, Error> {
        let damaged = || Error::new(Kind::Damaged, format!("the directory of {} is damaged", pack_name(pack)));
        let name = pack_name(pack);
        let tail_at = bytes.checked_sub(TAIL as u64).ok_or_else(damaged)?;
        let tail = self.backend.get_range(&name, tail_at, TAIL)?;
        let mut reader = Reader(&tail);
        let len = u32::from_le_bytes(reader.array()?);
        if reader.raw(MAGIC.len())? != MAGIC {
            return Err(damaged());
        }
        let at = tail_at.checked_sub(u64::from(len)).ok_or_else(damaged)?;
        let directory = self.backend.get_range(&name, at, len as usize)?;
        let raw = open_file(&self.sealer, MAGIC, ObjectKind::Directory, &directory_name(pack), &directory)?;
        let mut body = Reader(&raw);
        let mut chunks = Vec::new();
        for _ in 0..body.count()? {
            let kind = body.number()?;
            let reference = Reference {
                pack: *pack,
                offset: body.number()?,
                stored_len: body.small()?,
                raw_len: body.small()?,
                hash: body.array()?,
            };
            if kind == u64::from(ObjectKind::Chunk as u8) {
                chunks.push(reference);
            }
        }
        Ok(chunks)
    }

    /// Packs of which nothing is there any more.
    pub(super) fn gone(&self, packs: &[(PackId, u64)]) -> Result<HashSet<PackId>, Error> {
        let mut gone = HashSet::new();
        for (pack, bytes) in packs {
            match self.backend.size(&pack_name(pack))? {
                Some(size) if size == *bytes => {}
                Some(_) | None => {
                    gone.insert(*pack);
                }
            }
        }
        Ok(gone)
    }
}

/// Bytes that nobody else has.
pub(super) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
