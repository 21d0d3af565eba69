//! A folder of the host as a tar stream, as it goes into a workspace.
//!
//! What the user named in a `.tenureignore` stays at home; everything else comes along, also what git
//! ignores: a sandbox without network needs the dependencies that lie there. The folder is looked
//! through first, so that a bound that is passed is said before the first byte is sent.

use crate::archive::{in_tar, stays_inside};
use crate::error::{Error, Kind};
use crate::workspace::Workspace;
use ignore::WalkBuilder;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tar::EntryType;

/// Name of the files, in any folder, that say what stays at home; written like a `.gitignore`.
pub const IGNORE_FILE: &str = ".tenureignore";

/// Most entries that are named when they were left out.
pub const MAX_LEFT_OUT: usize = 1_000;

/// Folders that are named when a bound is passed.
const NAMED_FOLDERS: usize = 3;

/// Bounds of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLimits {
    /// Most entries.
    pub entries: u64,
    /// Most bytes of content together.
    pub bytes: u64,
}

impl Default for PackLimits {
    /// What an import takes by default.
    fn default() -> Self {
        let limits = crate::ImportLimits::default();
        Self { entries: limits.entries as u64, bytes: limits.bytes }
    }
}

/// How far a pack has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries that were written.
    pub entries: u64,
    /// Bytes of content that were written.
    pub bytes: u64,
    /// Entries that there are.
    pub total_entries: u64,
    /// Bytes of content that there are.
    pub total_bytes: u64,
}

/// What was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Files, folders and links.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// What cannot be in a workspace; at most [`MAX_LEFT_OUT`] are named.
    pub left_out: Vec<LeftOut>,
    /// How many were left out, also those that are not named.
    pub left_out_count: u64,
}

/// An entry that was left out, beside those that an ignore file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path below the folder, as bytes.
    pub path: Vec<u8>,
    /// Why.
    pub why: String,
}

/// Writes a folder of the host as a tar stream that [`Workspace::import_tar`] takes.
///
/// Links stay links. One that leads out of the folder is left out and named, since it would lead
/// nowhere; an absolute one that stays inside is made relative.
///
/// # Errors
/// When the folder cannot be read, an ignore file is malformed, a bound is passed, or the stream
/// cannot be written. The message says what to do.
pub fn pack(
    folder: &Path,
    writer: &mut dyn Write,
    limits: PackLimits,
    mut progress: impl FnMut(Progress),
) -> Result<Packed, Error> {
    let name = folder.as_os_str().as_bytes();
    let folder = folder.canonicalize().map_err(|error| Error::io("read", name, &error))?;
    if !folder.is_dir() {
        return Err(Error::new(Kind::NotADirectory, format!("{} is no folder", folder.display())));
    }
    let survey = survey(&folder, limits)?;
    let source = Workspace::open(&folder)?;
    let mut state =
        Progress { total_entries: survey.items.len() as u64, total_bytes: survey.bytes, ..Progress::default() };
    progress(state);
    let mut tar = tar::Builder::new(writer);
    for item in &survey.items {
        let failed = |error: std::io::Error| Error::io("pack", &item.path, &error);
        let path = Path::new(OsStr::from_bytes(&item.path));
        let mut header = tar::Header::new_gnu();
        header.set_mode(item.mode);
        header.set_mtime(item.modified);
        header.set_size(0);
        match &item.what {
            What::Folder => {
                header.set_entry_type(EntryType::Directory);
                tar.append_data(&mut header, path, std::io::empty()).map_err(failed)?;
            }
            What::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                tar.append_link(&mut header, path, Path::new(OsStr::from_bytes(target))).map_err(failed)?;
            }
            What::File => {
                let open = source.open_read(&item.path).map_err(readable)?;
                header.set_entry_type(EntryType::Regular);
                header.set_size(open.size_bytes);
                let before = state.bytes;
                let mut told =
                    Told { content: in_tar(open.file, open.size_bytes), state: &mut state, progress: &mut progress };
                tar.append_data(&mut header, path, &mut told).map_err(failed)?;
                // A file may have grown since it was looked at; together they still keep the bound.
                if state.bytes > limits.bytes {
                    return Err(too_large(&item.path, state.bytes - before, limits.bytes));
                }
            }
        }
        state.entries += 1;
        progress(state);
    }
    tar.finish().map_err(|error| Error::io("pack", name, &error))?;
    Ok(Packed {
        entries: state.entries,
        bytes: state.bytes,
        left_out: survey.left_out,
        left_out_count: survey.left_out_count,
    })
}

/// Reports what passes through.
struct Told<'a, R, P> {
    content: R,
    state: &'a mut Progress,
    progress: &'a mut P,
}

impl<R: Read, P: FnMut(Progress)> Read for Told<'_, R, P> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.content.read(into)?;
        self.state.bytes += read as u64;
        (self.progress)(*self.state);
        Ok(read)
    }
}

