//! The listener: bounded connections, and time limits that axum's own server does not have
//! (case O-091).

mod timed;

use crate::state::ServerState;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use timed::Timed;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Most connections at a time; more wait in the backlog of the system.
pub const MAX_CONNECTIONS: usize = 16_384;

/// Time limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a client may take to send its headers, or to send another request on a connection.
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
    let (graceful, free) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
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
        let connection = connection(stream, router.clone(), limits);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(STOP_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
    Ok(())
}

type Connection = http1::Connection<TokioIo<Timed<tokio::net::TcpStream>>, TowerToHyperService<Router>>;

fn connection(stream: tokio::net::TcpStream, router: Router, limits: Limits) -> Connection {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.headers).keep_alive(true);
    builder.serve_connection(TokioIo::new(Timed::new(stream, limits.writes)), TowerToHyperService::new(router))
}
