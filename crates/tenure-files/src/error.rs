//! Errors: a coarse kind that says what to do, and words for people.

use std::fmt;
use std::io;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is there.
    NotFound,
    /// It is no regular file.
    NotAFile,
    /// It is no folder.
    NotADirectory,
    /// The path leads out of the workspace.
    Escapes,
    /// It is larger than a bound.
    TooLarge,
    /// The path or the archive is malformed.
    Invalid,
    /// The disk is full.
    NoSpace,
    /// The name is taken.
    Exists,
    /// What is stored is not what it was.
    Damaged,
    /// It was written by a newer version.
    Newer,
    /// It was stored with another key.
    WrongKey,
    /// It was there, and was removed meanwhile.
    Gone,
    /// Anything else that the system said.
    Io,
}

/// An error.
#[derive(Debug)]
pub struct Error {
    /// What to do about it.
    pub kind: Kind,
    /// What failed.
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What the system said about `path`.
    pub(crate) fn io(doing: &str, path: &[u8], error: &io::Error) -> Self {
        let kind = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOENT) => Kind::NotFound,
            Some(rustix::io::Errno::EXIST) => Kind::Exists,
            Some(rustix::io::Errno::NOTDIR) => Kind::NotADirectory,
            Some(rustix::io::Errno::ISDIR) => Kind::NotAFile,
            Some(rustix::io::Errno::XDEV | rustix::io::Errno::LOOP) => Kind::Escapes,
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => Kind::NoSpace,
            Some(rustix::io::Errno::NAMETOOLONG | rustix::io::Errno::INVAL) => Kind::Invalid,
            _ => Kind::Io,
        };
        let why = if kind == Kind::Escapes { "it leads out of the workspace".to_owned() } else { error.to_string() };
        Self::new(kind, format!("{doing} {}: {why}", String::from_utf8_lossy(path)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
