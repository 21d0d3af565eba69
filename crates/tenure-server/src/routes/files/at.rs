//! Which state of the files a request is about.

use super::super::find_session;
use super::blocking;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::state::ServerState;
use std::fmt;
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_core::{Session, SessionId, SnapshotId};
use tenure_files::place::{self, Wanted};
use tenure_files::snapshots::{Id, Record, RestoreLimits, Snapshots};
use tenure_store::{SessionView, State};

/// Snapshots that are gone through to find the one that an event saw.
const MAX_STEPS: usize = 10_000;

/// A state of the files of a session.
#[derive(Clone)]
pub(crate) enum At {
    /// As they are now.
    Live,
    /// As a snapshot has them.
    Stored(Arc<Snapshots>, Id),
}

impl At {
    /// The snapshot, if it is one.
    pub(crate) fn stored(&self) -> Option<(Arc<Snapshots>, Id)> {
        match self {
            Self::Live => None,
            Self::Stored(snapshots, id) => Some((snapshots.clone(), *id)),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Stored(_, id) => SnapshotId::from_bits(id.0).fmt(f),
        }
    }
}

/// Reads `live`, `snap_…` or `seq:N`. Without a word: as they are now if they are here, else as the newest
/// snapshot has them.
pub(crate) async fn at(state: &ServerState, view: &SessionView, word: Option<&str>) -> Result<At> {
    let session = &view.session;
    let newest = session.files.snapshot.map(|id| Id(id.bits()));
    match word {
        Some("live") if is_here(state, session) => Ok(At::Live),
        Some("live") => Err(ApiError::new(
            Code::Conflict,
            "the files of this session are not on this machine as they are now; leave `at` out for the newest snapshot",
        )),
        None => match newest {
            Some(newest) if !is_here(state, session) => Ok(At::Stored(snapshots(state, session)?, newest)),
            Some(_) | None => Ok(At::Live),
        },
        Some(word) => {
            let snapshots = snapshots(state, session)?;
            let id = match word.strip_prefix("seq:") {
                Some(seq) => {
                    let seq: u64 = seq.parse().map_err(|_| wrong_word(word))?;
                    seen_at(snapshots.clone(), newest, seq).await?
                }
                None => {
                    let id: SnapshotId = word.parse().map_err(|_| wrong_word(word))?;
                    Id(id.bits())
                }
            };
            record(&snapshots, session, id).await?;
            Ok(At::Stored(snapshots, id))
        }
    }
}

fn wrong_word(word: &str) -> ApiError {
    ApiError::new(Code::InvalidQuery, format!("expected live, seq:NUMBER or the id of a snapshot, found {word:?}"))
}

/// The snapshots among which those of a session are.
pub(crate) fn snapshots(state: &ServerState, session: &Session) -> Result<Arc<Snapshots>> {
    state.config.snapshots.of(&session.tenant.0).map_err(super::refused)
}

/// What is known of a snapshot of this session, or of one that stands before its own because it is a fork.
pub(crate) async fn record(snapshots: &Arc<Snapshots>, session: &Session, id: Id) -> Result<Record> {
    let found = any_record(snapshots, id).await?;
    if found.session == session.id.to_string() {
        return Ok(found);
    }
    let newest = session.files.snapshot.filter(|_| session.forked.is_some()).map(|id| Id(id.bits()));
    let snapshots = snapshots.clone();
    let is_before = blocking(move || find(&snapshots, newest, |record| record.id == id)).await?;
    is_before.map(|_| found).ok_or_else(|| no_snapshot(id))
}

/// What is known of a snapshot, whosever it is.
pub(crate) async fn any_record(snapshots: &Arc<Snapshots>, id: Id) -> Result<Record> {
    let snapshots = snapshots.clone();
    let found = tokio::task::spawn_blocking(move || snapshots.record(id)).await.map_err(ApiError::internal)?;
    match found {
        Err(error) if error.kind == tenure_files::Kind::NotFound => Err(no_snapshot(id)),
        found => found.map_err(super::refused),
    }
}

/// There is no such snapshot.
pub(crate) fn no_snapshot(id: Id) -> ApiError {
    ApiError::new(Code::SnapshotNotFound, format!("there is no snapshot {}", SnapshotId::from_bits(id.0)))
}

/// The newest snapshot of a line for which `is_it` holds.
fn find(
    snapshots: &Snapshots,
    newest: Option<Id>,
    is_it: impl Fn(&Record) -> bool,
) -> Result<Option<Id>, tenure_files::Error> {
    let mut next = newest;
    for _ in 0..MAX_STEPS {
        let Some(id) = next else { break };
        let record = match snapshots.record(id) {
            // Removed with its session: what stood before it is not reached any more.
            Err(error) if error.kind == tenure_files::Kind::NotFound && newest != Some(id) => break,
            record => record?,
        };
        if is_it(&record) {
            return Ok(Some(id));
        }
        next = record.parent;
    }
    Ok(None)
}

/// The newest snapshot that the event at `seq` saw.
async fn seen_at(snapshots: Arc<Snapshots>, newest: Option<Id>, seq: u64) -> Result<Id> {
    let found = blocking(move || find(&snapshots, newest, |record| record.seq <= seq));
    found
        .await?
        .ok_or_else(|| ApiError::new(Code::SnapshotNotFound, format!("there was no snapshot yet at event {seq}")))
}

fn wanted(session: &Session) -> Wanted {
    Wanted { snapshot: session.files.snapshot.map(|id| Id(id.bits())), epoch: session.files.epoch }
}

fn is_here(state: &ServerState, session: &Session) -> bool {
    place::is_current(&(state.config.workspace)(session.id), &(state.config.outputs)(session.id), &wanted(session))
}

/// Makes sure that what is written joins the newest files and no stale or empty folder.
pub(super) async fn bring(state: &ServerState, caller: &Caller, id: SessionId) -> Result<()> {
    let view = find_session(state, caller, id).await?;
    let session = &view.session;
    if is_here(state, session) {
        return Ok(());
    }
    if view.state == State::Leased {
        let message = "the files of this session are in use on another machine; write again when it is idle";
        return Err(ApiError::new(Code::SessionBusy, message));
    }
    let (workspace, folder) = ((state.config.workspace)(id), (state.config.outputs)(id));
    let (snapshots, wanted) = (snapshots(state, session)?, wanted(session));
    blocking(move || place::bring(&snapshots, &workspace, &folder, &wanted, RestoreLimits::default())).await.map(drop)
}
