//! Tar in and out. Links come last and are checked, devices are refused, everything is bounded
//! (case O-070, hazard Z-42).

use crate::error::{Error, Kind};
use crate::path::{join, parts};
use crate::workspace::{EntryKind, New, Sync, Workspace};
use rustix::fs::AtFlags;
use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::EntryType;

/// Bounds of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportLimits {
    /// Most entries.
    pub entries: usize,
    /// Most bytes of content together.
    pub bytes: u64,
    /// Deepest path.
    pub depth: usize,
    /// How often the size of the archive its content may be; small archives are free of it.
    pub ratio: u64,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { entries: 200_000, bytes: 4 * 1024 * 1024 * 1024, depth: 128, ratio: 1_000 }
    }
}

/// What an import brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Files, folders and links.
    pub entries: usize,
    /// Bytes of content.
    pub bytes: u64,
    /// Entries that were left out: devices, FIFOs and the like.
    pub skipped: usize,
}

impl Workspace {
    /// Writes everything below `path` as a tar stream; sockets and devices are left out.
    ///
    /// # Errors
    /// When `path` is no folder, or the stream cannot be written.
    pub fn export_tar(&self, path: &[u8], writer: &mut dyn Write) -> Result<(), Error> {
        let mut tar = tar::Builder::new(writer);
        let start: Vec<u8> = join(&parts(path)?);
        let mut open = vec![(start, Vec::new())];
        while let Some((folder, name)) = open.pop() {
            for entry in self.entries(&folder)? {
                let inside = [folder.as_slice(), b"/", &entry.name].concat();
                let outside =
                    if name.is_empty() { entry.name.clone() } else { [name.as_slice(), b"/", &entry.name].concat() };
                let mut header = tar::Header::new_gnu();
                header.set_mode(entry.mode);
                header.set_mtime(u64::try_from(entry.modified_ns / 1_000_000_000).unwrap_or(0));
                header.set_size(0);
                let path = Path::new(OsStr::from_bytes(&outside));
                let wrong = |error: std::io::Error| Error::io("archive", &outside, &error);
                match entry.kind {
                    EntryKind::Directory => {
                        header.set_entry_type(EntryType::Directory);
                        tar.append_data(&mut header, path, std::io::empty()).map_err(wrong)?;
                        open.push((inside, outside.clone()));
                    }
                    EntryKind::File => {
                        // A file that went away or changed its kind meanwhile is left out.
                        let Ok(open_file) = self.open_read(&inside) else { continue };
                        header.set_entry_type(EntryType::Regular);
                        header.set_size(open_file.size_bytes);
                        tar.append_data(&mut header, path, in_tar(open_file.file, open_file.size_bytes))
                            .map_err(wrong)?;
                    }
                    EntryKind::Symlink => {
                        header.set_entry_type(EntryType::Symlink);
                        let target = entry.target.unwrap_or_default();
                        tar.append_link(&mut header, path, Path::new(OsStr::from_bytes(&target))).map_err(wrong)?;
                    }
                    EntryKind::Fifo | EntryKind::Socket | EntryKind::Other => {}
                }
            }
        }
        tar.finish().map_err(|error| Error::io("archive", path, &error))
    }

