//! A crash or a full disk at every point: what was whole stays whole, what was not is not seen.

use super::house::{House, describe, plan};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tenure_files::snapshots::{Backend, FolderBackend, Id, Lock, RestoreLimits, Snapshots, Stored};
use tenure_files::{Error, Kind};

/// Fails at one operation and at all after it, as a process that died; or at one only, as a full disk.
struct Failing {
    inner: FolderBackend,
    left: AtomicU64,
    /// The failing operation is done nevertheless, and only its reply is lost.
    does_it: bool,
    stays_dead: bool,
    is_hit: AtomicBool,
}

impl Failing {
    fn step<T>(&self, act: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
            return act();
        }
        if self.is_hit.swap(true, Ordering::SeqCst) && !self.stays_dead {
            return act();
        }
        if self.does_it {
            let _ = act();
        }
        Err(Error { kind: Kind::NoSpace, message: "no space left on device".into() })
    }
}

impl Backend for Failing {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.step(|| self.inner.put(name, bytes))
    }
    fn get(&self, name: &str) -> Result<Vec<u8>, Error> {
        self.step(|| self.inner.get(name))
    }
    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.step(|| self.inner.get_range(name, offset, len))
    }
    fn size(&self, name: &str) -> Result<Option<u64>, Error> {
        self.step(|| self.inner.size(name))
    }
    fn list(&self, folder: &str) -> Result<Vec<Stored>, Error> {
        self.step(|| self.inner.list(folder))
    }
    fn remove(&self, name: &str) -> Result<(), Error> {
        self.step(|| self.inner.remove(name))
    }
    fn lock(&self, alone: bool) -> Result<Lock, Error> {
        self.step(|| self.inner.lock(alone))
    }
}

fn failing(house: &House, after: u64, does_it: bool, stays_dead: bool) -> (Arc<Failing>, Result<Snapshots, Error>) {
    let inner = FolderBackend::open(&house.folder.path().join("snapshots")).unwrap();
    let (left, is_hit) = (AtomicU64::new(after), AtomicBool::new(false));
    let backend = Arc::new(Failing { inner, left, does_it, stays_dead, is_hit });
    let snapshots = Snapshots::open(backend.clone(), None);
    (backend, snapshots)
}

fn furnish(house: &House) {
    for number in 0..40u8 {
        house.write(&format!("folder {}/{number}", number % 4), vec![number; 900 + usize::from(number)]);
    }
}

#[test]
fn a_snapshot_that_is_cut_off_anywhere_leaves_earlier_ones_and_is_not_seen() {
    for (does_it, stays_dead) in [(false, true), (true, true), (false, false)] {
        let mut house = House::new();
        furnish(&house);
        let first = house.take(None).cache.record().id;
        let before = describe(&house.workspace());
        house.write("folder 1/new", vec![1; 5_000]);
        fs::remove_file(house.path("folder 2/2")).unwrap();
        let after = describe(&house.workspace());
        let mut id = 100;
        let mut hits = 0;
        loop {
            id += 1;
            let (backend, snapshots) = failing(&house, hits, does_it, stays_dead);
            let plan = tenure_files::snapshots::Plan { parent: Some(first), ..plan(id) };
            let taken = snapshots.and_then(|snapshots| snapshots.take(&house.workspace(), None, &plan));
            assert_eq!(house.restored(first), before);
            let visible = house.snapshots.ids().unwrap();
            match (&taken, visible.contains(&Id(id))) {
                (Ok(_), true) => assert_eq!(house.restored(Id(id)), after),
                // Only the reply was lost: it is whole.
                (Err(_), true) => {
                    assert!(does_it);
                    assert_eq!(house.restored(Id(id)), after);
                }
                (Err(error), false) => assert_eq!(error.kind, Kind::NoSpace, "{error}"),
                (Ok(_), false) => panic!("a snapshot that was taken is not there"),
            }
            if !backend.is_hit.load(Ordering::SeqCst) {
                break;
            }
            hits += 1;
            assert!(hits < 500, "it never ends");
        }
        assert!(hits > 4, "only {hits} points were tried");
        house.snapshots.collect(Duration::ZERO).unwrap();
        assert_eq!(house.restored(first), before);
        assert!(house.snapshots.check(true).unwrap().damages.is_empty());
    }
}

#[test]
fn a_restore_that_is_cut_off_anywhere_leaves_the_folder_as_it_was() {
    let mut house = House::new();
    furnish(&house);
    let id = house.take(None).cache.record().id;
    let wanted = describe(&house.workspace());
    let target = house.folder.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("work"), "of today").unwrap();
    let before = describe(&target);
    for hits in 0..500 {
        let (backend, snapshots) = failing(&house, hits, false, true);
        let restored = snapshots.and_then(|snapshots| snapshots.restore(id, &target, RestoreLimits::default()));
        if !backend.is_hit.load(Ordering::SeqCst) {
            restored.unwrap();
            assert_eq!(describe(&target), wanted);
            assert!(hits > 10);
            return;
        }
        assert!(restored.is_err());
        assert_eq!(describe(&target), before);
        let names: Vec<_> =
            fs::read_dir(house.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "something was left: {names:?}");
    }
    panic!("it never ends");
}

#[test]
fn a_collection_that_is_cut_off_anywhere_removes_nothing_that_is_needed() {
    for hits in 0..500 {
        let mut house = House::new();
        furnish(&house);
        let first = house.take(None);
        let first_id = first.cache.record().id;
        house.write("folder 1/new", vec![1; 5_000]);
        let second = house.take(Some(first.cache));
        house.snapshots.remove(first_id).unwrap();
        let (backend, snapshots) = failing(&house, hits, true, true);
        let collected = snapshots.and_then(|snapshots| snapshots.collect(Duration::ZERO));
        assert_eq!(house.restored(second.cache.record().id), describe(&house.workspace()));
        if !backend.is_hit.load(Ordering::SeqCst) {
            collected.unwrap();
            return;
        }
    }
    panic!("it never ends");
}
