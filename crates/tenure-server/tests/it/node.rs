//! A node played by hand: tells previews over a real socket.

use crate::hand::{self, Hand};
use crate::house::{House, NODE_KEY, PATIENCE};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use tenure_api::node::{NODE_KEY_HEADER, PREVIEWS_PATH, PreviewFrame, PreviewKind};
use tenure_core::{EventId, NodeId};
use tokio::sync::{Mutex, mpsc};

pub(crate) struct Node {
    pub(crate) id: NodeId,
    links: mpsc::UnboundedReceiver<mpsc::UnboundedSender<String>>,
    link: Option<mpsc::UnboundedSender<String>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

type Links = Arc<Mutex<mpsc::UnboundedSender<mpsc::UnboundedSender<String>>>>;

impl Node {
    /// Starts and registers a node; returns when the server has called it.
    pub(crate) async fn start(house: &House) -> Self {
        let mut node = Self::start_unreached(house).await;
        node.wait_for_link().await;
        node
    }

    /// Starts and registers a node.
    pub(crate) async fn start_unreached(house: &House) -> Self {
        let (new_links, links) = mpsc::unbounded_channel();
        let router = Router::new().route(PREVIEWS_PATH, get(previews)).with_state(Arc::new(Mutex::new(new_links)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { id: hand::node(house, &address).await, links, link: None, server }
    }

    /// Ends as by kill -9: nothing is said any more, and the store finds out by itself.
    pub(crate) async fn kill(self, house: &House) {
        self.server.abort();
        drop(self.link);
        let nodes = house.store.nodes().await.unwrap();
        let beats = nodes.iter().find(|node| node.id == self.id).unwrap().beats;
        house.store.sweep(&[(self.id, beats)]).await.unwrap();
    }

    /// Returns when another server has called.
    pub(crate) async fn wait_for_link(&mut self) {
        self.link = Some(tokio::time::timeout(PATIENCE, self.links.recv()).await.expect("the server calls").unwrap());
    }

    /// Breaks the connection; returns when the server has called again.
    pub(crate) async fn break_link(&mut self) {
        self.link = None;
        self.wait_for_link().await;
    }

    pub(crate) fn tell(&self, frame: &PreviewFrame) {
        self.link.as_ref().unwrap().send(frame.to_line() + "\n").unwrap();
    }
}

async fn previews(State(links): State<Links>, headers: HeaderMap) -> Response {
    if headers.get(NODE_KEY_HEADER).is_none_or(|key| key != NODE_KEY) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let (link, lines) = mpsc::unbounded_channel::<String>();
    // The test may have ended.
    let _ = links.lock().await.send(link);
    let lines = futures_util::stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), lines))
    });
    Body::from_stream(lines).into_response()
}

/// An attempt whose frames know their positions.
pub(crate) struct Attempt {
    pub(crate) base: PreviewFrame,
    pub(crate) block: EventId,
}

impl Attempt {
    pub(crate) fn of(hand: &Hand, attempt: u32) -> Self {
        let base = PreviewFrame {
            session: hand.head.id,
            epoch: hand.lease.epoch,
            after_seq: hand.head.last_seq,
            attempt,
            n: 0,
            kind: PreviewKind::End,
        };
        Self { base, block: EventId::from_bits(hand::next()) }
    }

    pub(crate) fn start(&mut self) -> PreviewFrame {
        self.start_as("agent.message")
    }

    pub(crate) fn start_as(&mut self, event_type: &str) -> PreviewFrame {
        self.base.n += 1;
        PreviewFrame {
            kind: PreviewKind::Start { event_id: self.block, event_type: event_type.into() },
            ..self.base.clone()
        }
    }

    pub(crate) fn delta(&mut self, text: &str) -> PreviewFrame {
        self.base.n += text.len() as u64;
        PreviewFrame { kind: PreviewKind::Delta { event_id: self.block, text: text.into() }, ..self.base.clone() }
    }

    pub(crate) fn end(&self) -> PreviewFrame {
        self.base.clone()
    }
}
