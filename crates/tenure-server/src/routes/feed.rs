//! Several topics on one connection: browsers allow few connections to one server, and a workbench
//! with many tabs has one for all of them.

use super::{find_session, session_id};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::live::{Cursor, Fleet, Follow, Wanted};
use crate::request::Query;
use crate::state::ServerState;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::error::Code;

/// Most topics of one connection.
const MAX_TOPICS: usize = 32;

/// A comment goes out so often, so that proxies and readers know that the stream lives.
const COMMENT: Duration = Duration::from_secs(5);

/// `GET /v1/stream?topics[]=…`: frames with the type `topic`, each with its topic inside.
pub(crate) async fn get(State(state): State<Arc<ServerState>>, caller: Caller, query: Query) -> Result<Response> {
    let topics = query.all("topics");
    if topics.is_empty() || topics.len() > MAX_TOPICS {
        let message = format!("topics: expected 1 to {MAX_TOPICS}, found {}", topics.len());
        return Err(ApiError::new(Code::InvalidQuery, message));
    }
    let mut parts: Vec<BoxStream<'static, Bytes>> = Vec::with_capacity(topics.len() + 1);
    for topic in topics {
        parts.push(open(&state, &caller, topic).await?);
    }
    parts.push(comments());
    let (open, stop) = (state.meters.streams_open.hold(), state.config.stop.clone());
    // The held count lives as long as the stream.
    let pieces = stream::select_all(parts).take_until(stop.cancelled_owned()).map(move |piece| {
        let _ = &open;
        Ok::<_, Infallible>(piece)
    });
    let headers = [
        (header::CONTENT_TYPE.as_str(), "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL.as_str(), "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

async fn open(state: &Arc<ServerState>, caller: &Caller, topic: &str) -> Result<BoxStream<'static, Bytes>> {
    if topic == "fleet" {
        let fleet = Fleet::new(state.clone(), caller.tenant.clone());
        return Ok(stream::unfold(fleet, |mut fleet| async move {
            let (sessions, more) = fleet.next().await?;
            let body = json!({"topic": "fleet", "type": "changed", "sessions": sessions, "more": more});
            Some((frame(&body), fleet))
        })
        .boxed());
    }
    let mut words = topic.splitn(3, ':');
    let (kind, id, cursor) = (words.next(), words.next().unwrap_or_default(), words.next());
    if kind != Some("session") {
        let message = format!("topics: {topic:?} is neither fleet nor session:ID[:CURSOR]");
        return Err(ApiError::new(Code::InvalidQuery, message));
    }
    let name = format!("session:{id}");
    let view = match session_id(id) {
        Ok(id) => find_session(state, caller, id).await,
        Err(error) => Err(error),
    };
    let view = match view {
        Ok(view) => view,
        // One that is gone must not end the others.
        Err(error) if error.is(Code::SessionNotFound) => {
            let gone = frame(&json!({"topic": name, "type": "gone"}));
            return Ok(stream::once(async move { gone }).boxed());
        }
        Err(error) => return Err(error),
    };
    let last_seq = view.session.last_seq;
    let asked = match cursor {
        None => Cursor { seq: last_seq, preview: None },
        Some(text) => text
            .parse()
            .map_err(|_| ApiError::new(Code::InvalidCursor, format!("topics: {text:?} is no cursor of a stream")))?,
    };
    let is_beyond = asked.seq > last_seq;
    let cursor = if is_beyond { Cursor { seq: 0, preview: None } } else { asked };
    let wanted = Wanted { message: true, thinking: true };
    let mut follow = Follow::new(state.clone(), caller.tenant.clone(), view.session.id, cursor, wanted);
    if is_beyond {
        follow.reset_all(asked.seq, last_seq);
    }
    let end = frame(&json!({"topic": name, "type": "end"}));
    let pieces = stream::unfold((follow, name), |(mut follow, name)| async move {
        loop {
            let piece = follow.next().await?;
            if let Some(frame) = wrap(&name, &piece) {
                return Some((frame, (follow, name)));
            }
        }
    });
    Ok(pieces.chain(stream::once(async move { end })).boxed())
}

/// A frame of a session's stream as one of this stream; comments have none.
fn wrap(topic: &str, piece: &[u8]) -> Option<Bytes> {
    let text = std::str::from_utf8(piece).expect("frames are text");
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data: ")?;
    let head = json!({"topic": topic, "type": "event", "id": field("id: ")}).to_string();
    // The event goes through as it is.
    Some(format!("event: topic\ndata: {},\"event\":{data}}}\n\n", head.trim_end_matches('}')).into())
}

fn frame(body: &Value) -> Bytes {
    format!("event: topic\ndata: {body}\n\n").into()
}

fn comments() -> BoxStream<'static, Bytes> {
    // Headers and first bytes go out at once, also through proxies.
    let first = stream::once(async { Bytes::from_static(b": tenure\n\n") });
    let later = stream::unfold((), |()| async {
        tokio::time::sleep(COMMENT).await;
        Some((Bytes::from_static(b": alive\n\n"), ()))
    });
    first.chain(later).boxed()
}
