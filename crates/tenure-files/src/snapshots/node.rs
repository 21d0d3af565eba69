//! A stored folder: its entries by name, or what changed since an earlier stored form of it.

use super::codec::{Reader, Writer};
use super::seal::Hash;
use crate::error::{Error, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Names a pack; random, and used once.
pub(super) type PackId = [u8; 16];

/// Content up to so many bytes is kept in the entry itself.
pub(super) const MAX_INLINE: u64 = 512;

/// Chunks that are listed in the entry; a longer list is an object of its own.
const MAX_LISTED: usize = 16;

/// Longest name of an entry.
const MAX_NAME: usize = 255;

/// Earlier forms of a folder that must be read to know it, at most.
pub(super) const MAX_DEPTH: u32 = 8;

/// Where an object is, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) hash: Hash,
    pub(super) pack: PackId,
    pub(super) offset: u64,
    pub(super) stored_len: u32,
    pub(super) raw_len: u32,
}

/// Who owns an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Whoever owns the workspace itself, here and wherever it is restored.
    Workspace,
    /// This id.
    Id(u32),
}

/// A piece of a file; what lies between pieces is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) reference: Reference,
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Inline {
        size: u64,
        bytes: Vec<u8>,
    },
    /// `list` is where the list of pieces is stored by itself, if it is long.
    Pieces {
        size: u64,
        pieces: Vec<Piece>,
        list: Option<Reference>,
    },
    Folder(Reference),
    Link(Vec<u8>),
    Fifo,
}

impl Content {
    /// The size of a file.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Inline { size, .. } | Self::Pieces { size, .. } => *size,
            Self::Folder(_) | Self::Link(_) | Self::Fifo => 0,
        }
    }

    /// Objects that it refers to itself.
    pub(super) fn references(&self) -> impl Iterator<Item = &Reference> {
        let (pieces, other): (&[Piece], Option<&Reference>) = match self {
            Self::Pieces { pieces, list, .. } => (pieces, list.as_ref()),
            Self::Folder(reference) => (&[], Some(reference)),
            Self::Inline { .. } | Self::Link(_) | Self::Fifo => (&[], None),
        };
        pieces.iter().map(|piece| &piece.reference).chain(other)
    }

    /// Whether it is the same to whoever reads it, wherever it is stored.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pieces { size, pieces, .. }, Self::Pieces { size: size2, pieces: pieces2, .. }) => {
                let same = |(a, b): (&Piece, &Piece)| a.offset == b.offset && a.reference.hash == b.reference.hash;
                size == size2 && pieces.len() == pieces2.len() && pieces.iter().zip(pieces2).all(same)
            }
            (Self::Folder(a), Self::Folder(b)) => a.hash == b.hash,
            (a, b) => a == b,
        }
    }
}

/// An extended attribute: its name and its value.
pub(super) type Attribute = (Vec<u8>, Vec<u8>);

/// What is known of a file, folder, link or FIFO besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    /// Permission bits with setuid, setgid and sticky.
    pub(super) mode: u32,
    pub(super) uid: Owner,
    pub(super) gid: Owner,
    pub(super) modified_ns: i64,
    pub(super) xattrs: Vec<Attribute>,
    /// Entries with the same number are names of one file; 0 for a file with one name.
    pub(super) group: u64,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) about: About,
    pub(super) content: Content,
}

/// A stored folder.
pub(super) enum Node {
    Full(BTreeMap<Vec<u8>, Entry>),
    Delta { base: Reference, depth: u32, removed: BTreeSet<Vec<u8>>, changed: BTreeMap<Vec<u8>, Entry> },
}

/// Packs that a node names, so that a reference is short.
#[derive(Default)]
struct Packs {
    ids: Vec<PackId>,
    by_id: BTreeMap<PackId, u64>,
}

impl Packs {
    fn number(&mut self, id: PackId) -> u64 {
        *self.by_id.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.ids.len() as u64 - 1
        })
    }
}

