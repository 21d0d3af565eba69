//! The conformance suite, as a whole and without the capabilities that some members of the family lack.

use crate::server::server;
use async_trait::async_trait;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tenure_core::Millis;
use tenure_store::Store;
use tenure_store::conformance::Harness;
use tenure_store_postgres::{Options, Postgres};

/// A store in a database of its own, whose clock is moved by the test.
pub(crate) struct InDatabase {
    options: Options,
    store: Mutex<Arc<Postgres>>,
}

impl InDatabase {
    /// `None` if this machine has no server.
    pub(crate) async fn new(change: impl FnOnce(&mut Options)) -> Option<Self> {
        let mut options = Options::parse(&server()?.database().await).unwrap();
        change(&mut options);
        let store = Mutex::new(Postgres::open(options.clone()).await.unwrap());
        Some(Self { options, store })
    }

    pub(crate) fn postgres(&self) -> Arc<Postgres> {
        self.store.lock().unwrap().clone()
    }
}

#[async_trait]
impl Harness for InDatabase {
    fn store(&self) -> Arc<dyn Store> {
        self.postgres()
    }

    fn advance(&self, span: Millis) {
        self.options.shift_millis.fetch_add(i64::try_from(span).unwrap(), Ordering::Relaxed);
    }

    async fn reopen(&self) {
        self.postgres().close().await;
        *self.store.lock().unwrap() = Postgres::open(self.options.clone()).await.unwrap();
    }
}

mod stock {
    use super::*;
    tenure_store::conformance!(match InDatabase::new(|_| {}).await {
        Some(harness) => harness,
        None => return,
    });
}

/// As on the weakest member: rows are not passed over, nobody is notified, and a transaction that meets
/// another one is refused.
mod hostile {
    use super::*;
    tenure_store::conformance!(match InDatabase::new(|options| {
        options.skips_locked = false;
        options.notifies = false;
    })
    .await
    {
        Some(harness) => harness,
        None => return,
    });
}
