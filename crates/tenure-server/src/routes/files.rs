//! The files of a session: as they are now, or as a snapshot has them.
//!
//! Files are made by agents and are hostile by assumption: replies are downloads of a fixed type
//! that a browser neither shows nor runs (hazard Z-08), and no path leads out of the workspace.

mod at;
mod pipe;
mod send;

pub(crate) use at::{At, any_record, at, no_snapshot, record, snapshots};

pub(crate) use send::{check_destination, send_file};

use super::{find_session, session_id};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::{Arriving, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::files::{WireFile, WireFolder};
use tenure_core::{SessionId, Timestamp};
use tenure_files::{Entry, EntryKind, ImportLimits, Kind, MAX_LIST, Workspace};

type Shared = State<Arc<ServerState>>;

/// Largest file that a request may write.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// Entries of one page of a folder unless the request says otherwise.
const ENTRIES: u64 = 1_000;

/// Permission bits of a file that is written, unless the request says otherwise.
const FILE_MODE: u32 = 0o644;

/// `GET /v1/sessions/{session_id}/files`
pub(crate) async fn list(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<WireFolder>> {
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let at = at(&state, &view, query.get("at")).await?;
    let path = path(&query);
    let limit = query.number("limit", 1, MAX_LIST as u64)?.unwrap_or(ENTRIES);
    let limit = usize::try_from(limit).expect("not above the longest list");
    let after = query.bytes("after").map(<[u8]>::to_vec);
    if at.stored().is_none() && !exists(&state, id) && path.iter().all(|byte| *byte == b'/') {
        return Ok(Json(WireFolder { path: String::new(), at: "live".into(), data: Vec::new(), is_cut: false }));
    }
    let folder = path.clone();
    let (entries, is_cut) = match at.stored() {
        None => work(&state, id, move |workspace| workspace.list(&folder, after.as_deref(), limit)).await?,
        Some((snapshots, id)) => blocking(move || snapshots.list(id, &folder, after.as_deref(), limit)).await?,
    };
    let data = entries.iter().map(|entry| show(&path, entry)).collect();
    Ok(Json(WireFolder { path: text(&path), at: at.to_string(), data, is_cut }))
}

/// `GET /v1/sessions/{session_id}/files/content`
pub(crate) async fn read(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response> {
    check_destination(&headers)?;
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let at = at(&state, &view, query.get("at")).await?;
    let path = path(&query);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    if let Some((snapshots, id)) = at.stored() {
        let mut file = blocking(move || snapshots.open_file(id, &path)).await?;
        let (size, tag) = (file.size_bytes, file.tag.clone());
        return send::send_part(size, &tag, &name, &headers, move |start, len| {
            let (mut writer, body) = pipe::to_body();
            // Ends by itself when the reader goes away: its next write fails.
            tokio::task::spawn_blocking(move || {
                file.seek(start);
                let copied = std::io::copy(&mut std::io::Read::take(file, len), &mut writer);
                writer.end(copied.map(drop).map_err(|error| error.to_string()));
            });
            Ok(body)
        });
    }
    let open = existing(&state, id, move |workspace| workspace.open_read(&path)).await?;
    send_file(open.file, open.size_bytes, &open.tag, &name, &headers)
}

/// `PUT /v1/sessions/{session_id}/files/content`: readers see the old or the new file, never a part.
pub(crate) async fn write(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    body: Arriving,
) -> Result<Json<WireFile>> {
    let id = owned(&state, &caller, &id).await?;
    let path = path(&query);
    let mode = match query.get("mode") {
        None => FILE_MODE,
        Some(mode) => u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
            ApiError::new(Code::InvalidQuery, format!("mode: expected octal permission bits as in 644, found {mode:?}"))
        })?,
    };
    let body = body.at_most(MAX_FILE_BYTES)?;
    at::bring(&state, &caller, id).await?;
    let folder = path.iter().rposition(|byte| *byte == b'/').map_or(Vec::new(), |end| path[..end].to_vec());
    let (pump, mut reader) = pipe::from_body(body);
    let written = work(&state, id, move |workspace| {
        workspace.write(&path, &mut reader, mode, MAX_FILE_BYTES)?;
        workspace.stat(&path)
    });
    let (pumped, written) = tokio::join!(pump, written);
    pumped?;
    Ok(Json(show(&folder, &written?)))
}

/// `GET /v1/sessions/{session_id}/files/archive`
pub(crate) async fn export(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response> {
    check_destination(&headers)?;
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let at = at(&state, &view, query.get("at")).await?;
    let path = path(&query);
    let start = path.clone();
    if let Some((snapshots, snapshot)) = at.stored() {
        let folder = snapshots.clone();
        let entry = blocking(move || folder.stat(snapshot, &start)).await?;
        if entry.kind != EntryKind::Directory {
            return Err(ApiError::new(Code::NotAFile, format!("{} is no folder", text(&path))));
        }
        let (mut writer, body) = pipe::to_body();
        tokio::task::spawn_blocking(move || {
            let exported = snapshots.export_tar(snapshot, &path, &mut writer);
            writer.end(exported.map_err(|error| error.to_string()));
        });
        return Ok(send::download(body, "application/x-tar", format!("{id}.tar").as_bytes()));
    }
    let entry = existing(&state, id, move |workspace| workspace.stat(&start)).await?;
    if entry.kind != EntryKind::Directory {
        return Err(ApiError::new(Code::NotAFile, format!("{} is no folder", text(&path))));
    }
    let workspace = open(&state, id).await?;
    let (mut writer, body) = pipe::to_body();
    // Ends by itself when the reader goes away: its next write fails.
    tokio::task::spawn_blocking(move || {
        let exported = workspace.export_tar(&path, &mut writer);
        writer.end(exported.map_err(|error| error.to_string()));
    });
    Ok(send::download(body, "application/x-tar", format!("{id}.tar").as_bytes()))
}

/// `PUT /v1/sessions/{session_id}/files/archive`
pub(crate) async fn import(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    body: Arriving,
) -> Result<Json<Value>> {
    let id = owned(&state, &caller, &id).await?;
    let path = path(&query);
    at::bring(&state, &caller, id).await?;
    let (pump, mut reader) = pipe::from_body(body);
    let imported = work(&state, id, move |workspace| {
        let imported = workspace.import_tar(&path, &mut reader, ImportLimits::default());
        if imported.is_ok() {
            // Padding after the end of the archive.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        }
        imported
    });
    let (pumped, imported) = tokio::join!(pump, imported);
    // What was wrong with the body explains what the reader of it met.
    pumped?;
    let imported = imported.map_err(|error| error.instead(Code::InvalidField, Code::ArchiveRefused))?;
    Ok(Json(json!({"files": imported.entries, "bytes": imported.bytes, "skipped": imported.skipped})))
}

async fn owned(state: &ServerState, caller: &Caller, id: &str) -> Result<SessionId> {
    let id = session_id(id)?;
    find_session(state, caller, id).await?;
    Ok(id)
}

pub(crate) fn path(query: &Query) -> Vec<u8> {
    query.bytes("path").unwrap_or_default().to_vec()
}

fn exists(state: &ServerState, id: SessionId) -> bool {
    (state.config.workspace)(id).is_dir()
}

async fn open(state: &ServerState, id: SessionId) -> Result<Workspace> {
    let folder = (state.config.workspace)(id);
    let opened = tokio::task::spawn_blocking(move || Workspace::open(&folder)).await.map_err(ApiError::internal)?;
    opened.map_err(refused)
}

/// Does something with a workspace that must be there already: reading makes no folders.
async fn existing<T: Send + 'static>(
    state: &ServerState,
    id: SessionId,
    work_on: impl FnOnce(&Workspace) -> Result<T, tenure_files::Error> + Send + 'static,
) -> Result<T> {
    if !exists(state, id) {
        return Err(ApiError::new(Code::FileNotFound, "the workspace of this session is empty"));
    }
    work(state, id, work_on).await
}

async fn work<T: Send + 'static>(
    state: &ServerState,
    id: SessionId,
    work_on: impl FnOnce(&Workspace) -> Result<T, tenure_files::Error> + Send + 'static,
) -> Result<T> {
    let workspace = open(state, id).await?;
    blocking(move || work_on(&workspace)).await
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, tenure_files::Error> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?;
    done.map_err(refused)
}

fn refused(error: tenure_files::Error) -> ApiError {
    let code = match error.kind {
        Kind::NotFound => Code::FileNotFound,
        Kind::NotAFile | Kind::NotADirectory => Code::NotAFile,
        Kind::Escapes => Code::PathRefused,
        Kind::TooLarge => Code::RequestTooLarge,
        Kind::Invalid => Code::InvalidField,
        Kind::NoSpace => Code::StorageFull,
        Kind::Exists => Code::Conflict,
        Kind::Damaged | Kind::Newer | Kind::WrongKey | Kind::Gone => Code::SnapshotUnreadable,
        Kind::Io => return ApiError::internal(error),
    };
    ApiError::new(code, error.message)
}

pub(crate) fn show(folder: &[u8], entry: &Entry) -> WireFile {
    let folder: Vec<&[u8]> = folder.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let path = folder.iter().copied().chain([entry.name.as_slice()]).collect::<Vec<_>>().join(&b'/');
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "folder",
        EntryKind::Symlink => "link",
        EntryKind::Fifo | EntryKind::Socket | EntryKind::Other => "other",
    };
    WireFile {
        // What cannot be written as text is shown in the form that the query takes.
        path_encoded: std::str::from_utf8(&path).is_err().then(|| send::percent(&path)),
        path: text(&path),
        name: text(&entry.name),
        kind: kind.into(),
        size_bytes: entry.size_bytes,
        mode: entry.mode,
        modified_at: tenure_api::time::write(Timestamp(i64::try_from(entry.modified_ns / 1_000_000).unwrap_or(0))),
        target: entry.target.as_deref().map(text),
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
