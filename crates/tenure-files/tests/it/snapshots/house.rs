//! A folder with snapshots of it, and a full description of a folder to compare with.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_files::Error;
use tenure_files::snapshots::{Backend, Cache, FolderBackend, Id, Plan, RestoreLimits, Snapshots, Taken};

pub(super) struct House {
    pub(super) folder: tempfile::TempDir,
    pub(super) snapshots: Arc<Snapshots>,
    next: u128,
}

impl House {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        let snapshots = Arc::new(open(folder.path(), None).unwrap());
        Self { folder, snapshots, next: 1 }
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.workspace().join(name)
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn plan(&mut self) -> Plan {
        self.next += 1;
        plan(self.next)
    }

    pub(super) fn take(&mut self, cache: Option<Cache>) -> Taken {
        let plan = self.plan();
        self.snapshots.take(&self.workspace(), cache, &plan).unwrap()
    }

    /// Restores elsewhere and describes what is there.
    pub(super) fn restored(&self, id: Id) -> BTreeMap<Vec<u8>, Described> {
        let elsewhere = self.folder.path().join("elsewhere");
        let restored = self.snapshots.restore(id, &elsewhere, RestoreLimits::default()).unwrap();
        assert_eq!(restored.lost, 0);
        let described = describe(&elsewhere);
        tenure_files::Workspace::open(self.folder.path()).unwrap().remove_all(b"elsewhere").unwrap();
        described
    }
}

pub(super) fn plan(number: u128) -> Plan {
    Plan {
        id: Id(number),
        session: "sesn_1".into(),
        epoch: 1,
        seq: 1,
        parent: None,
        taken_at_ms: 1_000,
        is_frozen: false,
    }
}

pub(super) fn open(folder: &Path, key: Option<&[u8; 32]>) -> Result<Snapshots, Error> {
    let backend: Arc<dyn Backend> = Arc::new(FolderBackend::open(&folder.join("snapshots"))?);
    Snapshots::open(backend, key)
}

/// All that a restore must give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    size: u64,
    content: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first path of the same file.
    first: Vec<u8>,
}

/// Describes a folder, itself included.
pub(super) fn describe(root: &Path) -> BTreeMap<Vec<u8>, Described> {
    let (mut all, mut first) = (BTreeMap::new(), BTreeMap::new());
    let mut paths = vec![PathBuf::new()];
    let mut next = vec![PathBuf::new()];
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if fs::symlink_metadata(root.join(&path)).unwrap().is_dir() {
                next.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).unwrap();
        let kind = metadata.file_type();
        assert!(!kind.is_socket(), "{path:?}");
        let content = if kind.is_file() {
            fs::read(&full).unwrap()
        } else if kind.is_symlink() {
            fs::read_link(&full).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        let name = path.as_os_str().as_bytes().to_vec();
        let size = if kind.is_dir() { 0 } else { metadata.len() };
        let first = if kind.is_file() {
            first.entry(metadata.ino()).or_insert_with(|| name.clone()).clone()
        } else {
            name.clone()
        };
        let described = Described {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            size,
            content,
            xattrs: xattrs(&full),
            first,
        };
        all.insert(name, described);
    }
    all
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = Vec::with_capacity(4_096);
    if rustix::fs::llistxattr(path, rustix::buffer::spare_capacity(&mut names)).is_err() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = Vec::with_capacity(4_096);
        rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value)).unwrap();
        all.push((name.to_vec(), value));
    }
    all.sort();
    all
}
