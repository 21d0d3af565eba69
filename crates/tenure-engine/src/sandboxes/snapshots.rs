//! Files that outlive the sandbox: stored at certain moments, and brought back when they are not here.

use super::Sandboxes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::{Consistency, Files, SessionId, SnapshotId, SnapshotReason, SnapshotTaken, TenantId, Timestamp};
use tenure_files::Error;
use tenure_files::place::{self, Brought, Wanted};
use tenure_files::snapshots::{self, Cache, GRACE, Id, Plan, RestoreLimits};
use tokio::sync::Semaphore;

/// Entries that the caches of all sessions hold; about 300 bytes each.
const MAX_CACHED: usize = 500_000;

/// Snapshots that are restored at the same time.
const MAX_RESTORES: usize = 4;

/// What is known of the files of a session when a sandbox is needed.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) tenant: TenantId,
    pub(crate) files: Files,
}

/// A snapshot that is asked for.
pub(crate) struct Wish {
    pub(crate) session: SessionId,
    pub(crate) home: Home,
    pub(crate) id: SnapshotId,
    pub(crate) epoch: u64,
    /// Where the log will tell of it.
    pub(crate) seq: u64,
    pub(crate) now: Timestamp,
    pub(crate) reason: SnapshotReason,
}

/// What the newest snapshots hold, so that the next ones are quick.
#[derive(Debug)]
pub(super) struct Caches {
    by_session: Mutex<BTreeMap<SessionId, Cache>>,
    restores: Semaphore,
}

impl Default for Caches {
    fn default() -> Self {
        Self { by_session: Mutex::default(), restores: Semaphore::new(MAX_RESTORES) }
    }
}

impl Caches {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Cache>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache of a session, if it tells of its newest snapshot.
    fn take(&self, session: SessionId, newest: Option<SnapshotId>) -> Option<Cache> {
        let cache = self.lock().remove(&session)?;
        (newest.map(SnapshotId::bits) == Some(cache.record().id.0)).then_some(cache)
    }

    fn keep(&self, session: SessionId, cache: Cache) {
        let mut caches = self.lock();
        caches.insert(session, cache);
        let mut total: usize = caches.values().map(Cache::len).sum();
        while total > MAX_CACHED
            && let Some(other) = caches.keys().copied().find(|other| *other != session)
        {
            total -= caches.remove(&other).map_or(0, |cache| cache.len());
        }
        if total > MAX_CACHED {
            caches.remove(&session);
        }
    }
}

impl Home {
    fn wanted(&self) -> Wanted {
        Wanted { snapshot: self.files.snapshot.map(|id| Id(id.bits())), epoch: self.files.epoch }
    }
}

impl Sandboxes {
    /// Makes sure that the newest files of a session are here, before anything uses them.
    pub(super) async fn bring(&self, session: SessionId, home: &Home) -> Result<Brought, Error> {
        let (workspace, state) = (self.folders.workspace(session), self.folders.state(session));
        let wanted = home.wanted();
        if place::is_current(&workspace, &state, &wanted) {
            return Ok(Brought::Current);
        }
        let _permit = self.caches.restores.acquire().await.ok();
        let (stores, tenant) = (self.stores.clone(), home.tenant.0.clone());
        blocking(move || {
            let snapshots = stores.of(&tenant)?;
            place::bring(&snapshots, &workspace, &state, &wanted, RestoreLimits::default())
        })
        .await
    }

    /// Notes which lease uses the files now.
    pub(super) async fn note_files(&self, session: SessionId, epoch: u64) -> Result<(), Error> {
        let (workspace, state) = (self.folders.workspace(session), self.folders.state(session));
        blocking(move || {
            std::fs::create_dir_all(&workspace).and_then(|()| std::fs::create_dir_all(&state)).map_err(|error| {
                Error { kind: tenure_files::Kind::Io, message: format!("make the workspace: {error}") }
            })?;
            place::note(&workspace, &state, epoch)
        })
        .await
    }

    /// Stores the files of a session. Nothing if there are none here, or if nothing has changed.
    pub(crate) async fn store_files(&self, wish: Wish) -> Result<Option<SnapshotTaken>, Error> {
        if self.hands.is_some() {
            return Ok(None);
        }
        let Wish { session, home, id, epoch, seq, now, reason } = wish;
        // No sandbox is started or ended meanwhile.
        let _turn = self.turns.take(session).await;
        let (workspace, state) = (self.folders.workspace(session), self.folders.state(session));
        let wanted = home.wanted();
        let cache = self.caches.take(session, home.files.snapshot);
        let stores = self.stores.clone();
        let parent = wanted.snapshot;
        let plan = Plan {
            id: Id(id.bits()),
            session: session.to_string(),
            epoch,
            seq,
            parent,
            taken_at_ms: u64::try_from(now.0).unwrap_or(0),
            is_frozen: false,
        };
        let tenant = home.tenant.0;
        let taken = blocking(move || {
            if !workspace.is_dir() || !place::is_current(&workspace, &state, &wanted) {
                return Ok(None);
            }
            stores.of(&tenant)?.take(&workspace, cache, &plan).map(Some)
        })
        .await?;
        let Some(taken) = taken else { return Ok(None) };
        let record = taken.cache.record();
        let told = SnapshotTaken {
            reason,
            consistency: match record.consistency {
                snapshots::Consistency::Frozen => Consistency::Frozen,
                snapshots::Consistency::Fuzzy => Consistency::Fuzzy,
                snapshots::Consistency::Torn => Consistency::Torn,
            },
            entries: record.entries,
            bytes: record.bytes,
            new_bytes: record.new_bytes,
            left_out: record.left_out_count,
        };
        let is_new = taken.is_new;
        self.caches.keep(session, taken.cache);
        Ok(is_new.then_some(told))
    }
}

/// How often packs that no snapshot needs are looked for.
const COLLECT: Duration = Duration::from_secs(6 * 3_600);

/// Removes what no snapshot has needed for a day, until the worker stops.
pub(crate) async fn collect(services: Arc<crate::services::Services>) {
    loop {
        tokio::select! {
            biased;
            () = services.stopping.cancelled() => return,
            () = tokio::time::sleep(COLLECT) => {}
        }
        let stores = services.sandboxes.stores.clone();
        let collected = blocking(move || {
            let mut all = Vec::new();
            for (tenant, snapshots) in stores.all()? {
                all.push((tenant, snapshots.collect(GRACE)));
            }
            Ok(all)
        });
        match collected.await {
            Ok(all) => {
                for (tenant, collected) in all {
                    match collected {
                        Ok(done) => {
                            tracing::info!(tenant, packs = done.packs, bytes = done.bytes, "collected snapshots")
                        }
                        // Nothing was removed: a record that cannot be read may need anything.
                        Err(error) => tracing::warn!(tenant, %error, "collect snapshots"),
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "collect snapshots"),
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error { kind: tenure_files::Kind::Io, message: error.to_string() })?
}

/// The stores of a data folder, unless it is told otherwise.
pub(super) fn default_stores(data: &std::path::Path) -> Arc<snapshots::Stores> {
    Arc::new(snapshots::Stores::new(&data.join("blobs").join("snapshots"), None))
}
