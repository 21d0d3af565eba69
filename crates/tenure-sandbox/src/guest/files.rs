//! File operations with the view of commands.
//!
//! Each runs in a process of its own: a FIFO without a writer, a huge directory or a crash costs
//! that process and nothing else. Everything is bounded, and nothing but regular files is read.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use regex::bytes::{Regex, RegexBuilder};

use super::shell::inside_workspace;
use super::supervise::number;
use crate::port::{ErrorKind, FILE_BYTES, FileOp, MATCHES};
use crate::sys::{self, Fork};
use crate::wire::{self, FileHead, Setup};

/// Entries that one glob or grep looks at.
const ENTRIES: usize = 200_000;
/// Deepest directory that one glob or grep enters.
const DEPTH: usize = 64;
/// Largest file that grep reads.
const GREP_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Longest line that grep returns; the rest is cut.
const GREP_LINE_BYTES: usize = 500;
/// All lines of one grep together.
const GREP_BYTES: usize = 1024 * 1024;
/// Memory of one compiled expression.
const EXPRESSION_BYTES: usize = 4 * 1024 * 1024;
/// Directories that grep and glob leave out unless they start there.
const LEFT_OUT: [&str; 1] = [".git"];

/// Starts an operation in a child; the file carries its reply.
pub(super) fn fork(setup: &Setup, op: FileOp, body: Vec<u8>, room: usize) -> io::Result<(i32, File)> {
    if room == 0 {
        return Err(io::Error::other("too many file operations are running already"));
    }
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::fork()? {
        Fork::Parent(pid) => Ok((pid, read.into())),
        Fork::Child => {
            sys::close_all_except(&[number(&write)]);
            let (head, body) = run(setup, op, body)
                .unwrap_or_else(|Failure(kind, message)| (FileHead::Failed { kind, message }, Vec::new()));
            let mut write = File::from(write);
            // If the launcher is gone, nobody needs the reply.
            let _ = write.write_all(&wire::encode(&head, &body));
            sys::exit(0)
        }
    }
}

/// Takes the reply of a child apart; an incomplete one is an error.
pub(super) fn reply(mut bytes: &[u8]) -> io::Result<(FileHead, Vec<u8>)> {
    let mut start = [0; 8];
    bytes.read_exact(&mut start)?;
    let (json, body) = wire::read_rest(&mut bytes, start)?;
    Ok((wire::decode(&json)?, body))
}

struct Failure(ErrorKind, String);

type Done = Result<(FileHead, Vec<u8>), Failure>;

fn run(setup: &Setup, op: FileOp, body: Vec<u8>) -> Done {
    let workspace = PathBuf::from(inside_workspace(setup));
    let place = Place { workspace };
    match op {
        FileOp::Read { path, offset, limit } => read(&place.resolve(&path)?, offset, limit),
        FileOp::ReadLines { path, first, last } => read_lines(&place.resolve(&path)?, first, last),
        FileOp::Write { path, content: _ } => {
            let created = write(&place.resolve(&path)?, &body)?;
            Ok((FileHead::Written { created }, Vec::new()))
        }
        FileOp::Edit { path, old, new, replace_all } => edit(&place.resolve(&path)?, &old, &new, replace_all),
        FileOp::Glob { pattern, path } => glob(&place, &pattern, path.as_deref()),
        FileOp::Grep { pattern, path } => grep(&place, &pattern, path.as_deref()),
    }
}

struct Place {
    workspace: PathBuf,
}

impl Place {
    /// Makes a path absolute; `/workspace` names the workspace in every driver.
    fn resolve(&self, path: &str) -> Result<PathBuf, Failure> {
        if path.is_empty() {
            return Err(Failure(ErrorKind::Refused, "the path is empty".to_owned()));
        }
        let path = Path::new(path);
        Ok(match path.strip_prefix("/workspace") {
            Ok(rest) => self.workspace.join(rest),
            Err(_) => self.workspace.join(path),
        })
    }

    fn start(&self, path: Option<&str>) -> Result<PathBuf, Failure> {
        path.filter(|path| !path.is_empty()).map_or_else(|| Ok(self.workspace.clone()), |path| self.resolve(path))
    }

    /// Shortens a path below the workspace.
    fn shown<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.workspace).unwrap_or(path)
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename => ErrorKind::Refused,
        _ => ErrorKind::Io,
    };
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "this part of the file system is read-only".to_owned(),
        _ => error.to_string(),
    };
    Failure(kind, format!("{}: {reason}", path.display()))
}

