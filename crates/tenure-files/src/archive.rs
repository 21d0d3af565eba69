//! Tar in and out. Links come last and are checked, devices are refused, everything is bounded
//! (case O-070, hazard Z-42).

use crate::error::{Error, Kind};
use crate::path::{join, parts};
use crate::workspace::{EntryKind, Workspace};
use rustix::fs::AtFlags;
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
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { entries: 200_000, bytes: 4 * 1024 * 1024 * 1024, depth: 128 }
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
                        // One that shrinks meanwhile is filled up, so that the archive stays whole.
                        let content = open_file
                            .file
                            .take(open_file.size_bytes)
                            .chain(std::io::repeat(0))
                            .take(open_file.size_bytes);
                        tar.append_data(&mut header, path, content).map_err(wrong)?;
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

    /// Takes in a tar stream below `path`. Entries before a refused one stay.
    ///
    /// # Errors
    /// When a name or a link leads out, a bound is passed, or the stream is damaged.
    pub fn import_tar(&self, path: &[u8], reader: &mut dyn Read, limits: ImportLimits) -> Result<Imported, Error> {
        let base: Vec<Vec<u8>> = parts(path)?.into_iter().map(<[u8]>::to_vec).collect();
        let damaged = |error: std::io::Error| Error::new(Kind::Invalid, format!("the archive is damaged: {error}"));
        let mut archive = tar::Archive::new(reader);
        let (mut imported, mut links) = (Imported::default(), Vec::new());
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
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
            let mode = entry.header().mode().unwrap_or(0o644);
            match entry.header().entry_type() {
                EntryType::Directory => {
                    self.make_folders(&whole)?;
                }
                EntryType::Regular | EntryType::Continuous => {
                    let left = limits.bytes.saturating_sub(imported.bytes);
                    imported.bytes += self.write(&join(&whole), &mut entry, mode, left)?;
                }
                EntryType::Symlink => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    links.push((whole.iter().map(|part| part.to_vec()).collect::<Vec<_>>(), target));
                }
                EntryType::Link => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    let source: Vec<&[u8]> = base.iter().map(Vec::as_slice).chain(parts(&target)?).collect();
                    let mut content = self.open_read(&join(&source))?.file;
                    let left = limits.bytes.saturating_sub(imported.bytes);
                    imported.bytes += self.write(&join(&whole), &mut content, mode, left)?;
                }
                EntryType::XGlobalHeader | EntryType::XHeader => imported.entries -= 1,
                _ => imported.skipped += 1,
            }
        }
        for (place, target) in links {
            self.link(&place, &target)?;
        }
        Ok(imported)
    }

    /// Makes a symbolic link that stays inside the workspace.
    fn link(&self, place: &[Vec<u8>], target: &[u8]) -> Result<(), Error> {
        let Some((name, folders)) = place.split_last() else { return Ok(()) };
        let shown = String::from_utf8_lossy(target).into_owned();
        let escapes = || Error::new(Kind::Escapes, format!("a link to {shown} leads out of the workspace"));
        let mut depth = folders.len();
        let target_inside = target.strip_prefix(b"/workspace/");
        if target.starts_with(b"/") && target_inside.is_none() {
            return Err(escapes());
        }
        if target_inside.is_none() {
            for part in target.split(|byte| *byte == b'/') {
                match part {
                    b"" | b"." => {}
                    b".." => depth = depth.checked_sub(1).ok_or_else(escapes)?,
                    _ => depth += 1,
                }
            }
        }
        let folders: Vec<&[u8]> = folders.iter().map(Vec::as_slice).collect();
        let folder = self.make_folders(&folders)?;
        let _ = rustix::fs::unlinkat(&folder, name.as_slice(), AtFlags::empty());
        rustix::fs::symlinkat(target, &folder, name.as_slice())
            .map_err(|error| Error::io("link", name, &error.into()))?;
        Ok(())
    }
}
