//! Stands between the store and the server, and breaks connections where a test says.

use crate::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    commits: Arc<Commits>,
}

/// What happens to the next commits.
#[derive(Default)]
struct Commits {
    /// So many reach the server and their replies are lost.
    lose_reply: AtomicU32,
    /// So many do not reach the server.
    lose_request: AtomicU32,
}

impl Proxy {
    pub(crate) async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, socket, commits) =
            (listener.local_addr().unwrap().port(), server.socket(), Arc::<Commits>::default());
        let shared = commits.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (socket, commits) = (socket.clone(), shared.clone());
                tokio::spawn(async move {
                    if let Ok(server) = UnixStream::connect(socket).await {
                        pass(client, server, &commits).await;
                    }
                });
            }
        });
        Self { port, commits }
    }

    /// The replies of the next commits are lost: the server has done them.
    pub(crate) fn lose_replies(&self, count: u32) {
        self.commits.lose_reply.store(count, Ordering::SeqCst);
    }

    /// The next commits never reach the server.
    pub(crate) fn lose_requests(&self, count: u32) {
        self.commits.lose_request.store(count, Ordering::SeqCst);
    }

    /// Whether everything that was asked for has happened.
    pub(crate) fn is_done(&self) -> bool {
        self.commits.lose_reply.load(Ordering::SeqCst) == 0 && self.commits.lose_request.load(Ordering::SeqCst) == 0
    }
}

fn take_one(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

async fn pass(mut client: TcpStream, mut server: UnixStream, commits: &Commits) {
    let (mut from_client, mut from_server) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return };
                let bytes = &from_client[..count];
                // A simple query is one message; the store sends nothing with a COMMIT.
                if bytes.windows(7).any(|window| window == b"COMMIT\0") {
                    if take_one(&commits.lose_request) {
                        return;
                    }
                    if take_one(&commits.lose_reply) {
                        let _ = server.write_all(bytes).await;
                        // It is done when the server has replied; the client never hears of it.
                        let _ = server.read(&mut from_server).await;
                        return;
                    }
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&from_server[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
