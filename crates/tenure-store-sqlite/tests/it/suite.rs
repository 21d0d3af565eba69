//! The conformance suite.

use async_trait::async_trait;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tenure_core::Millis;
use tenure_store::Store;
use tenure_store::conformance::Harness;
use tenure_store_sqlite::{Options, Sqlite, Wall};

/// A store in a folder of its own, whose clock is moved by the test.
pub(crate) struct InFolder {
    folder: TempDir,
    shift: Arc<AtomicI64>,
    store: Mutex<Arc<Sqlite>>,
}

impl InFolder {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let shift = Arc::new(AtomicI64::new(0));
        let store = Sqlite::open(options(&folder, &shift)).unwrap();
        Self { folder, shift, store: Mutex::new(store) }
    }
}

fn options(folder: &TempDir, shift: &Arc<AtomicI64>) -> Options {
    Options { wall: Wall::Shifted(shift.clone()), ..Options::new(folder.path().join("data")) }
}

#[async_trait]
impl Harness for InFolder {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().unwrap().clone()
    }

    fn advance(&self, span: Millis) {
        self.shift.fetch_add(i64::try_from(span).unwrap(), Ordering::Relaxed);
    }

    async fn reopen(&self) {
        let old = self.store.lock().unwrap().clone();
        old.close().await;
        *self.store.lock().unwrap() = Sqlite::open(options(&self.folder, &self.shift)).unwrap();
    }
}

tenure_store::conformance!(InFolder::new());
