//! Opens the store file, makes or checks its schema, and refuses places where it would be unsafe.

use crate::errors;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_store::{Error, Kind};

/// Version of the schema that this release writes.
const SCHEMA_VERSION: i64 = 1;

/// How long a process waits for the other one's transaction.
const BUSY: Duration = Duration::from_secs(10);

/// Pages of the write-ahead log after which it is copied back (4 KiB each).
const WAL_PAGES: u32 = 4_000;

/// Magic numbers of file systems on which SQLite's locks or shared memory do not work (hazard Z-23).
const NETWORK_FILE_SYSTEMS: [(i64, &str); 4] =
    [(0x6969, "NFS"), (0x517b, "SMB"), (0xff53_4d42_u32 as i64, "CIFS"), (0xfe53_4d42_u32 as i64, "SMB2")];

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; made if it does not exist.
    pub data: PathBuf,
}

impl Options {
    /// The store file.
    pub fn file(&self) -> PathBuf {
        self.data.join("tenure.db")
    }
}

/// Makes the folder private and checks its file system.
pub(crate) fn prepare(data: &Path) -> Result<(), Error> {
    fs::create_dir_all(data).map_err(|error| errors::file(&format!("make the data folder {}", data.display()), error))?;
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(data, private).map_err(|error| errors::file("make the data folder private", error))?;
    if let Ok(stat) = rustix::fs::statfs(data) {
        let magic = stat.f_type as i64;
        if let Some((_, name)) = NETWORK_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic) {
            let message = format!(
                "the data folder {} is on {name}, where SQLite's locks are not safe; choose a local folder with --data",
                data.display()
            );
            return Err(Error::new(Kind::Invalid, message));
        }
    }
    Ok(())
}

/// A connection that may write.
pub(crate) fn writer(options: &Options) -> Result<Connection, Error> {
    let connection = connect(options, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    migrate(&connection)?;
    Ok(connection)
}

/// A connection that only reads.
pub(crate) fn reader(options: &Options) -> Result<Connection, Error> {
    connect(options, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

fn connect(options: &Options, flags: OpenFlags) -> Result<Connection, Error> {
    let sql = |error| errors::sqlite("open the store", error);
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(options.file(), flags).map_err(sql)?;
    connection.busy_timeout(BUSY).map_err(sql)?;
    connection.set_prepared_statement_cache_capacity(64);
    let settings = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {WAL_PAGES};
         PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;"
    );
    connection.execute_batch(&settings).map_err(sql)?;
    Ok(connection)
}

fn migrate(connection: &Connection) -> Result<(), Error> {
    let sql = |error| errors::sqlite("prepare the schema", error);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sql)?;
    let result = match version {
        0 => connection.execute_batch(include_str!("schema.sql")).map_err(sql).and_then(|()| {
            connection.execute_batch(&format!("PRAGMA user_version = {SCHEMA_VERSION}")).map_err(sql)
        }),
        SCHEMA_VERSION => Ok(()),
        newer => Err(Error::new(
            Kind::Invalid,
            format!("the store has schema version {newer}, this release knows {SCHEMA_VERSION}; start the release that wrote it"),
        )),
    };
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(sql)?;
    result
}
