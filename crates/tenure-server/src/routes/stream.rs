//! The stream of a session's events.

use super::{find_session, session_id};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::live::{Cursor, Follow, Wanted};
use crate::request::{Path, Query};
use crate::state::ServerState;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::event::STREAM_FROM_HEADER;

/// `GET /v1/sessions/{session_id}/events/stream`: resumes after `Last-Event-ID` or `?after=`;
/// without either, live only, as the clients expect.
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response> {
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let wanted = read_wanted(&query)?;
    let last_seq = view.session.last_seq;
    let asked = read_cursor(&query, &headers)?.unwrap_or(Cursor { seq: last_seq, preview: None });
    // What the reader has is not of this log: the store was restored from a backup, or it mixed up
    // sessions. It is told so, and gets the log from its first row (hazard Z-29).
    let is_beyond = asked.seq > last_seq;
    let cursor = if is_beyond { Cursor { seq: 0, preview: None } } else { asked };
    let open = state.meters.streams_open.hold();
    let mut follow = Follow::new(state, caller.tenant, id, cursor, wanted);
    if is_beyond {
        follow.reset_all(asked.seq, last_seq);
    }
    let pieces = stream::unfold((follow, open), |(mut follow, open)| async move {
        let piece = follow.next().await?;
        Some((Ok::<_, Infallible>(piece), (follow, open)))
    });
    let from = cursor.seq.to_string();
    // Proxies must neither keep, change nor collect the frames (case O-058).
    let headers = [
        (header::CONTENT_TYPE.as_str(), "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL.as_str(), "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        (STREAM_FROM_HEADER, from.as_str()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The header wins: a client that reconnects sends its newest id there, and the address it was given
/// at first. An empty header is that of a client that has no id yet.
fn read_cursor(query: &Query, headers: &HeaderMap) -> Result<Option<Cursor>> {
    let refused = |what: &str| ApiError::new(Code::InvalidCursor, format!("{what}: this is no cursor of a stream"));
    if let Some(header) = headers.get("last-event-id").filter(|header| !header.is_empty()) {
        let cursor = header.to_str().ok().and_then(|text| text.parse().ok());
        return cursor.map(Some).ok_or_else(|| refused("Last-Event-ID"));
    }
    match query.get("after") {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| refused("after")),
    }
}

fn read_wanted(query: &Query) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    for kind in query.all("event_deltas") {
        match kind {
            "agent.message" => wanted.message = true,
            "agent.thinking" => wanted.thinking = true,
            other => {
                let message = format!("event_deltas: {other:?} is neither agent.message nor agent.thinking");
                return Err(ApiError::new(Code::InvalidQuery, message));
            }
        }
    }
    Ok(wanted)
}