impl Node {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (mut packs, mut body) = (Packs::default(), Writer::default());
        let entries = match self {
            Self::Full(entries) => {
                body.number(0);
                entries
            }
            Self::Delta { base, depth, removed, changed } => {
                body.number(u64::from(*depth));
                write_reference(&mut body, &mut packs, base);
                body.number(removed.len() as u64);
                for name in removed {
                    body.bytes(name);
                }
                changed
            }
        };
        body.number(entries.len() as u64);
        for (name, entry) in entries {
            body.bytes(name);
            write_entry(&mut body, &mut packs, entry);
        }
        with_packs(&packs, body)
    }

    pub(super) fn decode(raw: &[u8]) -> Result<Self, Error> {
        let (packs, mut body) = packs_of(raw)?;
        let depth = body.small()?;
        let base = if depth == 0 {
            None
        } else {
            let base = read_reference(&mut body, &packs)?;
            let mut removed = BTreeSet::new();
            for _ in 0..body.count()? {
                removed.insert(name(body.bytes()?)?);
            }
            Some((base, removed))
        };
        let mut entries = BTreeMap::new();
        for _ in 0..body.count()? {
            let name = name(body.bytes()?)?;
            entries.insert(name, read_entry(&mut body, &packs)?);
        }
        body.end()?;
        match base {
            None => Ok(Self::Full(entries)),
            Some(_) if depth > MAX_DEPTH => Err(damaged()),
            Some((base, removed)) => Ok(Self::Delta { base, depth, removed, changed: entries }),
        }
    }
}

/// The pieces of a file, as an object of their own.
pub(super) fn encode_pieces(pieces: &[Piece]) -> Vec<u8> {
    let (mut packs, mut body) = (Packs::default(), Writer::default());
    write_pieces(&mut body, &mut packs, pieces);
    with_packs(&packs, body)
}

pub(super) fn decode_pieces(raw: &[u8]) -> Result<Vec<Piece>, Error> {
    let (packs, mut body) = packs_of(raw)?;
    let pieces = read_pieces(&mut body, &packs)?;
    body.end()?;
    Ok(pieces)
}

/// Whether pieces are listed by themselves.
pub(super) fn is_long(pieces: &[Piece]) -> bool {
    pieces.len() > MAX_LISTED
}

/// An entry by itself, as a record keeps the top folder.
pub(super) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let (mut packs, mut body) = (Packs::default(), Writer::default());
    write_entry(&mut body, &mut packs, entry);
    with_packs(&packs, body)
}

pub(super) fn decode_entry(raw: &[u8]) -> Result<Entry, Error> {
    let (packs, mut body) = packs_of(raw)?;
    let entry = read_entry(&mut body, &packs)?;
    body.end()?;
    Ok(entry)
}

fn with_packs(packs: &Packs, body: Writer) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(packs.ids.len() as u64);
    for id in &packs.ids {
        writer.raw(id);
    }
    writer.raw(&body.0);
    writer.0
}

fn packs_of(raw: &[u8]) -> Result<(Vec<PackId>, Reader<'_>), Error> {
    let mut reader = Reader(raw);
    let count = reader.count()?;
    let mut packs = Vec::new();
    for _ in 0..count {
        packs.push(reader.array()?);
    }
    Ok((packs, reader))
}

fn write_reference(body: &mut Writer, packs: &mut Packs, reference: &Reference) {
    body.number(packs.number(reference.pack));
    body.number(reference.offset);
    body.number(u64::from(reference.stored_len));
    body.number(u64::from(reference.raw_len));
    body.raw(&reference.hash);
}

fn read_reference(body: &mut Reader<'_>, packs: &[PackId]) -> Result<Reference, Error> {
    let number = usize::try_from(body.number()?).map_err(|_| damaged())?;
    Ok(Reference {
        pack: *packs.get(number).ok_or_else(damaged)?,
        offset: body.number()?,
        stored_len: body.small()?,
        raw_len: body.small()?,
        hash: body.array()?,
    })
}

fn write_pieces(body: &mut Writer, packs: &mut Packs, pieces: &[Piece]) {
    body.number(pieces.len() as u64);
    let mut end = 0;
    for piece in pieces {
        // The hole before it.
        body.number(piece.offset - end);
        write_reference(body, packs, &piece.reference);
        end = piece.offset + u64::from(piece.reference.raw_len);
    }
}

