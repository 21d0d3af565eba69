//! Where packs and records are kept. A backend knows names and bytes, nothing of what they mean.

use crate::error::{Error, Kind};
use rustix::fs::{FlockOperation, flock};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Files that a folder keeps open for reading.
const OPEN_FILES: usize = 32;

/// What is stored under a name.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// How long ago it was stored.
    pub age: Duration,
}

/// Held for as long as a [`Backend::lock`] is.
pub type Lock = Box<dyn Send>;

/// Keeps bytes under names. Names are given once and never again (hazard Z-14).
pub trait Backend: Send + Sync {
    /// Stores bytes under a new name. When it returns they are durable, and before that nobody sees
    /// a part of them.
    ///
    /// # Errors
    /// When the name is taken, the disk is full, or the system says so.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error>;
    /// Everything under a name.
    ///
    /// # Errors
    /// When nothing is there, or it cannot be read.
    fn get(&self, name: &str) -> Result<Vec<u8>, Error>;
    /// Exactly so many bytes from a place on.
    ///
    /// # Errors
    /// When nothing is there, or less, or it cannot be read.
    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error>;
    /// The size of what is under a name, if anything is.
    ///
    /// # Errors
    /// When that cannot be told.
    fn size(&self, name: &str) -> Result<Option<u64>, Error>;
    /// Everything below a folder.
    ///
    /// # Errors
    /// When it cannot be listed as a whole.
    fn list(&self, folder: &str) -> Result<Vec<Stored>, Error>;
    /// Removes what is under a name, if anything is.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&self, name: &str) -> Result<(), Error>;
    /// Waits for the lock: shared by those who publish and restore, alone for who collects.
    ///
    /// # Errors
    /// When there can be none.
    fn lock(&self, alone: bool) -> Result<Lock, Error>;
}

/// Keeps everything in a folder of this machine.
pub struct FolderBackend {
    root: PathBuf,
    open: Mutex<HashMap<String, Arc<File>>>,
}

impl FolderBackend {
    /// Opens a folder, making it if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let backend = Self { root: root.to_owned(), open: Mutex::default() };
        backend.make_folder(root)?;
        Ok(backend)
    }

    fn make_folder(&self, folder: &Path) -> Result<(), Error> {
        // Whoever can read a pack can read the files of its sessions.
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| Error::io("make", folder.as_os_str().as_bytes(), &error))
    }

    fn file(&self, name: &str) -> Result<Arc<File>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(name) {
            return Ok(file.clone());
        }
        let file = File::open(self.root.join(name)).map_err(|error| Error::io("open", name.as_bytes(), &error))?;
        if open.len() >= OPEN_FILES {
            open.clear();
        }
        let file = Arc::new(file);
        open.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn list_into(&self, folder: &str, now: SystemTime, all: &mut Vec<Stored>) -> Result<(), Error> {
        let wrong = |error: std::io::Error| Error::io("list", folder.as_bytes(), &error);
        let entries = match fs::read_dir(self.root.join(folder)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(wrong)?,
        };
        for entry in entries {
            let entry = entry.map_err(wrong)?;
            let Some(name) = entry.file_name().to_str().map(|name| format!("{folder}/{name}")) else { continue };
            let metadata = match entry.metadata() {
                // Removed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                metadata => metadata.map_err(wrong)?,
            };
            if metadata.is_dir() {
                self.list_into(&name, now, all)?;
            } else {
                let stored = metadata.modified().map_err(wrong)?;
                // What seems to come from the future is new.
                let age = now.duration_since(stored).unwrap_or_default();
                all.push(Stored { name, bytes: metadata.len(), age });
            }
        }
        Ok(())
    }
}

/// Ends the name of what is not whole yet.
pub(super) const DRAFT: &str = ".draft";

impl Backend for FolderBackend {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let wrong = |error: std::io::Error| Error::io("store", name.as_bytes(), &error);
        let path = self.root.join(name);
        let folder = path.parent().expect("a name is below the root");
        let draft = path.with_extension(&DRAFT[1..]);
        let create = || fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let mut file = match create() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.make_folder(folder)?;
                // The name of the new folder must last as well.
                folder
                    .parent()
                    .map_or(Ok(()), |above| File::open(above).and_then(|above| above.sync_all()))
                    .map_err(wrong)?;
                create().map_err(wrong)?
            }
            file => file.map_err(wrong)?,
        };
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        // A link instead of a rename: it refuses a name that is taken.
        let written = written.and_then(|()| fs::hard_link(&draft, &path));
        let removed = fs::remove_file(&draft);
        written.map_err(wrong)?;
        removed.map_err(wrong)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(wrong)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, Error> {
        fs::read(self.root.join(name)).map_err(|error| Error::io("read", name.as_bytes(), &error))
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        self.file(name)?.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::new(Kind::Damaged, format!("{name} is shorter than it was")),
            _ => Error::io("read", name.as_bytes(), &error),
        })?;
        Ok(bytes)
    }

    fn size(&self, name: &str) -> Result<Option<u64>, Error> {
        match fs::metadata(self.root.join(name)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("look at", name.as_bytes(), &error)),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "compared with the times of files, which this machine's clock gave")]
    fn list(&self, folder: &str) -> Result<Vec<Stored>, Error> {
        let mut all = Vec::new();
        self.list_into(folder, SystemTime::now(), &mut all)?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        match fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", name.as_bytes(), &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn lock(&self, alone: bool) -> Result<Lock, Error> {
        let wrong = |error: std::io::Error| Error::io("lock", b"the snapshots", &error);
        let path = self.root.join("lock");
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        let file = file.map_err(wrong)?;
        let operation = if alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        loop {
            match flock(&file, operation) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(wrong(error.into())),
                // The kernel lets go of it when the file is closed, however that happens.
                Ok(()) => return Ok(Box::new(file)),
            }
        }
    }
}
