//! Space that is kept free for saving running work on a full disk (hazard Z-53).
//!
//! A file of [`RESERVE`] bytes is allocated beside the store. When the disk (or the store's own
//! quota) is full it is freed: what saves work may then still be written, what adds work is
//! refused until the reserve can be allocated again.

use rusqlite::Connection;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are kept free.
const RESERVE: u64 = 8 * 1024 * 1024;

/// How often a used reserve is tried to be refilled.
const REFILL: Duration = Duration::from_secs(1);

/// Pages that SQLite may always use if there is no quota: its own largest number.
const NO_QUOTA: u64 = 0xffff_fffe;

/// The reserve of one store.
#[derive(Debug)]
pub(crate) struct Reserve {
    file: PathBuf,
    /// Largest size of the store file, in pages.
    quota_pages: u64,
    reserve_pages: u64,
    /// When refilling was tried last, while it is used.
    used: Option<Instant>,
}

impl Reserve {
    /// Sets the reserve of a data folder aside. A disk that is full already is no reason not to open.
    pub(crate) fn new(data: &Path, connection: &Connection, max_bytes: Option<u64>) -> rusqlite::Result<Self> {
        let page: u64 = connection.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0))?.unsigned_abs().max(1);
        let quota_pages = max_bytes.map_or(NO_QUOTA, |bytes| (bytes / page).clamp(1, NO_QUOTA));
        let reserve_pages = if max_bytes.is_some() { (RESERVE / page).min(quota_pages / 4) } else { 0 };
        let mut reserve = Self { file: data.join("reserve"), quota_pages, reserve_pages, used: None };
        if !reserve.fill(connection) {
            tracing::error!(folder = %data.display(), "the disk of the store is nearly full; nothing new is taken until there is space");
            reserve.release(connection);
        }
        Ok(reserve)
    }

    /// Whether the reserve is in use and cannot be refilled yet.
    pub(crate) fn is_low(&mut self, connection: &Connection) -> bool {
        let Some(tried) = self.used else { return false };
        if tried.elapsed() < REFILL {
            return true;
        }
        if self.fill(connection) {
            tracing::info!("the disk of the store has space again");
            self.used = None;
            return false;
        }
        self.used = Some(Instant::now());
        true
    }

    /// Frees the reserve; false if it is in use already.
    pub(crate) fn release(&mut self, connection: &Connection) -> bool {
        let was_kept = self.used.is_none();
        self.used = Some(Instant::now());
        let _ = fs::remove_file(&self.file);
        let _ = set_max_pages(connection, self.quota_pages);
        was_kept
    }

    fn fill(&self, connection: &Connection) -> bool {
        let has_pages = used_pages(connection).is_ok_and(|used| used + self.reserve_pages <= self.quota_pages);
        if !has_pages || set_max_pages(connection, self.quota_pages - self.reserve_pages).is_err() {
            return false;
        }
        allocate(&self.file).inspect_err(|error| tracing::debug!(%error, "allocate the reserve")).is_ok()
    }
}

fn used_pages(connection: &Connection) -> rusqlite::Result<u64> {
    let get = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs);
    Ok(get("PRAGMA page_count")?.saturating_sub(get("PRAGMA freelist_count")?))
}

fn set_max_pages(connection: &Connection, pages: u64) -> rusqlite::Result<()> {
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}

fn allocate(path: &Path) -> std::io::Result<()> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() == RESERVE) {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
        Ok(()) => Ok(()),
        // Not every file system can; a file of zeros does the same.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_zeros(&file),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error.into())
        }
    }
}

fn write_zeros(mut file: &fs::File) -> std::io::Result<()> {
    use std::io::Write as _;
    let zeros = [0; 64 * 1024];
    for _ in 0..RESERVE / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}
