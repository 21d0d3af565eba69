//! Snapshots of a session's files: which there are, one more, and what is different between two states.

use super::files::{At, at, blocking, path, show, text};
use super::{find_session, session_id};
use crate::deliver;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::{JsonBody, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tenure_api::error::Code;
use tenure_api::fields::Problem;
use tenure_api::snapshot::{WireChange, WireLeftOut, WireSnapshot};
use tenure_core::{InputBody, SessionId, SnapshotId, Timestamp};
use tenure_files::Workspace;
use tenure_files::snapshots::{Change, ChangeKind, Consistency, Id, Reason, Record};
use tenure_store::{Idempotency, SessionView};

type Shared = State<Arc<ServerState>>;

/// Snapshots of one page unless the request says otherwise, and at most.
const PAGE: (u64, u64) = (50, 1_000);

/// How long a request waits at most for the snapshot that it asked for, in milliseconds; so long if it does not say.
const MAX_WAIT_MILLIS: u64 = 60_000;

/// Longest time between two looks whether it is taken, if no hint comes.
const LOOK: Duration = Duration::from_millis(200);

/// Changes that one reply lists unless the request says otherwise, and at most.
const CHANGES: (u64, u64) = (1_000, 10_000);

/// `GET /v1/sessions/{session_id}/snapshots`: newest first.
pub(crate) async fn list(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Value>> {
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let limit = query.number("limit", 1, PAGE.1)?.unwrap_or(PAGE.0);
    let start = match query.get("page") {
        None => view.session.files.snapshot,
        Some(page) => Some(page.parse::<SnapshotId>().map_err(|_| {
            ApiError::new(Code::InvalidCursor, format!("page: expected what next_page said, found {page:?}"))
        })?),
    };
    let snapshots = super::files::snapshots(&state, &view.session)?;
    if let (Some(start), true) = (start, query.get("page").is_some()) {
        super::files::record(&snapshots, &view.session, Id(start.bits())).await?;
    }
    let (records, next) = blocking(move || {
        let (mut records, mut next) = (Vec::new(), start.map(|id| Id(id.bits())));
        while let Some(id) = next.filter(|_| (records.len() as u64) < limit) {
            let record = match snapshots.record(id) {
                // Removed: the list ends where nothing is kept any more.
                Err(error) if error.kind == tenure_files::Kind::NotFound => return Ok((records, None)),
                record => record?,
            };
            next = record.parent;
            records.push(record);
        }
        Ok((records, next))
    })
    .await?;
    let data: Vec<WireSnapshot> = records.iter().map(wire).collect();
    let next = next.map(|id| SnapshotId::from_bits(id.0).to_string());
    Ok(Json(json!({"data": data, "next_page": next})))
}

/// `POST /v1/sessions/{session_id}/snapshots`: stores the files as they are; answers when that is done.
pub(crate) async fn take(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireSnapshot>> {
    let id = session_id(&id)?;
    let wait = body.fields()?.number("wait_ms")?.unwrap_or(MAX_WAIT_MILLIS);
    if wait > MAX_WAIT_MILLIS {
        return Err(Problem::invalid("wait_ms", format_args!("expected 0 to {MAX_WAIT_MILLIS}")).into());
    }
    let within = Duration::from_millis(wait);
    let view = store_files(&state, &caller, id, within, body.idempotency(&caller)).await?.ok_or_else(|| {
        let message = "no worker has taken the snapshot yet; it will be taken, and the list shows it then";
        ApiError::new(Code::SessionBusy, message)
    })?;
    let Some(newest) = view.session.files.snapshot else {
        return Err(ApiError::new(
            Code::SnapshotNotFound,
            "nothing was stored: the session has no files on the machine that works on it, or they could not be stored; its events say why",
        ));
    };
    let snapshots = super::files::snapshots(&state, &view.session)?;
    super::files::record(&snapshots, &view.session, Id(newest.bits())).await.map(|record| Json(wire(&record)))
}

/// Asks the worker of a session to store its files, and waits until that is done; `None` if it was not in time.
pub(super) async fn store_files(
    state: &ServerState,
    caller: &Caller,
    id: SessionId,
    within: Duration,
    idempotency: Option<Idempotency>,
) -> Result<Option<SessionView>> {
    let mut hints = state.store().hints();
    deliver::deliver(state, caller, id, vec![InputBody::Snapshot], idempotency).await?;
    let taken = async {
        loop {
            let view = find_session(state, caller, id).await?;
            if view.inbox_len == 0 {
                return Ok::<_, ApiError>(view);
            }
            // An error means that hints were missed; looking is what is done about it.
            let _ = tokio::time::timeout(LOOK, hints.recv()).await;
        }
    };
    tokio::time::timeout(within, taken).await.ok().transpose()
}

/// `GET /v1/sessions/{session_id}/diff`
pub(crate) async fn diff(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Value>> {
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let limit = query.number("limit", 1, CHANGES.1)?.unwrap_or(CHANGES.0);
    let from = match query.get("from") {
        None | Some("start") => None,
        word => Some(at(&state, &view, word).await?),
    };
    let to = at(&state, &view, query.get("to")).await?;
    let path = path(&query);
    let (shown_from, shown_to) = (from.as_ref().map_or("start".to_owned(), At::to_string), to.to_string());
    let (mut changes, mut is_cut) = compare(&state, id, &view.session, from, to, path).await?;
    is_cut |= changes.len() as u64 > limit;
    changes.truncate(usize::try_from(limit).expect("not above the longest list"));
    let data: Vec<WireChange> = changes.iter().map(wire_change).collect();
    Ok(Json(json!({"from": shown_from, "to": shown_to, "data": data, "is_cut": is_cut})))
}

async fn compare(
    state: &ServerState,
    id: SessionId,
    session: &tenure_core::Session,
    from: Option<At>,
    to: At,
    path: Vec<u8>,
) -> Result<(Vec<Change>, bool)> {
    let snapshots = super::files::snapshots(state, session)?;
    let folder = (state.config.workspace)(id);
    let before = match from {
        None => None,
        Some(At::Stored(_, id)) => Some(id),
        Some(At::Live) if matches!(to, At::Live) => return Ok((Vec::new(), false)),
        Some(At::Live) => {
            return Err(ApiError::new(
                Code::InvalidQuery,
                "from: the files as they are now can only be what is compared to",
            ));
        }
    };
    match to {
        At::Stored(_, to) => blocking(move || snapshots.diff(before, to, &path)).await,
        At::Live if !folder.is_dir() && before.is_none() => Ok((Vec::new(), false)),
        At::Live => blocking(move || snapshots.diff_live(before, &Workspace::open(&folder)?, &path)).await,
    }
}

fn wire(record: &Record) -> WireSnapshot {
    let id = |id: Id| SnapshotId::from_bits(id.0).to_string();
    WireSnapshot {
        id: id(record.id),
        session_id: record.session.clone(),
        seq: record.seq,
        created_at: tenure_api::time::write(Timestamp(i64::try_from(record.taken_at_ms).unwrap_or(0))),
        consistency: match record.consistency {
            Consistency::Frozen => "frozen",
            Consistency::Fuzzy => "fuzzy",
            Consistency::Torn => "torn",
        }
        .to_owned(),
        entries: record.entries,
        bytes: record.bytes,
        new_bytes: record.new_bytes,
        left_out: record
            .left_out
            .iter()
            .map(|(path, reason)| WireLeftOut {
                path: text(path),
                reason: match reason {
                    Reason::Socket => "socket",
                    Reason::Device => "device",
                    Reason::Attribute => "attribute",
                }
                .to_owned(),
            })
            .collect(),
        left_out_count: record.left_out_count,
        parent_id: record.parent.map(id),
    }
}

fn wire_change(change: &Change) -> WireChange {
    let folder = change.path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |end| &change.path[..end]);
    WireChange {
        change: match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Changed => "changed",
        }
        .to_owned(),
        before: change.before.as_ref().map(|entry| show(folder, entry)),
        after: change.after.as_ref().map(|entry| show(folder, entry)),
    }
}
