//! Reads the files of a snapshot where they are stored, and compares two snapshots.

use super::node::{Content, Entry as StoredEntry, Piece};
use super::record::Id;
use super::restore::join;
use super::seal::ObjectKind;
use super::store::Snapshots;
use crate::error::{Error, Kind};
use crate::path::parts;
use crate::workspace::{Entry, EntryKind, Workspace};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Changes that one comparison lists, at most.
pub const MAX_CHANGES: usize = 100_000;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
}

/// One difference.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where, as bytes.
    pub path: Vec<u8>,
    /// What became of it.
    pub kind: ChangeKind,
    /// What it was.
    pub before: Option<Entry>,
    /// What it is.
    pub after: Option<Entry>,
}

/// A file of a snapshot, for reading from any place.
pub struct StoredFile {
    snapshots: Arc<Snapshots>,
    inline: Vec<u8>,
    pieces: Vec<Piece>,
    at: u64,
    current: Option<(u64, Vec<u8>)>,
    /// Its size.
    pub size_bytes: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Changes whenever its content does.
    pub tag: String,
}

impl Snapshots {
    /// One entry of a snapshot; a link is described, not followed.
    ///
    /// # Errors
    /// When nothing is there, or it cannot be read.
    pub fn stat(&self, id: Id, path: &[u8]) -> Result<Entry, Error> {
        let (name, entry) = self.find(id, path)?;
        Ok(described(name, &entry))
    }

    /// Entries of a folder of a snapshot by name, at most `limit` of those after `after`; and whether
    /// more follow.
    ///
    /// # Errors
    /// When it is no folder, or cannot be read.
    pub fn list(&self, id: Id, path: &[u8], after: Option<&[u8]>, limit: usize) -> Result<(Vec<Entry>, bool), Error> {
        let (_, entry) = self.find(id, path)?;
        let Content::Folder(reference) = &entry.content else {
            return Err(Error::new(Kind::NotADirectory, format!("{} is no folder", String::from_utf8_lossy(path))));
        };
        let entries = self.folder(reference)?.entries;
        let mut rest = entries.into_iter().filter(|(name, _)| after.is_none_or(|after| name.as_slice() > after));
        let page = rest.by_ref().take(limit).map(|(name, entry)| described(name, &entry)).collect();
        Ok((page, rest.next().is_some()))
    }

