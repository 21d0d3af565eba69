//! Copies a store that is in use.

use crate::blobs::Blobs;
use crate::errors;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs;
use std::path::Path;
use tenure_store::{Error, Kind};

/// All pages in one step: the copy is of one moment, and commits meanwhile do not start it again.
const ALL_PAGES: i32 = -1;

/// Copies the file with SQLite's own means, then the payloads: every one that the copy names was
/// durable before, and payloads are never changed.
pub(crate) fn copy(connection: &Connection, blobs: &Blobs, to: &Path) -> Result<(), Error> {
    let doing = |what: &str| format!("{what} of the backup {}", to.display());
    fs::create_dir_all(to).map_err(|error| errors::file(&doing("make the folder"), error))?;
    let file = to.join("tenure.db");
    if file.exists() {
        return Err(Error::new(Kind::Conflict, format!("{} exists already; choose an empty folder", file.display())));
    }
    let sql = |error| errors::sqlite(&doing("copy the store file"), error);
    let mut target = Connection::open(&file).map_err(sql)?;
    match Backup::new(connection, &mut target).and_then(|backup| backup.step(ALL_PAGES)).map_err(sql)? {
        StepResult::Done => {}
        _ => {
            return Err(Error::new(Kind::Retry, doing("copy the store file: the store is busy")));
        }
    }
    target.close().map_err(|(_, error)| sql(error))?;
    blobs.copy(&to.join("blobs")).map_err(|error| errors::file(&doing("copy the payloads"), error))?;
    let sync = |path: &Path| fs::File::open(path).and_then(|file| file.sync_all());
    sync(&file).and_then(|()| sync(to)).map_err(|error| errors::file(&doing("write the files"), error))
}
