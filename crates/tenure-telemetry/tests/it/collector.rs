//! A receiver of OTLP over HTTP.

use crate::spans::{Seen, spans};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the collector does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(u16),
    /// Reads the request and never replies.
    Silence,
}

pub(crate) struct Collector {
    pub(crate) url: String,
    state: Arc<Received>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Received {
    requests: Mutex<Vec<(HeaderMap, Vec<u8>)>>,
    /// Replies that come before it takes everything.
    replies: Mutex<VecDeque<Reply>>,
    came: Notify,
}

impl Collector {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let state = Arc::new(Received { replies: Mutex::new(replies.into_iter().collect()), ..Received::default() });
        let router = Router::new().route("/v1/traces", post(receive)).with_state(state.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, state, serving }
    }

    /// Requests so far, refused ones too.
    pub(crate) fn requests(&self) -> Vec<(HeaderMap, Vec<u8>)> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Spans of all requests so far.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        self.requests().iter().flat_map(|(_, body)| spans(body)).collect()
    }

    /// Waits for a number of requests.
    pub(crate) async fn until_requests(&self, count: usize) {
        let wait = async {
            loop {
                let came = self.state.came.notified();
                if self.requests().len() >= count {
                    return;
                }
                came.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("requests in time");
    }

    /// Ends at once, connections too.
    pub(crate) fn kill(&self) {
        self.serving.abort();
    }
}

async fn receive(State(state): State<Arc<Received>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    state.requests.lock().unwrap().push((headers, body.to_vec()));
    state.came.notify_waiters();
    let reply = state.replies.lock().unwrap().pop_front();
    match reply {
        None => StatusCode::OK,
        Some(Reply::Status(status)) => StatusCode::from_u16(status).unwrap(),
        Some(Reply::Silence) => std::future::pending().await,
    }
}
