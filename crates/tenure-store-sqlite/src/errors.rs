//! From SQLite's errors to kinds of the port.

use rusqlite::ErrorCode;
use tenure_store::{Error, Kind};

/// Says what to do about an error of SQLite; `doing` names the action in the present.
pub(crate) fn sqlite(doing: &str, error: rusqlite::Error) -> Error {
    let (kind, fix) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (Kind::Retry, "another process is writing"),
        Some(ErrorCode::OperationInterrupted) => (Kind::Retry, "it took too long; ask for less"),
        Some(ErrorCode::DiskFull) => (Kind::NoSpace, "free space on the disk of the data folder"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (Kind::Broken, "the store file is damaged; restore a backup, or move the file away to start empty")
        }
        Some(
            ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied,
        ) => (Kind::Broken, "check the disk and the permissions of the data folder, then restart"),
        _ => (Kind::Broken, "this is a bug of the store"),
    };
    Error::caused(kind, format!("{doing}: {error} ({fix})"), error)
}

/// Wraps an error of a write.
pub(crate) fn write(error: rusqlite::Error) -> Error {
    sqlite("write the store", error)
}

/// Wraps an error of a read.
pub(crate) fn read(error: rusqlite::Error) -> Error {
    sqlite("read the store", error)
}

/// A stored record that cannot be read; its bytes stay.
pub(crate) fn corrupt(of: impl std::fmt::Display, error: tenure_core::stored::Corrupt) -> Error {
    Error::caused(Kind::Corrupt, format!("{of}: {error}"), error)
}

/// An operation on a file of the store.
pub(crate) fn file(doing: &str, error: std::io::Error) -> Error {
    let is_full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let kind = if is_full { Kind::NoSpace } else { Kind::Broken };
    Error::caused(kind, format!("{doing}: {error}"), error)
}

/// Whether nothing is known about the file after this error, as after a failed fsync (hazard Z-23).
pub(crate) fn is_final(error: &Error) -> bool {
    let sqlite = error.source.as_ref().and_then(|source| source.downcast_ref::<rusqlite::Error>());
    sqlite.and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::SystemIoFailure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn z_23_only_a_failed_write_or_fsync_is_final() {
        let check = |code, kind, is_final| {
            let error = write(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
            assert_eq!((error.kind, super::is_final(&error)), (kind, is_final), "{}", error.message);
        };
        check(ffi::SQLITE_IOERR_FSYNC, Kind::Broken, true);
        check(ffi::SQLITE_IOERR_WRITE, Kind::Broken, true);
        check(ffi::SQLITE_FULL, Kind::NoSpace, false);
        check(ffi::SQLITE_BUSY, Kind::Retry, false);
        check(ffi::SQLITE_CORRUPT, Kind::Broken, false);
    }
}
