//! What is open on a connection: requests that are answered, and replies that are read.
//!
//! HTTP/1.1 has one of them at a time, and its own time limits. An HTTP/2 connection lives as long as it
//! answers pings, and a reader that takes nothing is held back by the window of its stream, which no write
//! notices. So both are counted here, for both protocols alike: a connection on which nothing is open
//! is closed (case O-091), and a reply that nobody takes is dropped, so that it holds nothing (case
//! O-059).

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Largest piece of a reply that is handed on at once: progress of a slow reader is seen in steps of it.
const PIECE: usize = 16 * 1024;

/// What is open on one connection.
#[derive(Debug)]
pub(super) struct Open(Mutex<State>);

#[derive(Debug)]
struct State {
    requests: usize,
    /// When the last one ended, or the connection began.
    idle_since: Instant,
    replies: Vec<Weak<Mutex<Reply>>>,
}

/// A reply that is read.
#[derive(Debug)]
struct Reply {
    /// `None` when it was dropped.
    body: Option<Body>,
    /// What was taken of it and does not fit into one piece.
    rest: Bytes,
    /// When the reader was given something, or could have taken something; `None` while there is nothing.
    given_at: Option<Instant>,
}

/// A request from its head to the end of its reply.
#[derive(Debug)]
pub(super) struct Request {
    open: Arc<Open>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Open {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { requests: 0, idle_since: Instant::now(), replies: Vec::new() })))
    }

    /// Notes a request.
    pub(super) fn begin(self: &Arc<Self>) -> Request {
        self.lock().requests += 1;
        Request { open: self.clone(), permit: None }
    }

    /// Since when nothing has been open; `None` while something is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        (state.requests == 0).then_some(state.idle_since)
    }

    /// Drops what replies hold of which nobody took anything for so long.
    pub(super) fn drop_stuck(&self, limit: Duration) {
        let replies: Vec<Arc<Mutex<Reply>>> = {
            let mut state = self.lock();
            state.replies.retain(|reply| reply.strong_count() > 0);
            state.replies.iter().filter_map(Weak::upgrade).collect()
        };
        for reply in replies {
            let stuck = {
                let mut reply = lock(&reply);
                let is_stuck = reply.given_at.is_some_and(|given| given.elapsed() >= limit);
                is_stuck.then(|| (reply.body.take(), std::mem::take(&mut reply.rest)))
            };
            // Outside of the lock: whatever the body holds ends here.
            drop(stuck);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Request {
    /// Keeps a permit until it ends.
    pub(super) fn with(self, permit: OwnedSemaphorePermit) -> Self {
        let mut request = self;
        request.permit = Some(permit);
        request
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut state = self.open.lock();
        state.requests -= 1;
        state.idle_since = Instant::now();
    }
}

/// The body of a reply, and the request that ends with it.
#[derive(Debug)]
pub(super) struct Watched {
    body: Kind,
    _request: Request,
}

#[derive(Debug)]
enum Kind {
    /// The connection itself sees whether it is read.
    Plain(Body),
    /// One of several on its connection: can be dropped while its reader takes nothing.
    Stream(Arc<Mutex<Reply>>),
}

impl Watched {
    pub(super) fn plain(body: Body, request: Request) -> Self {
        Self { body: Kind::Plain(body), _request: request }
    }

    pub(super) fn stream(body: Body, request: Request) -> Self {
        let reply = Reply { body: Some(body), rest: Bytes::new(), given_at: Some(Instant::now()) };
        let reply = Arc::new(Mutex::new(reply));
        request.open.lock().replies.push(Arc::downgrade(&reply));
        Self { body: Kind::Stream(reply), _request: request }
    }
}

fn lock(reply: &Mutex<Reply>) -> MutexGuard<'_, Reply> {
    reply.lock().expect("nobody panics while holding it")
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.get_mut().body {
            Kind::Plain(body) => Pin::new(body).poll_frame(cx),
            Kind::Stream(reply) => lock(reply).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Kind::Plain(body) => body.is_end_stream(),
            Kind::Stream(reply) => {
                let reply = lock(reply);
                reply.rest.is_empty() && reply.body.as_ref().is_some_and(HttpBody::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Kind::Plain(body) => body.size_hint(),
            // Asked for once, before anything is taken.
            Kind::Stream(reply) => lock(reply).body.as_ref().map(HttpBody::size_hint).unwrap_or_default(),
        }
    }
}

impl Reply {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else {
                let gone = io::Error::new(io::ErrorKind::TimedOut, "the other side read nothing for too long");
                return Poll::Ready(Some(Err(axum::Error::new(gone))));
            };
            let poll = Pin::new(body).poll_frame(cx);
            self.given_at = matches!(poll, Poll::Ready(Some(_))).then(Instant::now);
            match poll {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        self.given_at = Some(Instant::now());
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};

    fn body(chunks: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::from_stream(chunks.map(Ok::<_, io::Error>))
    }

    #[tokio::test]
    async fn a_connection_is_idle_when_its_last_reply_is_over() {
        let open = Open::new();
        assert!(open.idle_since().is_some());
        let (first, second) = (open.begin(), open.begin());
        let reply = Watched::stream(Body::from("x"), first);
        drop(second);
        assert!(open.idle_since().is_none());
        drop(reply);
        assert!(open.idle_since().is_some());
    }

    #[tokio::test]
    async fn o_059_a_reply_that_nobody_takes_is_dropped_and_says_so() {
        let open = Open::new();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let chunks = futures_util::stream::repeat_with(move || {
            let _ = &sender;
            Bytes::from_static(b"more")
        });
        let reply = Watched::stream(body(chunks), open.begin());
        open.drop_stuck(Duration::from_secs(60));
        let mut read = Body::new(reply).into_data_stream();
        assert_eq!(read.next().await.expect("a piece").expect("no error"), "more");
        open.drop_stuck(Duration::ZERO);
        assert!(receiver.await.is_err(), "what made it is gone");
        assert!(read.next().await.expect("not the end").is_err());
    }

    #[tokio::test]
    async fn a_reply_that_has_nothing_to_say_is_not_stuck() {
        let open = Open::new();
        let silent = body(futures_util::stream::pending());
        let mut read = Body::new(Watched::stream(silent, open.begin())).into_data_stream();
        assert!(read.next().now_or_never().is_none());
        open.drop_stuck(Duration::ZERO);
        assert!(read.next().now_or_never().is_none(), "it still waits");
    }

    #[tokio::test]
    async fn large_chunks_come_in_pieces_and_whole() {
        let open = Open::new();
        let chunk = Bytes::from(vec![7; PIECE * 2 + 5]);
        let read = Body::new(Watched::stream(Body::from(chunk.clone()), open.begin())).into_data_stream();
        let pieces: Vec<Bytes> = read.map(|piece| piece.expect("no error")).collect().await;
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, 5]);
        assert_eq!(pieces.concat(), chunk);
    }
}
