//! The listener: HTTP/1.1 and HTTP/2 with prior knowledge on one port, bounded connections, and time
//! limits that axum's own server does not have (case O-091).

mod open;
mod timed;

use crate::state::ServerState;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use open::{Open, Watched};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use timed::Timed;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most connections at a time; more wait in the backlog of the system.
pub const MAX_CONNECTIONS: usize = 16_384;

/// Most requests that are answered at a time, over all connections; more wait. As many as there can be
/// connections, so that HTTP/1.1 never waits for it.
const MAX_REQUESTS: usize = MAX_CONNECTIONS;

/// Most requests at a time on one HTTP/2 connection; the client is told.
const MAX_STREAMS: u32 = 128;

/// Largest head of an HTTP/2 request, in bytes.
const MAX_HEAD_BYTES: u32 = 64 * 1024;

/// Bytes of one reply that HTTP/2 keeps for a reader that is slow.
const MAX_SEND_BYTES: usize = 64 * 1024;

/// How often within the limit for writes it is looked for replies that nobody takes.
const LOOKS_WITHIN_LIMIT: u32 = 8;

/// How long a connection that was told to end may take when nothing is open on it.
const GOODBYE: Duration = Duration::from_secs(1);

/// Time limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a client may take to send its first bytes and its headers, or to send another request on a
    /// connection.
    pub headers: Duration,
    /// How long a client may read nothing of what is written to it.
    pub writes: Duration,
    /// How long a body may stop arriving. A body that trickles ends early too.
    pub bodies: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let within = Duration::from_secs(30);
        Self { headers: within, writes: within, bodies: within }
    }
}

/// How long open requests may take to end when the server stops; streams end at once.
pub const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the stop of the state's configuration, then lets open requests end.
///
/// # Errors
/// When the listener cannot be used at all.
pub async fn serve(listener: TcpListener, state: Arc<ServerState>) -> io::Result<()> {
    serve_within(listener, state, Limits::default()).await
}

/// The same with other time limits.
///
/// # Errors
/// When the listener cannot be used at all.
pub async fn serve_within(listener: TcpListener, state: Arc<ServerState>, limits: Limits) -> io::Result<()> {
    listener.local_addr()?;
    let stop = state.config.stop.clone();
    let router = crate::router(state).layer(Extension(limits));
    let (tasks, free) = (TaskTracker::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
    loop {
        let permit = tokio::select! {
            () = stop.cancelled() => break,
            permit = free.clone().acquire_owned() => permit.map_err(io::Error::other)?,
        };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accept connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Frames of streams are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        let connection = drive(stream, router.clone(), limits, requests.clone(), stop.clone());
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(STOP_WITHIN, tasks.wait()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
    Ok(())
}

/// Serves one connection until it ends, nothing is open on it for too long, or the server stops.
async fn drive(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    requests: Arc<Semaphore>,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let open = Open::new();
    let service = Counted { routes: TowerToHyperService::new(router), open: open.clone(), requests };
    let builder = protocols(limits);
    let io = TokioIo::new(Timed::new(stream, limits.writes));
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut look = tokio::time::interval(limits.writes / LOOKS_WITHIN_LIMIT);
    let (mut is_ending, mut idle_at) = (false, Instant::now() + limits.headers);
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stop.cancelled(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = look.tick() => open.drop_stuck(limits.writes),
            () = tokio::time::sleep_until(idle_at) => {
                let now = Instant::now();
                match open.idle_since().map(|since| since + limits.headers) {
                    None => idle_at = now + limits.headers,
                    Some(until) if until > now => idle_at = until,
                    // Told already, and still there.
                    Some(_) if is_ending => return Ok(()),
                    Some(_) => {
                        is_ending = true;
                        connection.as_mut().graceful_shutdown();
                        idle_at = now + GOODBYE;
                    }
                }
            }
        }
    }
}

/// Both protocols, told apart by the first bytes.
fn protocols(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.headers).keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        // A peer that is gone without a word.
        .keep_alive_interval(limits.headers)
        .keep_alive_timeout(limits.headers)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .max_send_buf_size(MAX_SEND_BYTES);
    builder
}

/// The routes, with a note of what is open.
#[derive(Clone)]
struct Counted {
    routes: TowerToHyperService<Router>,
    open: Arc<Open>,
    requests: Arc<Semaphore>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Watched>, Infallible>> + Send>>;

impl Service<Request<Incoming>> for Counted {
    type Response = Response<Watched>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let (routes, open, requests) = (self.routes.clone(), self.open.clone(), self.requests.clone());
        Box::pin(async move {
            let noted = open.begin();
            let noted = noted.with(requests.acquire_owned().await.expect("it is never closed"));
            let is_one_of_many = request.version() == Version::HTTP_2;
            let response = routes.call(request).await?;
            let watch = if is_one_of_many { Watched::stream } else { Watched::plain };
            Ok(response.map(|body| watch(body, noted)))
        })
    }
}
