//! The record of a snapshot: what makes it visible, written last.

use super::codec::{Reader, Writer};
use super::node::{Entry, PackId, decode_entry, encode_entry};
use super::seal::{FileKey, ObjectKind, Sealer, compress, encrypt};
use crate::error::{Error, Kind};
use std::fmt;

/// The newest form of records and packs that is written, and the newest that is read.
pub(super) const VERSION: u32 = 1;

/// Entries that were left out and are named; the others are counted.
pub const MAX_NAMED: usize = 1_000;

const MAGIC: &[u8; 8] = b"TENSNAP\n";

/// Names a snapshot; random or ordered by time, and used once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u128);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How far the files of a snapshot belong to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing could write while they were read.
    Frozen,
    /// Each file by itself is as it was at one moment.
    Fuzzy,
    /// Some files changed each time they were read; they may mix two versions.
    Torn,
}

/// Why an entry is not in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A socket: nothing of it could be kept.
    Socket,
    /// A device: none is ever restored.
    Device,
    /// An attribute that means something to the machine, not to the files.
    Attribute,
}

/// What is known of a snapshot.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its id.
    pub id: Id,
    /// Whose files these are.
    pub session: String,
    /// The epoch of the lease that took it.
    pub epoch: u64,
    /// The entry of the session's log that tells of it.
    pub seq: u64,
    /// The snapshot before it.
    pub parent: Option<Id>,
    /// When it was taken, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// How far its files belong to one moment.
    pub consistency: Consistency,
    /// Files, folders, links and FIFOs in it.
    pub entries: u64,
    /// Bytes of the files in it.
    pub bytes: u64,
    /// Bytes that were stored for it, beyond what was there already.
    pub new_bytes: u64,
    /// Entries and attributes that are not in it, as far as [`MAX_NAMED`], and why.
    pub left_out: Vec<(Vec<u8>, Reason)>,
    /// How many are not in it.
    pub left_out_count: u64,
    pub(super) packs: Vec<(PackId, u64)>,
    pub(super) root: Entry,
}

impl Record {
    pub(super) fn name(id: Id) -> String {
        format!("records/{id}")
    }

    pub(super) fn encode(&self, sealer: &Sealer) -> Vec<u8> {
        let mut body = Writer::default();
        body.bytes(self.session.as_bytes());
        body.number(self.epoch);
        body.number(self.seq);
        body.number(u64::from(self.parent.is_some()));
        body.raw(&self.parent.map_or([0; 16], |id| id.0.to_be_bytes()));
        body.number(self.taken_at_ms);
        body.number(match self.consistency {
            Consistency::Frozen => 0,
            Consistency::Fuzzy => 1,
            Consistency::Torn => 2,
        });
        body.number(self.entries);
        body.number(self.bytes);
        body.number(self.new_bytes);
        body.number(self.left_out.len() as u64);
        for (path, reason) in &self.left_out {
            body.bytes(path);
            body.number(match reason {
                Reason::Socket => 0,
                Reason::Device => 1,
                Reason::Attribute => 2,
            });
        }
        body.number(self.left_out_count);
        body.number(self.packs.len() as u64);
        for (pack, bytes) in &self.packs {
            body.raw(pack);
            body.number(*bytes);
        }
        body.bytes(&encode_entry(&self.root));
        seal_file(sealer, MAGIC, ObjectKind::Record, &key_name(self.id), &body.0)
    }

    pub(super) fn decode(sealer: &Sealer, id: Id, stored: &[u8]) -> Result<Self, Error> {
        let raw = open_file(sealer, MAGIC, ObjectKind::Record, &key_name(id), stored)?;
        let mut body = Reader(&raw);
        let session = String::from_utf8_lossy(body.bytes()?).into_owned();
        let epoch = body.number()?;
        let seq = body.number()?;
        let has_parent = body.number()? == 1;
        let parent = Id(u128::from_be_bytes(body.array()?));
        let taken_at_ms = body.number()?;
        let consistency = match body.number()? {
            0 => Consistency::Frozen,
            1 => Consistency::Fuzzy,
            2 => Consistency::Torn,
            _ => return Err(damaged()),
        };
        let (entries, bytes, new_bytes) = (body.number()?, body.number()?, body.number()?);
        let mut left_out = Vec::new();
        for _ in 0..body.count()? {
            let path = body.bytes()?.to_vec();
            let reason = match body.number()? {
                0 => Reason::Socket,
                1 => Reason::Device,
                2 => Reason::Attribute,
                _ => return Err(damaged()),
            };
            left_out.push((path, reason));
        }
        let left_out_count = body.number()?;
        let mut packs = Vec::new();
        for _ in 0..body.count()? {
            packs.push((body.array()?, body.number()?));
        }
        let root = decode_entry(body.bytes()?)?;
        body.end()?;
        Ok(Self {
            id,
            session,
            epoch,
            seq,
            parent: has_parent.then_some(parent),
            taken_at_ms,
            consistency,
            entries,
            bytes,
            new_bytes,
            left_out,
            left_out_count,
            packs,
            root,
        })
    }
}

/// No pack has a name of this form, so no key is used twice.
fn key_name(id: Id) -> Vec<u8> {
    [b"record".as_slice(), &id.0.to_be_bytes()].concat()
}

/// A whole small file: magic, version, hash, sealed content.
pub(super) fn seal_file(sealer: &Sealer, magic: &[u8; 8], kind: ObjectKind, name: &[u8], raw: &[u8]) -> Vec<u8> {
    let mut sealed = compress(raw);
    encrypt(sealer.file_key(name).as_ref(), 0, &mut sealed);
    let mut file = Writer::default();
    file.raw(magic);
    file.raw(&VERSION.to_le_bytes());
    file.raw(&sealer.hash(kind, raw));
    file.number(raw.len() as u64);
    file.bytes(&sealed);
    file.0
}

/// Opens what [`seal_file`] gave.
pub(super) fn open_file(
    sealer: &Sealer,
    magic: &[u8; 8],
    kind: ObjectKind,
    name: &[u8],
    stored: &[u8],
) -> Result<Vec<u8>, Error> {
    let mut file = Reader(stored);
    if file.raw(magic.len())? != magic {
        return Err(damaged());
    }
    check_version(u32::from_le_bytes(file.array()?))?;
    let hash = file.array()?;
    let raw_len = usize::try_from(file.number()?).map_err(|_| damaged())?;
    let sealed = file.bytes()?.to_vec();
    file.end()?;
    let key: Option<FileKey> = sealer.file_key(name);
    sealer.open(kind, key.as_ref(), 0, sealed, (&hash, raw_len))
}

pub(super) fn check_version(version: u32) -> Result<(), Error> {
    if version > VERSION {
        let message = format!(
            "the snapshots were written by a newer tenure (format {version}, this one reads {VERSION}); update this one"
        );
        return Err(Error::new(Kind::Newer, message));
    }
    Ok(())
}

fn damaged() -> Error {
    Error::new(Kind::Damaged, "the record of a snapshot is damaged")
}
