//! The snapshots of each tenant, apart from those of the others.

use super::backend::FolderBackend;
use super::seal::KEY_BYTES;
use super::store::Snapshots;
use crate::error::Error;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Opens the snapshots of a tenant when they are first needed.
pub struct Stores {
    root: PathBuf,
    key: Option<[u8; KEY_BYTES]>,
    open: Mutex<BTreeMap<String, Arc<Snapshots>>>,
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Stores {
    /// Snapshots in a folder, encrypted if there is a key.
    pub fn new(root: &Path, key: Option<[u8; KEY_BYTES]>) -> Self {
        Self { root: root.to_owned(), key, open: Mutex::default() }
    }

    /// The snapshots of a tenant.
    ///
    /// # Errors
    /// When they cannot be opened, for example with another key.
    pub fn of(&self, tenant: &str) -> Result<Arc<Snapshots>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshots) = open.get(tenant) {
            return Ok(snapshots.clone());
        }
        let backend = FolderBackend::open(&self.root.join(folder_name(tenant)))?;
        let snapshots = Arc::new(Snapshots::open(Arc::new(backend), self.key.as_ref())?);
        open.insert(tenant.to_owned(), snapshots.clone());
        Ok(snapshots)
    }

    /// Each tenant that has snapshots here, opened.
    ///
    /// # Errors
    /// When the folder cannot be listed, or one of them cannot be opened.
    pub fn all(&self) -> Result<Vec<(String, Arc<Snapshots>)>, Error> {
        use std::os::unix::ffi::OsStrExt;
        let wrong = |error: std::io::Error| Error::io("list", self.root.as_os_str().as_bytes(), &error);
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(wrong)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry.map_err(wrong)?.file_name().to_string_lossy().into_owned();
            if let Some(tenant) = tenant_of(&name) {
                all.push((tenant.clone(), self.of(&tenant)?));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }
}

/// A name that is one folder, whatever the tenant is called.
fn folder_name(tenant: &str) -> String {
    let hex: String = tenant.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("t-{hex}")
}

fn tenant_of(folder: &str) -> Option<String> {
    let hex = folder.strip_prefix("t-")?;
    let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}