/// What is to be packed.
#[derive(Default)]
struct Survey {
    items: Vec<Item>,
    bytes: u64,
    left_out: Vec<LeftOut>,
    left_out_count: u64,
}

struct Item {
    path: Vec<u8>,
    mode: u32,
    modified: u64,
    what: What,
}

enum What {
    Folder,
    File,
    Link(Vec<u8>),
}

fn survey(folder: &Path, limits: PackLimits) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    // Bytes and entries of each entry of the folder itself, for the message.
    let mut weights: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
    let mut walk = WalkBuilder::new(folder);
    walk.standard_filters(false).follow_links(false).add_custom_ignore_filename(IGNORE_FILE);
    walk.sort_by_file_name(OsStr::cmp);
    for entry in walk.build() {
        let entry = entry.map_err(|error| wrong(&error))?;
        if let Some(error) = entry.error() {
            return Err(wrong(error));
        }
        let Ok(inside) = entry.path().strip_prefix(folder) else { continue };
        let Some(first) = inside.iter().next() else { continue };
        // One that went away meanwhile is left out.
        let Ok(metadata) = std::fs::symlink_metadata(entry.path()) else { continue };
        let path = inside.as_os_str().as_bytes().to_vec();
        let what = match what(folder, inside, &metadata)? {
            Ok(what) => what,
            Err(why) => {
                survey.left_out_count += 1;
                if survey.left_out.len() < MAX_LEFT_OUT {
                    survey.left_out.push(LeftOut { path, why });
                }
                continue;
            }
        };
        let bytes = if metadata.is_file() { metadata.len() } else { 0 };
        let weight = weights.entry(PathBuf::from(first)).or_default();
        *weight = (weight.0 + bytes, weight.1 + 1);
        survey.bytes += bytes;
        survey.items.push(Item {
            path,
            mode: metadata.mode() & 0o777,
            modified: u64::try_from(metadata.mtime()).unwrap_or(0),
            what,
        });
        let count = survey.items.len() as u64;
        if count > limits.entries || survey.bytes > limits.bytes {
            return Err(passed(&weights, limits));
        }
    }
    Ok(survey)
}

/// What an entry becomes, or why it cannot come along.
fn what(folder: &Path, inside: &Path, metadata: &std::fs::Metadata) -> Result<Result<What, String>, Error> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Ok(Ok(What::Folder));
    }
    if kind.is_file() {
        return Ok(Ok(What::File));
    }
    if !kind.is_symlink() {
        return Ok(Err("it is no file, folder or link".to_owned()));
    }
    let target = std::fs::read_link(folder.join(inside))
        .map_err(|error| Error::io("read the link", inside.as_os_str().as_bytes(), &error))?;
    let depth = inside.iter().count() - 1;
    let target = match target.strip_prefix(folder) {
        Ok(rest) => std::iter::repeat_n(Path::new(".."), depth).collect::<PathBuf>().join(rest),
        Err(_) => target,
    };
    let target = if target.as_os_str().is_empty() { PathBuf::from(".") } else { target };
    if stays_inside(depth, target.as_os_str().as_bytes()) {
        Ok(Ok(What::Link(target.into_os_string().into_vec())))
    } else {
        Ok(Err(format!("it is a link to {}, which is not in the folder", target.display())))
    }
}

fn wrong(error: &ignore::Error) -> Error {
    let kind = if error.is_io() { Kind::Io } else { Kind::Invalid };
    let fix = if error.is_io() { "make it readable, or name it in" } else { "mend the pattern in" };
    Error::new(kind, format!("{error}; {fix} {IGNORE_FILE}"))
}

fn readable(error: Error) -> Error {
    Error { message: format!("{}; make it readable, or name it in {IGNORE_FILE}", error.message), ..error }
}

fn too_large(path: &[u8], size: u64, limit: u64) -> Error {
    let path = String::from_utf8_lossy(path);
    Error::new(Kind::TooLarge, format!("{path} has grown to {size} bytes; the folder may have {limit} bytes together"))
}

fn passed(weights: &BTreeMap<PathBuf, (u64, u64)>, limits: PackLimits) -> Error {
    let mut largest: Vec<_> = weights.iter().collect();
    largest.sort_by_key(|(_, (bytes, entries))| std::cmp::Reverse((*bytes, *entries)));
    let named: Vec<String> = largest
        .iter()
        .take(NAMED_FOLDERS)
        .map(|(path, (bytes, entries))| format!("{} ({bytes} bytes in {entries} entries so far)", path.display()))
        .collect();
    Error::new(
        Kind::TooLarge,
        format!(
            "the folder holds more than {} entries or {} bytes; name what is not needed in {IGNORE_FILE}; largest: {}",
            limits.entries,
            limits.bytes,
            named.join(", ")
        ),
    )
}