/// Opens a regular file without waiting for anything.
fn open(path: &Path) -> Result<(File, u64), Failure> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| failure(path, &error))?;
    let metadata = file.metadata().map_err(|error| failure(path, &error))?;
    if metadata.is_file() {
        return Ok((file, metadata.len()));
    }
    let what = if metadata.is_dir() { "it is a directory" } else { "it is not a regular file" };
    Err(Failure(ErrorKind::Refused, format!("{}: {what}", path.display())))
}

fn read(path: &Path, offset: u64, limit: u64) -> Done {
    let (mut file, file_bytes) = open(path)?;
    let limit = limit.min(FILE_BYTES as u64);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| failure(path, &error))?;
    let truncated = offset.saturating_add(bytes.len() as u64) < file_bytes;
    Ok((FileHead::Content { file_bytes, truncated }, bytes))
}

fn read_lines(path: &Path, first: u64, last: Option<u64>) -> Done {
    let (file, file_bytes) = open(path)?;
    let mut reader = BufReader::new(file);
    let (mut bytes, mut line, mut truncated) = (Vec::new(), 1_u64, false);
    while last.is_none_or(|last| line <= last) {
        let buffer = reader.fill_buf().map_err(|error| failure(path, &error))?;
        if buffer.is_empty() {
            break;
        }
        // Lines can be longer than memory; they are taken in pieces.
        let end = buffer.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let piece = end.unwrap_or(buffer.len());
        if line >= first {
            let room = FILE_BYTES - bytes.len();
            bytes.extend_from_slice(buffer.get(..piece.min(room)).unwrap_or_default());
            if piece > room {
                truncated = true;
                break;
            }
        }
        reader.consume(piece);
        line += u64::from(end.is_some());
    }
    Ok((FileHead::Content { file_bytes, truncated }, bytes))
}

/// Writes beside the file, then renames: a reader sees the old content or the new one.
fn write(path: &Path, content: &[u8]) -> Result<bool, Failure> {
    let old = fs::metadata(path).ok();
    if let Some(old) = &old
        && !old.is_file()
    {
        let what = if old.is_dir() { "it is a directory" } else { "it is not a regular file" };
        return Err(Failure(ErrorKind::Refused, format!("{}: {what}", path.display())));
    }
    // Through a link the target is replaced, as a program that writes would do.
    let target =
        if old.is_some() { fs::canonicalize(path).map_err(|error| failure(path, &error))? } else { path.to_owned() };
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Failure(ErrorKind::Refused, format!("{}: it is not a file name", path.display())));
    };
    fs::create_dir_all(parent).map_err(|error| failure(parent, &error))?;
    let mut hidden = Vec::from(b".".as_slice());
    hidden.extend(name.as_bytes().iter().take(200));
    hidden.extend(format!(".{}.new", std::process::id()).bytes());
    let temporary = parent.join(std::ffi::OsStr::from_bytes(&hidden));
    let mode = old.as_ref().map_or(0o666, |old| old.mode() & 0o777);
    let written = File::create_new(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        if old.is_some() {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&temporary, &target)
    });
    if let Err(error) = written {
        // Only a leftover of this failure.
        let _ = fs::remove_file(&temporary);
        return Err(failure(path, &error));
    }
    Ok(old.is_none())
}

