//! What a node offers to other nodes: the previews of the sessions that it holds (design 4.7), and what
//! it counted.

use crate::services::Services;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::node::{METRICS_PATH, NODE_KEY_HEADER, PREVIEWS_PATH, PreviewFrame};
use tenure_telemetry::{Counter, Family};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// An empty line so often tells the reader that the node lives.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Serves until the node has ended.
pub(crate) async fn serve(listener: TcpListener, services: Arc<Services>) {
    let stop = services.retired.clone();
    let router = Router::new()
        .route(PREVIEWS_PATH, get(previews_stream))
        .route(METRICS_PATH, get(metrics))
        .layer(from_fn_with_state(services.clone(), check_key))
        .with_state(services);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = served.await {
        tracing::error!(%error, "serve other nodes");
    }
}

async fn check_key(State(services): State<Arc<Services>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(NODE_KEY_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
    if !is_equal(given, services.options.node_key.as_bytes()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    next.run(request).await
}

async fn metrics(State(services): State<Arc<Services>>) -> Json<Vec<Family>> {
    Json(services.options.telemetry.registry.snapshot())
}

async fn previews_stream(State(services): State<Arc<Services>>) -> Response {
    let (open, frames) = services.previews.subscribe();
    let (stop, dropped) = (services.retired.clone(), services.observer.meters.previews_dropped.clone());
    let reader = Reader { open: open.into(), frames, stop, dropped };
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
    dropped: Counter,
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
                    Ok(Err(broadcast::error::RecvError::Lagged(frames))) => {
                        self.dropped.add(&[], frames);
                        return None;
                    }
                    Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                },
            },
        };
        let mut line = frame.to_line();
        line.push('\n');
        Some(line)
    }
}
