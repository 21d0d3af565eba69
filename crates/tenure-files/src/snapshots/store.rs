//! The folder of snapshots: opens it, reads objects, lists records.

use super::backend::{Backend, DRAFT};
use super::codec::{Reader, Writer};
use super::node::{Content, Entry, Node, PackId, Piece, Reference, decode_pieces};
use super::record::{Id, Record, VERSION, check_version};
use super::seal::{Hash, KEY_BYTES, ObjectKind, Sealer};
use crate::error::{Error, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Names the file that says what the others are.
const FORMAT: &str = "format";

const FORMAT_MAGIC: &[u8; 8] = b"TENSNAPS";

/// Chunks that are remembered, so that the same content is not stored twice.
const MAX_SEEN: usize = 1_000_000;

/// Snapshots of many sessions that share their content.
pub struct Snapshots {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) sealer: Sealer,
    pub(super) seen: Mutex<Seen>,
}

/// Chunks that are stored already.
#[derive(Default)]
pub(super) struct Seen {
    chunks: HashMap<Hash, Reference>,
    packs: HashSet<PackId>,
}

impl Seen {
    pub(super) fn get(&self, hash: &Hash) -> Option<Reference> {
        self.chunks.get(hash).copied()
    }

    pub(super) fn add(&mut self, reference: Reference) {
        if self.chunks.len() >= MAX_SEEN {
            // Only space is lost: what is not remembered is stored once more.
            self.chunks.clear();
        }
        self.packs.insert(reference.pack);
        self.chunks.insert(reference.hash, reference);
    }

    pub(super) fn knows(&self, pack: &PackId) -> bool {
        self.packs.contains(pack)
    }

    pub(super) fn forget(&mut self, packs: &HashSet<PackId>) {
        self.chunks.retain(|_, reference| !packs.contains(&reference.pack));
        self.packs.retain(|pack| !packs.contains(pack));
    }
}

impl std::fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshots").field("encrypted", &self.sealer.is_encrypting()).finish_non_exhaustive()
    }
}

impl Snapshots {
    /// Opens what a backend keeps, and makes it if it keeps nothing yet. With a key, everything that
    /// is stored is encrypted with it.
    ///
    /// # Errors
    /// When it was written with another key, or by a newer version, or cannot be read.
    pub fn open(backend: Arc<dyn Backend>, key: Option<&[u8; KEY_BYTES]>) -> Result<Self, Error> {
        let snapshots = Self { backend, sealer: Sealer::new(key), seen: Mutex::default() };
        let format = match snapshots.backend.get(FORMAT) {
            Err(error) if error.kind == Kind::NotFound => {
                let mut writer = Writer::default();
                writer.raw(FORMAT_MAGIC);
                writer.raw(&VERSION.to_le_bytes());
                writer.raw(&snapshots.sealer.key_check());
                match snapshots.backend.put(FORMAT, &writer.0) {
                    Ok(()) => writer.0,
                    // Somebody else was first.
                    Err(error) if error.kind == Kind::Exists => snapshots.backend.get(FORMAT)?,
                    Err(error) => return Err(error),
                }
            }
            format => format?,
        };
        let damaged = || Error::new(Kind::Damaged, "the file that says how the snapshots are stored is damaged");
        let mut reader = Reader(&format);
        if reader.raw(FORMAT_MAGIC.len()).map_err(|_| damaged())? != FORMAT_MAGIC {
            return Err(damaged());
        }
        check_version(u32::from_le_bytes(reader.array().map_err(|_| damaged())?))?;
        if reader.array::<32>().map_err(|_| damaged())? != snapshots.sealer.key_check() {
            let used = if snapshots.sealer.is_encrypting() { "this key" } else { "no key" };
            let message =
                format!("the snapshots cannot be opened with {used}: give the key that they were stored with");
            return Err(Error::new(Kind::WrongKey, message));
        }
        Ok(snapshots)
    }

    /// What is known of a snapshot.
    ///
    /// # Errors
    /// When there is none, or its record is damaged or newer than this program.
    pub fn record(&self, id: Id) -> Result<Record, Error> {
        let stored = self.backend.get(&Record::name(id)).map_err(|error| match error.kind {
            Kind::NotFound => Error::new(Kind::NotFound, format!("there is no snapshot {id}")),
            _ => error,
        })?;
        Record::decode(&self.sealer, id, &stored)
            .map_err(|error| Error::new(error.kind, format!("snapshot {id}: {error}")))
    }

