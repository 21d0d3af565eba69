//! How an object becomes stored bytes: compressed where it helps, encrypted if there is a key, and
//! named by a keyed hash of its content.

use crate::error::{Error, Kind};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::cell::RefCell;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Largest object before compression: a chunk or a node.
pub(super) const MAX_OBJECT: usize = 64 * 1024 * 1024;

/// Compressed further would cost more time than it saves space.
const LEVEL: i32 = 3;

/// Fill of a compressed object, in hundredths, above which it is kept as it is.
const WORTH_PERCENT: usize = 97;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// What an object is; a part of its hash, so that no file can be passed off as a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ObjectKind {
    Chunk = 1,
    Node = 2,
    Record = 3,
    Directory = 4,
    Chunks = 5,
}

/// A hash of content.
pub(super) type Hash = [u8; 32];

/// Turns objects into stored bytes and back.
pub(super) struct Sealer {
    hash_key: [u8; 32],
    /// The key that keys are made from; none stores in the clear.
    master: Option<[u8; KEY_BYTES]>,
}

thread_local! {
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Sealer {
    pub(super) fn new(key: Option<&[u8; KEY_BYTES]>) -> Self {
        let secret: &[u8] = key.map_or(b"no key", |key| key);
        Self { hash_key: blake3::derive_key("tenure snapshots 1: names of objects", secret), master: key.copied() }
    }

    /// Says which key is in use, without saying the key.
    pub(super) fn key_check(&self) -> Hash {
        *blake3::keyed_hash(&self.hash_key, b"key check").as_bytes()
    }

    pub(super) fn is_encrypting(&self) -> bool {
        self.master.is_some()
    }

    pub(super) fn hash(&self, kind: ObjectKind, raw: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.hash_key);
        hasher.update(&[kind as u8]).update(raw);
        *hasher.finalize().as_bytes()
    }

    /// The key of one file; `name` is used for no other one.
    pub(super) fn file_key(&self, name: &[u8]) -> Option<FileKey> {
        let master = self.master?;
        let mut secret = master.to_vec();
        secret.extend_from_slice(name);
        let key = blake3::derive_key("tenure snapshots 1: key of one file", &secret);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the right length");
        Some(FileKey(LessSafeKey::new(key)))
    }

    /// Opens stored bytes and makes sure that they are what `hash` names.
    pub(super) fn open(
        &self,
        kind: ObjectKind,
        key: Option<&FileKey>,
        place: u64,
        stored: Vec<u8>,
        wanted: (&Hash, usize),
    ) -> Result<Vec<u8>, Error> {
        let (hash, raw_len) = wanted;
        let raw = self.open_unchecked(key, place, stored, raw_len)?;
        if raw.len() != raw_len || self.hash(kind, &raw) != *hash {
            return Err(damaged());
        }
        Ok(raw)
    }

    fn open_unchecked(
        &self,
        key: Option<&FileKey>,
        place: u64,
        mut stored: Vec<u8>,
        raw_len: usize,
    ) -> Result<Vec<u8>, Error> {
        if raw_len > MAX_OBJECT {
            return Err(damaged());
        }
        if let Some(key) = key {
            let opened = key.0.open_in_place(nonce(place), Aad::empty(), &mut stored).map_err(|_| damaged())?;
            let len = opened.len();
            stored.truncate(len);
        }
        match stored.split_first() {
            Some((&PLAIN, raw)) => Ok(raw.to_vec()),
            Some((&ZSTD, packed)) => DECOMPRESSOR.with_borrow_mut(|decompressor| {
                if decompressor.is_none() {
                    *decompressor = zstd::bulk::Decompressor::new().ok();
                }
                let decompressor = decompressor.as_mut().ok_or_else(damaged)?;
                decompressor.decompress(packed, raw_len).map_err(|_| damaged())
            }),
            Some(_) | None => Err(damaged()),
        }
    }
}

/// The key of one file.
pub(super) struct FileKey(LessSafeKey);

/// Compresses, where that helps.
pub(super) fn compress(raw: &[u8]) -> Vec<u8> {
    let packed = COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        compressor.as_mut().and_then(|compressor| compressor.compress(raw).ok())
    });
    let (flag, content): (u8, &[u8]) = match &packed {
        Some(packed) if packed.len() * 100 < raw.len() * WORTH_PERCENT => (ZSTD, packed),
        Some(_) | None => (PLAIN, raw),
    };
    let mut stored = Vec::with_capacity(content.len() + 1 + AES_256_GCM.tag_len());
    stored.push(flag);
    stored.extend_from_slice(content);
    stored
}

/// Encrypts what [`compress`] gave. No two objects of a file have the same place.
pub(super) fn encrypt(key: Option<&FileKey>, place: u64, stored: &mut Vec<u8>) {
    if let Some(key) = key {
        let sealed = key.0.seal_in_place_append_tag(nonce(place), Aad::empty(), stored);
        sealed.expect("an object is far smaller than the cipher allows");
    }
}

fn nonce(place: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn damaged() -> Error {
    Error::new(Kind::Damaged, "an object of a snapshot is damaged: its content is not what its name says")
}
