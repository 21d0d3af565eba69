//! What a node offers to other nodes: the previews of the sessions that it holds (design 4.7).

use crate::previews::Previews;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::node::{NODE_KEY_HEADER, PREVIEWS_PATH, PreviewFrame};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// An empty line so often tells the reader that the node lives.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

struct Internal {
    previews: Arc<Previews>,
    key: String,
    stop: CancellationToken,
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(listener: TcpListener, previews: Arc<Previews>, key: String, stop: CancellationToken) {
    let state = Arc::new(Internal { previews, key, stop: stop.clone() });
    let router = Router::new().route(PREVIEWS_PATH, get(previews_stream)).with_state(state);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = served.await {
        tracing::error!(%error, "serve other nodes");
    }
}

async fn previews_stream(State(internal): State<Arc<Internal>>, headers: HeaderMap) -> Response {
    let given = headers.get(NODE_KEY_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
    if !is_equal(given, internal.key.as_bytes()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let (open, frames) = internal.previews.subscribe();
    let reader = Reader { open: open.into(), frames, stop: internal.stop.clone() };
    let lines = stream::unfold(reader, |mut reader| async move {
        let line = reader.line().await?;
        Some((Ok::<_, std::convert::Infallible>(line), reader))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// Compares without telling by its time where two keys differ.
fn is_equal(given: &[u8], key: &[u8]) -> bool {
    given.len() == key.len() && given.iter().zip(key).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

struct Reader {
    open: VecDeque<PreviewFrame>,
    frames: broadcast::Receiver<Arc<PreviewFrame>>,
    stop: CancellationToken,
}

impl Reader {
    /// The next line; `None` ends the stream, and a reader that was too slow begins anew.
    async fn line(&mut self) -> Option<String> {
        let frame = match self.open.pop_front() {
            Some(frame) => Arc::new(frame),
            None => tokio::select! {
                () = self.stop.cancelled() => return None,
                frame = tokio::time::timeout(KEEP_ALIVE, self.frames.recv()) => match frame {
                    Err(_) => return Some("\n".to_owned()),
                    Ok(Ok(frame)) => frame,
                    Ok(Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed)) => return None,
                },
            },
        };
        let mut line = frame.to_line();
        line.push('\n');
        Some(line)
    }
}