fn edit(path: &Path, old: &str, new: &str, replace_all: bool) -> Done {
    let refuse = |message: String| Failure(ErrorKind::Refused, message);
    if old.is_empty() {
        return Err(refuse("the text to replace is empty; use write to create a file".to_owned()));
    }
    if old == new {
        return Err(refuse("the old and the new text are the same".to_owned()));
    }
    let (file, file_bytes) = open(path)?;
    if file_bytes > FILE_BYTES as u64 {
        return Err(refuse(format!("{}: the file is larger than {FILE_BYTES} bytes", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| failure(path, &error))?;
    let places = find(&bytes, old.as_bytes());
    match places.len() {
        0 => {
            return Err(refuse(format!(
                "{}: the old text does not occur; read the file and copy it exactly",
                path.display()
            )));
        }
        count if count > 1 && !replace_all => {
            return Err(refuse(format!(
                "{}: the old text occurs {count} times; add more of what is around it, or set replace_all",
                path.display()
            )));
        }
        _ => {}
    }
    if bytes.len() + places.len() * new.len().saturating_sub(old.len()) > FILE_BYTES {
        return Err(refuse(format!("{}: the file would be larger than {FILE_BYTES} bytes", path.display())));
    }
    let (mut result, mut from) = (Vec::with_capacity(bytes.len()), 0);
    for place in &places {
        result.extend_from_slice(bytes.get(from..*place).unwrap_or_default());
        result.extend_from_slice(new.as_bytes());
        from = place + old.len();
    }
    result.extend_from_slice(bytes.get(from..).unwrap_or_default());
    write(path, &result)?;
    Ok((FileHead::Edited { replaced: places.len() as u64 }, Vec::new()))
}

fn find(text: &[u8], wanted: &[u8]) -> Vec<usize> {
    let Ok(expression) =
        RegexBuilder::new(&regex::escape(&String::from_utf8_lossy(wanted))).size_limit(64 * EXPRESSION_BYTES).build()
    else {
        return Vec::new();
    };
    expression.find_iter(text).map(|found| found.start()).collect()
}

/// One entry that a walk meets.
struct Met {
    path: PathBuf,
    modified: SystemTime,
    is_file: bool,
    bytes: u64,
}

/// Walks a tree without following links. Returns whether it saw all of it.
fn walk(start: &Path, meet: &mut impl FnMut(Met) -> bool) -> bool {
    let (mut queue, mut entries) = (vec![(start.to_owned(), 0)], 0);
    while let Some((directory, depth)) = queue.pop() {
        // What cannot be read is left out, as `find` does after its warning.
        let Ok(list) = fs::read_dir(&directory) else { continue };
        for entry in list.flatten() {
            entries += 1;
            if entries > ENTRIES {
                return false;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            let enters = metadata.is_dir() && depth < DEPTH && !LEFT_OUT.iter().any(|name| entry.file_name() == *name);
            if enters {
                queue.push((path.clone(), depth + 1));
            }
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if !meet(Met { path, modified, is_file: metadata.is_file(), bytes: metadata.len() }) {
                return false;
            }
        }
    }
    true
}

fn glob(place: &Place, pattern: &str, path: Option<&str>) -> Done {
    let start = place.start(path)?;
    let (start, pattern) = match pattern.strip_prefix("/workspace/") {
        Some(rest) => (place.workspace.clone(), rest),
        None if pattern.starts_with('/') => {
            return Err(Failure(
                ErrorKind::Refused,
                "an absolute pattern must start with /workspace/; else name the directory in path".to_owned(),
            ));
        }
        None => (start, pattern.strip_prefix("./").unwrap_or(pattern)),
    };
    directory(&start)?;
    let expression = glob_expression(pattern)?;
    let mut found = Vec::new();
    let complete = walk(&start, &mut |met| {
        let relative = met.path.strip_prefix(&start).unwrap_or(&met.path);
        if expression.is_match(relative.as_os_str().as_bytes()) {
            found.push((met.modified, met.path));
        }
        true
    });
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let truncated = !complete || found.len() > MATCHES;
    let lines = found.iter().take(MATCHES).map(|(_, path)| place.shown(path).as_os_str().as_bytes());
    Ok((FileHead::Matches { truncated }, join(lines)))
}

fn directory(path: &Path) -> Result<(), Failure> {
    let metadata = fs::metadata(path).map_err(|error| failure(path, &error))?;
    if metadata.is_dir() {
        Ok(())
    } else {
        Err(Failure(ErrorKind::Refused, format!("{}: it is not a directory", path.display())))
    }
}

/// Turns a pattern with `*`, `**`, `?`, `[…]` and `{a,b}` into an expression.
fn glob_expression(pattern: &str) -> Result<Regex, Failure> {
    let (mut expression, mut rest, mut braces) = (String::from("(?s-u)^"), pattern, 0_usize);
    while let Some(next) = rest.chars().next() {
        let (piece, used): (String, usize) = match next {
            _ if rest.starts_with("**/") => ("(?:[^/]*/)*".to_owned(), 3),
            _ if rest.starts_with("**") => (".*".to_owned(), 2),
            '*' => ("[^/]*".to_owned(), 1),
            '?' => ("[^/]".to_owned(), 1),
            '{' => {
                braces += 1;
                ("(?:".to_owned(), 1)
            }
            '}' if braces > 0 => {
                braces -= 1;
                (")".to_owned(), 1)
            }
            ',' if braces > 0 => ("|".to_owned(), 1),
            '[' => match rest.get(2..).and_then(|tail| tail.find(']')) {
                Some(end) => {
                    let class = rest.get(1..end + 2).unwrap_or_default();
                    let (negated, class) = class.strip_prefix(['!', '^']).map_or(("", class), |class| ("^", class));
                    let class = class.replace('\\', "\\\\").replace('[', "\\[").replace("&&", "&\\&");
                    (format!("[{negated}{class}]"), end + 3)
                }
                None => ("\\[".to_owned(), 1),
            },
            '\\' => {
                let escaped = rest.chars().nth(1);
                (regex::escape(&escaped.unwrap_or('\\').to_string()), 1 + escaped.map_or(0, char::len_utf8))
            }
            other => {
                // Outside Unicode mode a character is written as its bytes.
                let mut buffer = [0; 4];
                let bytes = other.encode_utf8(&mut buffer).bytes();
                let piece = if other.is_ascii() {
                    regex::escape(&other.to_string())
                } else {
                    bytes.map(|byte| format!("\\x{byte:02x}")).collect()
                };
                (piece, other.len_utf8())
            }
        };
        expression.push_str(&piece);
        rest = rest.get(used..).unwrap_or_default();
    }
    expression.push_str(&")".repeat(braces));
    expression.push('$');
    compile(&expression, pattern)
}

fn compile(expression: &str, shown: &str) -> Result<Regex, Failure> {
    RegexBuilder::new(expression)
        .size_limit(EXPRESSION_BYTES)
        .dfa_size_limit(EXPRESSION_BYTES)
        .build()
        .map_err(|error| Failure(ErrorKind::Refused, format!("the pattern {shown:?} is not valid: {error}")))
}

fn grep(place: &Place, pattern: &str, path: Option<&str>) -> Done {
    let start = place.start(path)?;
    let expression = compile(pattern, pattern)?;
    let metadata = fs::metadata(&start).map_err(|error| failure(&start, &error))?;
    let (mut lines, mut bytes): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    let mut search = |path: &Path| {
        for line in matching_lines(&expression, place.shown(path), path, MATCHES - lines.len()) {
            bytes += line.len();
            lines.push(line);
        }
        lines.len() < MATCHES && bytes < GREP_BYTES
    };
    let complete = if metadata.is_dir() {
        let mut files = Vec::new();
        let complete = walk(&start, &mut |met| {
            if met.is_file && met.bytes <= GREP_FILE_BYTES {
                files.push(met.path);
            }
            true
        });
        files.sort();
        files.iter().all(|path| search(path)) && complete
    } else {
        open(&start)?;
        search(&start)
    };
    let body = join(lines.iter().map(Vec::as_slice));
    Ok((FileHead::Matches { truncated: !complete }, body))
}

fn matching_lines(expression: &Regex, shown: &Path, path: &Path, room: usize) -> Vec<Vec<u8>> {
    let Ok((file, _)) = open(path) else { return Vec::new() };
    let mut bytes = Vec::new();
    if file.take(GREP_FILE_BYTES).read_to_end(&mut bytes).is_err() || bytes.iter().take(8_192).any(|byte| *byte == 0) {
        // Binary files have no lines.
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if lines.len() == room {
            break;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if expression.is_match(line) {
            let mut found = shown.as_os_str().as_bytes().to_vec();
            found.extend(format!(":{}:", number + 1).bytes());
            found.extend(line.iter().take(GREP_LINE_BYTES));
            lines.push(found);
        }
    }
    lines
}

/// Joins names with null bytes, which no name contains; lines lose theirs.
fn join<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    for line in lines {
        if body.len() + line.len() + 1 > wire::BODY_BYTES {
            break;
        }
        body.extend(line.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }));
        body.push(0);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        let matched = glob_expression(pattern).map(|expression| expression.is_match(path.as_bytes()));
        assert_eq!(matched.ok(), Some(expected), "{pattern} on {path}");
    }

    #[test]
    fn a_glob_pattern_means_what_doublestar_patterns_mean() {
        check("**/*.rs", "main.rs", true);
        check("**/*.rs", "src/deep/main.rs", true);
        check("*.rs", "src/main.rs", false);
        check("src/**", "src/a/b", true);
        check("a?c", "abc", true);
        check("a?c", "a/c", false);
        check("*.{rs,toml}", "Cargo.toml", true);
        check("[!a]b", "cb", true);
        check("[!a]b", "ab", false);
        check("é*", "éa", true);
        check("a.b", "axb", false);
        check("[x", "[x", true);
    }
}