    /// Takes in a tar stream below `path`. Entries before a refused one stay. What was taken in is on
    /// the disk when this returns.
    ///
    /// # Errors
    /// When a name or a link leads out, a bound is passed, or the stream is damaged.
    pub fn import_tar(&self, path: &[u8], reader: &mut dyn Read, limits: ImportLimits) -> Result<Imported, Error> {
        let base: Vec<Vec<u8>> = parts(path)?.into_iter().map(<[u8]>::to_vec).collect();
        let meter = Meter::default();
        let mut archive = tar::Archive::new(Metered { reader, meter: &meter });
        let (mut imported, mut links, mut folders) = (Imported::default(), Vec::new(), Vec::new());
        let mut entries = archive.entries().map_err(damaged)?;
        loop {
            // The library reads names of any length into memory before it gives an entry.
            meter.room.set(HEADER_BYTES);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(damaged)?;
            meter.room.set(u64::MAX);
            imported.entries += 1;
            if imported.entries > limits.entries {
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("the archive holds more than {} entries", limits.entries),
                ));
            }
            let name = entry.path_bytes().into_owned();
            if name.starts_with(b"/") {
                return Err(Error::new(
                    Kind::Escapes,
                    format!("{} is an absolute path", String::from_utf8_lossy(&name)),
                ));
            }
            let inside = parts(&name)?;
            let whole: Vec<&[u8]> = base.iter().map(Vec::as_slice).chain(inside.iter().copied()).collect();
            if whole.len() > limits.depth {
                return Err(Error::new(Kind::TooLarge, format!("a path is deeper than {}", limits.depth)));
            }
            let header = entry.header();
            let mode = header.mode().unwrap_or(0o644);
            let modified = header.mtime().ok().and_then(|time| i64::try_from(time).ok());
            let owned = |parts: &[&[u8]]| parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>();
            match header.entry_type() {
                EntryType::Directory => {
                    self.make_folders(&whole)?;
                    // The archive's root is the workspace or a folder of it, which keeps what it has.
                    if !inside.is_empty() {
                        folders.push((owned(&whole), mode, modified));
                    }
                }
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                    let left = limits.bytes.saturating_sub(imported.bytes);
                    let new = New { mode, modified, sync: Sync::Later };
                    let mut content = Bounded { content: &mut entry, meter: &meter, before: imported.bytes, limits };
                    imported.bytes += self.write_new(&join(&whole), &mut content, left, new)?;
                }
                EntryType::Symlink => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    links.push((owned(&whole), target));
                }
                EntryType::Link => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    let source: Vec<&[u8]> = base.iter().map(Vec::as_slice).chain(parts(&target)?).collect();
                    self.hard_link(&join(&source), &whole)?;
                }
                EntryType::XGlobalHeader | EntryType::XHeader => imported.entries -= 1,
                _ => imported.skipped += 1,
            }
            // What is left of the content must not count as part of the next header.
            std::io::copy(&mut entry, &mut std::io::sink()).map_err(damaged)?;
        }
        for (place, target) in links {
            self.link(&place, &target)?;
        }
        // Deepest first: a folder that may not be written is closed after what lies in it.
        for (place, mode, modified) in folders.iter().rev() {
            self.set_folder(place, *mode, *modified)?;
        }
        self.sync()?;
        Ok(imported)
    }

    /// Makes a symbolic link that stays inside the workspace.
    fn link(&self, place: &[Vec<u8>], target: &[u8]) -> Result<(), Error> {
        let Some((name, folders)) = place.split_last() else { return Ok(()) };
        if !stays_inside(folders.len(), target) {
            let shown = String::from_utf8_lossy(target);
            return Err(Error::new(Kind::Escapes, format!("a link to {shown} leads out of the workspace")));
        }
        let folders: Vec<&[u8]> = folders.iter().map(Vec::as_slice).collect();
        let folder = self.make_folders(&folders)?;
        let _ = rustix::fs::unlinkat(&folder, name.as_slice(), AtFlags::empty());
        rustix::fs::symlinkat(target, &folder, name.as_slice())
            .map_err(|error| Error::io("link", name, &error.into()))?;
        self.own_link_like_root(&folder, name);
        Ok(())
    }
}

/// Most bytes of headers and names of one entry.
const HEADER_BYTES: u64 = 1024 * 1024;

/// Content that any archive may unpack to, however small it is.
const RATIO_FREE_BYTES: u64 = 16 * 1024 * 1024;

fn damaged(error: std::io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => Error::new(inner.kind, inner.message.clone()),
        None => Error::new(Kind::Invalid, format!("the archive is damaged: {error}")),
    }
}

/// Bytes that were read, and how many more may be.
#[derive(Default)]
struct Meter {
    read: Cell<u64>,
    room: Cell<u64>,
}

struct Metered<'a> {
    reader: &'a mut dyn Read,
    meter: &'a Meter,
}

impl Read for Metered<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(into)?;
        self.meter.read.set(self.meter.read.get() + read as u64);
        let room = self.meter.room.get().checked_sub(read as u64).ok_or_else(|| {
            let message = format!("a name or header in the archive is longer than {HEADER_BYTES} bytes");
            std::io::Error::other(Error::new(Kind::TooLarge, message))
        })?;
        self.meter.room.set(room);
        Ok(read)
    }
}

/// Content that may not grow far beyond what was read for it: sparse entries can be any size.
struct Bounded<'a, R> {
    content: R,
    meter: &'a Meter,
    before: u64,
    limits: ImportLimits,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.content.read(into)?;
        self.before += read as u64;
        let most = self.meter.read.get().saturating_mul(self.limits.ratio).max(RATIO_FREE_BYTES);
        if self.before > most {
            let message = format!("the archive unpacks to more than {} times its size", self.limits.ratio);
            return Err(std::io::Error::other(Error::new(Kind::TooLarge, message)));
        }
        Ok(read)
    }
}

/// Whether a link in a folder of this depth leads to something in the workspace.
pub(crate) fn stays_inside(folder_depth: usize, target: &[u8]) -> bool {
    if target.strip_prefix(b"/workspace").is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
        return !target.split(|byte| *byte == b'/').any(|part| part == b"..");
    }
    let mut depth = Some(folder_depth);
    for part in target.split(|byte| *byte == b'/') {
        depth = match part {
            b"" | b"." => depth,
            b".." => depth.and_then(|depth| depth.checked_sub(1)),
            _ => depth.map(|depth| depth + 1),
        };
    }
    depth.is_some() && !target.starts_with(b"/")
}

/// The content of a file in an archive: one that shrinks meanwhile is filled up, so that the archive
/// stays whole.
pub(crate) fn in_tar(file: impl Read, size_bytes: u64) -> impl Read {
    file.take(size_bytes).chain(std::io::repeat(0)).take(size_bytes)
}