fn read_pieces(body: &mut Reader<'_>, packs: &[PackId]) -> Result<Vec<Piece>, Error> {
    let (mut pieces, mut end) = (Vec::new(), 0u64);
    for _ in 0..body.count()? {
        let offset = end.checked_add(body.number()?).ok_or_else(damaged)?;
        let reference = read_reference(body, packs)?;
        end = offset.checked_add(u64::from(reference.raw_len)).ok_or_else(damaged)?;
        pieces.push(Piece { offset, reference });
    }
    Ok(pieces)
}

fn write_owner(body: &mut Writer, owner: Owner) {
    body.number(match owner {
        Owner::Workspace => 0,
        Owner::Id(id) => u64::from(id) + 1,
    });
}

fn read_owner(body: &mut Reader<'_>) -> Result<Owner, Error> {
    match body.number()?.checked_sub(1) {
        None => Ok(Owner::Workspace),
        Some(id) => u32::try_from(id).map(Owner::Id).map_err(|_| damaged()),
    }
}

const INLINE: u64 = 0;
const PIECES: u64 = 1;
const LISTED: u64 = 2;
const FOLDER: u64 = 3;
const LINK: u64 = 4;
const FIFO: u64 = 5;

fn write_entry(body: &mut Writer, packs: &mut Packs, entry: &Entry) {
    let About { mode, uid, gid, modified_ns, xattrs, group } = &entry.about;
    body.number(u64::from(*mode));
    write_owner(body, *uid);
    write_owner(body, *gid);
    body.signed(*modified_ns);
    body.number(xattrs.len() as u64);
    for (name, value) in xattrs {
        body.bytes(name);
        body.bytes(value);
    }
    body.number(*group);
    match &entry.content {
        Content::Inline { size, bytes } => {
            body.number(INLINE);
            body.number(*size);
            body.bytes(bytes);
        }
        Content::Pieces { size, list: Some(list), .. } => {
            body.number(LISTED);
            body.number(*size);
            write_reference(body, packs, list);
        }
        Content::Pieces { size, pieces, list: None } => {
            body.number(PIECES);
            body.number(*size);
            write_pieces(body, packs, pieces);
        }
        Content::Folder(reference) => {
            body.number(FOLDER);
            write_reference(body, packs, reference);
        }
        Content::Link(target) => {
            body.number(LINK);
            body.bytes(target);
        }
        Content::Fifo => body.number(FIFO),
    }
}

fn read_entry(body: &mut Reader<'_>, packs: &[PackId]) -> Result<Entry, Error> {
    let mode = body.small()?;
    let (uid, gid) = (read_owner(body)?, read_owner(body)?);
    let modified_ns = body.signed()?;
    let mut xattrs = Vec::new();
    for _ in 0..body.count()? {
        xattrs.push((body.bytes()?.to_vec(), body.bytes()?.to_vec()));
    }
    let about = About { mode, uid, gid, modified_ns, xattrs, group: body.number()? };
    let content = match body.number()? {
        INLINE => {
            let size = body.number()?;
            let bytes = body.bytes()?.to_vec();
            // Either all of it, or a file that is one hole.
            if bytes.len() as u64 != size && !bytes.is_empty() {
                return Err(damaged());
            }
            Content::Inline { size, bytes }
        }
        PIECES => Content::Pieces { size: body.number()?, pieces: read_pieces(body, packs)?, list: None },
        // The pieces are read when they are needed.
        LISTED => {
            Content::Pieces { size: body.number()?, list: Some(read_reference(body, packs)?), pieces: Vec::new() }
        }
        FOLDER => Content::Folder(read_reference(body, packs)?),
        LINK => Content::Link(body.bytes()?.to_vec()),
        FIFO => Content::Fifo,
        _ => return Err(damaged()),
    };
    Ok(Entry { about, content })
}

/// A name that can be one entry of a folder, and nothing that leads elsewhere.
fn name(name: &[u8]) -> Result<Vec<u8>, Error> {
    let is_wrong = name.is_empty()
        || name.len() > MAX_NAME
        || name == b"."
        || name == b".."
        || name.iter().any(|byte| *byte == b'/' || *byte == 0);
    if is_wrong { Err(damaged()) } else { Ok(name.to_vec()) }
}

fn damaged() -> Error {
    Error::new(Kind::Damaged, "a stored folder of a snapshot cannot be read")
}