    /// Opens a file of a snapshot.
    ///
    /// # Errors
    /// When it is no regular file, or cannot be read.
    pub fn open_file(self: &Arc<Self>, id: Id, path: &[u8]) -> Result<StoredFile, Error> {
        let (_, entry) = self.find(id, path)?;
        let inline = match &entry.content {
            Content::Inline { bytes, .. } => bytes.clone(),
            Content::Pieces { .. } => Vec::new(),
            Content::Folder(_) | Content::Link(_) | Content::Fifo => {
                let message = format!("{} is no regular file", String::from_utf8_lossy(path));
                return Err(Error::new(Kind::NotAFile, message));
            }
        };
        let pieces = self.pieces(&entry.content)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&inline).update(&entry.content.size().to_le_bytes());
        for piece in &pieces {
            hasher.update(&piece.offset.to_le_bytes()).update(&piece.reference.hash);
        }
        Ok(StoredFile {
            snapshots: self.clone(),
            inline,
            pieces,
            at: 0,
            current: None,
            size_bytes: entry.content.size(),
            modified_ns: i128::from(entry.about.modified_ns),
            tag: hasher.finalize().to_hex()[..32].to_owned(),
        })
    }

    /// What is different between two snapshots, below `path`, sorted by path; and whether there is
    /// more than [`MAX_CHANGES`]. Nothing as `from` stands for an empty folder.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn diff(&self, from: Option<Id>, to: Id, path: &[u8]) -> Result<(Vec<Change>, bool), Error> {
        let top = parts(path)?.join(&b'/');
        let found = |id: Option<Id>| match id.map(|id| self.find(id, path)) {
            None => Ok(None),
            Some(Err(error)) if error.kind == Kind::NotFound => Ok(None),
            Some(found) => found.map(|(_, entry)| Some(entry)),
        };
        let mut changes = Vec::new();
        let mut next = vec![(top, found(from)?, found(Some(to))?)];
        while let Some((path, before, after)) = next.pop() {
            if changes.len() >= MAX_CHANGES {
                return Ok((changes, true));
            }
            let is_same_content = match (&before, &after) {
                (Some(before), Some(after)) => before.content.is_like(&after.content),
                _ => false,
            };
            if is_same_content && before.as_ref().map(|entry| &entry.about) == after.as_ref().map(|entry| &entry.about)
            {
                continue;
            }
            if !is_same_content {
                let mut inside: BTreeMap<Vec<u8>, (Option<StoredEntry>, Option<StoredEntry>)> = BTreeMap::new();
                if let Some(Content::Folder(reference)) = before.as_ref().map(|entry| &entry.content) {
                    for (name, entry) in self.folder(reference)?.entries {
                        inside.entry(name).or_default().0 = Some(entry);
                    }
                }
                if let Some(Content::Folder(reference)) = after.as_ref().map(|entry| &entry.content) {
                    for (name, entry) in self.folder(reference)?.entries {
                        inside.entry(name).or_default().1 = Some(entry);
                    }
                }
                next.extend(inside.into_iter().map(|(name, (before, after))| (join(&path, &name), before, after)));
            }
            if let Some(change) = change(path, before.as_ref(), after.as_ref()) {
                changes.push(change);
            }
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((changes, false))
    }

    /// What is different between a snapshot and the files of a workspace as they are now, below `path`, by
    /// kind, mode, size, time and target; contents are not read. Nothing as `from` stands for an empty folder.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn diff_live(
        &self,
        from: Option<Id>,
        workspace: &Workspace,
        path: &[u8],
    ) -> Result<(Vec<Change>, bool), Error> {
        let top = parts(path)?.join(&b'/');
        let before = match from.map(|id| self.find(id, path)) {
            None => None,
            Some(Err(error)) if error.kind == Kind::NotFound => None,
            Some(found) => Some(found?.1),
        };
        let after = match workspace.stat(&top) {
            Err(error) if error.kind == Kind::NotFound => None,
            after => Some(after?),
        };
        let mut changes = Vec::new();
        let mut next = vec![(top, before, after)];
        while let Some((path, before, after)) = next.pop() {
            if changes.len() >= MAX_CHANGES {
                return Ok((changes, true));
            }
            let mut inside: BTreeMap<Vec<u8>, (Option<StoredEntry>, Option<Entry>)> = BTreeMap::new();
            if let Some(Content::Folder(reference)) = before.as_ref().map(|entry| &entry.content) {
                for (name, entry) in self.folder(reference)?.entries {
                    inside.entry(name).or_default().0 = Some(entry);
                }
            }
            if after.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory) {
                for entry in workspace.entries(&path)? {
                    // A snapshot holds none of these.
                    if !matches!(entry.kind, EntryKind::Socket | EntryKind::Other) {
                        let name = entry.name.clone();
                        inside.entry(name).or_default().1 = Some(entry);
                    }
                }
            }
            next.extend(inside.into_iter().map(|(name, (before, after))| (join(&path, &name), before, after)));
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            let before = before.map(|entry| described(name.clone(), &entry));
            let kind = match (&before, &after) {
                (None, None) => continue,
                (None, Some(_)) => ChangeKind::Added,
                (Some(_), None) => ChangeKind::Removed,
                (Some(before), Some(after)) => {
                    let is_folder = before.kind == EntryKind::Directory && after.kind == EntryKind::Directory;
                    let same_inside =
                        is_folder || before.size_bytes == after.size_bytes && before.modified_ns == after.modified_ns;
                    if before.kind == after.kind
                        && before.mode == after.mode
                        && before.target == after.target
                        && same_inside
                    {
                        continue;
                    }
                    ChangeKind::Changed
                }
            };
            if !path.is_empty() {
                changes.push(Change { path, kind, before, after });
            }
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((changes, false))
    }

    /// Writes everything below `path` of a snapshot as a tar stream.
    ///
    /// # Errors
    /// When it is no folder, something cannot be read, or the stream cannot be written.
    pub fn export_tar(self: &Arc<Self>, id: Id, path: &[u8], writer: &mut dyn io::Write) -> Result<(), Error> {
        let mut tar = tar::Builder::new(writer);
        let mut open = vec![(parts(path)?.join(&b'/'), Vec::new())];
        while let Some((folder, outside)) = open.pop() {
            for entry in self.list(id, &folder, None, usize::MAX)?.0 {
                let inside = join(&folder, &entry.name);
                let outside = join(&outside, &entry.name);
                let wrong = |error: io::Error| Error::io("archive", &outside, &error);
                let name = Path::new(OsStr::from_bytes(&outside));
                let mut header = tar::Header::new_gnu();
                header.set_mode(entry.mode);
                header.set_mtime(u64::try_from(entry.modified_ns / 1_000_000_000).unwrap_or(0));
                header.set_size(0);
                match entry.kind {
                    EntryKind::Directory => {
                        header.set_entry_type(tar::EntryType::Directory);
                        tar.append_data(&mut header, name, io::empty()).map_err(wrong)?;
                        open.push((inside, outside.clone()));
                    }
                    EntryKind::File => {
                        header.set_entry_type(tar::EntryType::Regular);
                        header.set_size(entry.size_bytes);
                        tar.append_data(&mut header, name, self.open_file(id, &inside)?).map_err(wrong)?;
                    }
                    EntryKind::Symlink => {
                        header.set_entry_type(tar::EntryType::Symlink);
                        let target = entry.target.unwrap_or_default();
                        tar.append_link(&mut header, name, Path::new(OsStr::from_bytes(&target))).map_err(wrong)?;
                    }
                    EntryKind::Fifo | EntryKind::Socket | EntryKind::Other => {}
                }
            }
        }
        tar.finish().map_err(|error| Error::io("archive", path, &error))
    }

    fn find(&self, id: Id, path: &[u8]) -> Result<(Vec<u8>, StoredEntry), Error> {
        let mut current = (b".".to_vec(), self.record(id)?.root);
        for part in parts(path)? {
            let missing = || Error::new(Kind::NotFound, format!("{} is not there", String::from_utf8_lossy(path)));
            let Content::Folder(reference) = &current.1.content else { return Err(missing()) };
            let entry = self.folder(reference)?.entries.remove(part).ok_or_else(missing)?;
            current = (part.to_vec(), entry);
        }
        Ok(current)
    }
}

