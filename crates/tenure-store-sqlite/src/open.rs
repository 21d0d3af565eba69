//! Opens the store file, makes or checks its schema, and refuses places where it would be unsafe.

use crate::clock::Wall;
use crate::errors;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_store::{Error, Kind};

/// Version of the schema that this release writes.
const SCHEMA_VERSION: i64 = 5;

/// What brings a store from a version, counted from 1, to the next one.
const STEPS: [&str; SCHEMA_VERSION as usize - 1] = [
    include_str!("schema_1_to_2.sql"),
    include_str!("schema_2_to_3.sql"),
    include_str!("schema_3_to_4.sql"),
    include_str!("schema_4_to_5.sql"),
];

/// How long a process waits for the other one's transaction.
const BUSY: Duration = Duration::from_secs(10);

/// Pages of the write-ahead log after which a commit copies them back itself, as long as groups are
/// small (4 KiB each). Few, so that the log's file is soon as long as it gets and its blocks are used
/// again: a commit that makes the file longer costs the file system a write with every fsync.
pub(crate) const WAL_PAGES: u32 = 1_000;

/// The same while groups are large: only a net, since the thread in `log` does it before.
pub(crate) const WAL_PAGES_OF_LARGE_GROUPS: u32 = 65_536;

/// Statements that each connection keeps prepared.
const STATEMENTS: usize = 96;

/// Connections that read at the same time, unless told otherwise.
const READERS: usize = 4;

/// Magic numbers of file systems on which SQLite's locks or shared memory are not safe (hazard Z-23).
const UNSAFE_FILE_SYSTEMS: [(u32, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE (network mounts, sync folders, folders shared by a virtual machine)"),
    (0x00c3_6400, "Ceph"),
];

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; made if it does not exist.
    pub path: PathBuf,
    /// Most connections that read at the same time.
    pub readers: usize,
    /// Largest size of the store file in bytes; `None` for what the disk has.
    pub max_bytes: Option<u64>,
    /// Whether file systems are taken on which SQLite's locks may fail.
    pub allows_any_file_system: bool,
    /// Where time comes from.
    pub wall: Wall,
}

impl Options {
    /// The ordinary options for a data folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), readers: READERS, max_bytes: None, allows_any_file_system: false, wall: Wall::System }
    }

    /// The store file.
    pub fn file(&self) -> PathBuf {
        self.path.join("tenure.db")
    }
}

/// Makes the folder, private to this user, and checks its file system.
pub(crate) fn prepare(options: &Options) -> Result<(), Error> {
    let path = &options.path;
    let doing = |what: &str| format!("{what} the data folder {}", path.display());
    fs::create_dir_all(path).map_err(|error| errors::file(&doing("make"), error))?;
    let folder = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| errors::file(&doing("open"), error.into()))?;
    rustix::fs::fchmod(&folder, Mode::RWXU).map_err(|error| errors::file(&doing("make private"), error.into()))?;
    let stat = rustix::fs::fstatfs(&folder).map_err(|error| errors::file(&doing("look at"), error.into()))?;
    refuse_unsafe(path, stat.f_type as u32, options.allows_any_file_system)
}

fn refuse_unsafe(path: &Path, magic: u32, allows_any: bool) -> Result<(), Error> {
    match UNSAFE_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic) {
        Some((_, name)) if !allows_any => {
            let path = path.display();
            let message = format!(
                "the data folder {path} is on {name}, where SQLite's locks are not safe; choose a folder on a local disk"
            );
            Err(Error::new(Kind::Invalid, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// A connection that may write; makes the schema if there is none.
pub(crate) fn writer(options: &Options) -> Result<Connection, Error> {
    let connection = connect(options, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    migrate(&connection)?;
    Ok(connection)
}

/// A connection that only reads.
pub(crate) fn reader(options: &Options) -> Result<Connection, Error> {
    let connection = connect(options, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true).map_err(errors::read)?;
    Ok(connection)
}

/// A connection for copying the log back and removing rows, beside the writer.
pub(crate) fn upkeep(options: &Options) -> Result<Connection, Error> {
    connect(options, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

fn connect(options: &Options, flags: OpenFlags) -> Result<Connection, Error> {
    let sql = |error| errors::sqlite(&format!("open the store {}", options.file().display()), error);
    let connection =
        Connection::open_with_flags(options.file(), flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(sql)?;
    connection.busy_timeout(BUSY).map_err(sql)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Plans must not depend on bound values: SQLite would otherwise prepare each statement that has a LIMIT anew
    // every time it is bound, which cost a quarter of the writer's time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sql)?;
    let settings = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {WAL_PAGES};
         PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
    );
    connection.execute_batch(&settings).map_err(sql)?;
    Ok(connection)
}

/// Brings the schema to [`SCHEMA_VERSION`], one step per version, or refuses a newer one (hazard Z-55).
fn migrate(connection: &Connection) -> Result<(), Error> {
    let sql = |error| errors::sqlite("prepare the schema", error);
    let version = |connection: &Connection| {
        connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).map_err(sql)
    };
    // Without the lock first: an ordinary start must not wait for another process.
    if version(connection)? == SCHEMA_VERSION {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    let result = match version(connection)? {
        0 => connection
            .execute_batch(include_str!("schema.sql"))
            .and_then(|()| connection.pragma_update(None, "user_version", SCHEMA_VERSION))
            .map_err(sql),
        found @ 1..=SCHEMA_VERSION => STEPS
            .iter()
            .skip(usize::try_from(found - 1).expect("versions begin at 1"))
            .try_for_each(|step| connection.execute_batch(step))
            .and_then(|()| connection.pragma_update(None, "user_version", SCHEMA_VERSION))
            .map_err(sql),
        newer => Err(Error::new(
            Kind::Invalid,
            format!(
                "the store has schema version {newer}, this release knows {SCHEMA_VERSION}; start the release that wrote it, or a newer one"
            ),
        )),
    };
    connection.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" }).map_err(sql)?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_23_network_file_systems_are_refused_with_a_reason() {
        let check = |magic, allows_any| {
            refuse_unsafe(Path::new("data"), magic, allows_any).map_err(|error| (error.kind, error.message))
        };
        assert_eq!(check(0xef53, false), Ok(()), "ext4");
        let (kind, message) = check(0x6969, false).expect_err("NFS is refused");
        assert_eq!(kind, Kind::Invalid);
        assert!(message.contains("NFS") && message.contains("local disk"), "{message}");
        assert_eq!(check(0x6969, true), Ok(()));
    }
}