    /// All snapshots, oldest names first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn ids(&self) -> Result<Vec<Id>, Error> {
        let stored = self.backend.list("records")?;
        let names = stored.iter().filter(|stored| !stored.name.ends_with(DRAFT));
        names
            .map(|stored| {
                let name = stored.name.trim_start_matches("records/");
                u128::from_str_radix(name, 16)
                    .map(Id)
                    .map_err(|_| Error::new(Kind::Damaged, format!("{} is no record of a snapshot", stored.name)))
            })
            .collect()
    }

    /// Removes a snapshot. What only it needed is collected later.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, id: Id) -> Result<(), Error> {
        self.backend.remove(&Record::name(id))
    }

    /// Removes a snapshot and those before it, of the same session.
    ///
    /// # Errors
    /// When one cannot be read or removed; those before it stay then.
    pub fn remove_chain(&self, newest: Id, session: &str) -> Result<(), Error> {
        let mut next = Some(newest);
        while let Some(id) = next {
            let record = match self.record(id) {
                Err(error) if error.kind == Kind::NotFound => return Ok(()),
                record => record?,
            };
            if record.session != session {
                return Ok(());
            }
            self.remove(id)?;
            next = record.parent;
        }
        Ok(())
    }

    pub(super) fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an object, and makes sure that it is the one.
    pub(super) fn object(&self, kind: ObjectKind, reference: &Reference) -> Result<Vec<u8>, Error> {
        let name = pack_name(&reference.pack);
        let stored = self.backend.get_range(&name, reference.offset, reference.stored_len as usize);
        let stored = stored.map_err(|error| match error.kind {
            Kind::NotFound => Error::new(Kind::Damaged, format!("{name} is missing")),
            _ => error,
        })?;
        let key = self.sealer.file_key(&reference.pack);
        let wanted = (&reference.hash, reference.raw_len as usize);
        self.sealer
            .open(kind, key.as_ref(), reference.offset, stored, wanted)
            .map_err(|error| Error::new(error.kind, format!("{name}: {error}")))
    }

    /// The entries of a stored folder.
    pub(super) fn folder(&self, reference: &Reference) -> Result<Folder, Error> {
        let (mut chain, mut next) = (Vec::new(), Some(*reference));
        let (mut entries, mut last_depth) = (BTreeMap::new(), u32::MAX);
        let mut forms = Vec::new();
        while let Some(reference) = next.take() {
            forms.push(reference);
            match Node::decode(&self.object(ObjectKind::Node, &reference)?)? {
                Node::Full(full) => entries = full,
                Node::Delta { base, depth, removed, changed } => {
                    if depth >= last_depth {
                        return Err(Error::new(Kind::Damaged, "a stored folder of a snapshot leads in a circle"));
                    }
                    last_depth = depth;
                    chain.push((removed, changed));
                    next = Some(base);
                }
            }
        }
        for (removed, changed) in chain.into_iter().rev() {
            entries.retain(|name, _| !removed.contains(name));
            entries.extend(changed);
        }
        Ok(Folder { entries, forms })
    }

    /// The pieces of a file, also if they are listed elsewhere.
    pub(super) fn pieces(&self, content: &Content) -> Result<Vec<Piece>, Error> {
        match content {
            Content::Pieces { pieces, list: Some(list), .. } if pieces.is_empty() => {
                decode_pieces(&self.object(ObjectKind::Chunks, list)?)
            }
            Content::Pieces { pieces, .. } => Ok(pieces.clone()),
            Content::Inline { .. } | Content::Folder(_) | Content::Link(_) | Content::Fifo => Ok(Vec::new()),
        }
    }
}

/// A folder as it is stored.
pub(super) struct Folder {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    /// The objects that it is made of, the newest first.
    pub(super) forms: Vec<Reference>,
}

pub(super) fn pack_name(id: &PackId) -> String {
    let hex = Id(u128::from_be_bytes(*id)).to_string();
    format!("packs/{}/{hex}", &hex[..2])
}

/// The pack that a name says; `None` for anything else.
pub(super) fn pack_of(name: &str) -> Option<PackId> {
    let hex = name.rsplit('/').next()?;
    (hex.len() == 32).then(|| u128::from_str_radix(hex, 16).ok()).flatten().map(u128::to_be_bytes)
}