/// The difference itself; none for a folder of which only the inside or the time has changed.
fn change(path: Vec<u8>, before: Option<&StoredEntry>, after: Option<&StoredEntry>) -> Option<Change> {
    let kind = match (before, after) {
        (None, None) => return None,
        (None, Some(_)) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Removed,
        (Some(before), Some(after)) => {
            let both_folders = matches!((&before.content, &after.content), (Content::Folder(_), Content::Folder(_)));
            let (mut old, mut new) = (before.about.clone(), after.about.clone());
            // The number of a file with several names differs after each restore.
            (old.group, new.group) = (0, 0);
            if both_folders {
                (old.modified_ns, new.modified_ns) = (0, 0);
            }
            if old == new && (both_folders || before.content.is_like(&after.content)) {
                return None;
            }
            ChangeKind::Changed
        }
    };
    if path.is_empty() {
        return None;
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let shown = |entry: &StoredEntry| described(name.clone(), entry);
    Some(Change { kind, before: before.map(shown), after: after.map(shown), path })
}

impl StoredFile {
    /// Moves to a place for reading from there.
    pub fn seek(&mut self, offset: u64) {
        self.at = offset;
    }
}

impl Read for StoredFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.size_bytes.saturating_sub(self.at);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..wanted];
        let (start, bytes) = if self.pieces.is_empty() {
            (0, &self.inline)
        } else {
            let next = self.pieces.partition_point(|piece| piece.offset <= self.at);
            let piece = next.checked_sub(1).map(|place| self.pieces[place]);
            let piece = piece.filter(|piece| self.at < piece.offset + u64::from(piece.reference.raw_len));
            let Some(piece) = piece else {
                // A hole, to the next piece or the end.
                let end = self.pieces.get(next).map_or(self.size_bytes, |piece| piece.offset);
                let len = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..len].fill(0);
                self.at += len as u64;
                return Ok(len);
            };
            if self.current.as_ref().is_none_or(|(start, _)| *start != piece.offset) {
                let raw = self.snapshots.object(ObjectKind::Chunk, &piece.reference).map_err(io::Error::other)?;
                self.current = Some((piece.offset, raw));
            }
            let (start, bytes) = self.current.as_ref().expect("it was read right now");
            (*start, bytes)
        };
        let inside = usize::try_from(self.at - start).unwrap_or(usize::MAX);
        let rest = bytes.get(inside..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        if len == 0 {
            // A file that is one hole.
            buffer.fill(0);
            self.at += buffer.len() as u64;
            return Ok(buffer.len());
        }
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

fn described(name: Vec<u8>, entry: &StoredEntry) -> Entry {
    let (kind, target) = match &entry.content {
        Content::Inline { .. } | Content::Pieces { .. } => (EntryKind::File, None),
        Content::Folder(_) => (EntryKind::Directory, None),
        Content::Link(target) => (EntryKind::Symlink, Some(target.clone())),
        Content::Fifo => (EntryKind::Fifo, None),
    };
    let size_bytes = target.as_ref().map_or(entry.content.size(), |target| target.len() as u64);
    Entry { name, kind, size_bytes, mode: entry.about.mode, modified_ns: i128::from(entry.about.modified_ns), target }
}
