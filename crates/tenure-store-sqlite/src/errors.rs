//! From SQLite's errors to kinds of the port.

use rusqlite::ErrorCode;
use tenure_store::{Error, Kind};

/// Says what to do about an error of SQLite; `doing` names the action in the present.
pub(crate) fn sqlite(doing: &str, error: rusqlite::Error) -> Error {
    let code = error.sqlite_error_code();
    let (kind, fix) = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (Kind::Retry, "another process is writing"),
        Some(ErrorCode::DiskFull) => (Kind::NoSpace, "free space on the disk of the data folder"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (Kind::Broken, "the store file is damaged; restore a backup, or move the file away to start empty")
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            (Kind::Broken, "check the disk and the permissions of the data folder, then restart")
        }
        _ => (Kind::Broken, "this is a bug of the store"),
    };
    Error::caused(kind, format!("{doing}: {error} ({fix})"), error)
}

/// A stored record that cannot be read; its bytes stay.
pub(crate) fn corrupt(error: tenure_core::stored::Corrupt) -> Error {
    Error::caused(Kind::Corrupt, error.to_string(), error)
}

/// An operation on a file of the store.
pub(crate) fn file(doing: &str, error: std::io::Error) -> Error {
    let kind = if error.kind() == std::io::ErrorKind::StorageFull { Kind::NoSpace } else { Kind::Broken };
    Error::caused(kind, format!("{doing}: {error}"), error)
}
