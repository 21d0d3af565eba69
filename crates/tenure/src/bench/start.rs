//! From the start of `tenure serve` on an empty store to the first answered request.

use super::{Figure, fresh, millis};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

/// Starts that are measured.
const ROUNDS: usize = 10;

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    let mut values = Vec::new();
    for _ in 0..ROUNDS {
        values.push(millis(start(&fresh(folder, "start")).await?));
    }
    Ok(vec![Figure::new("start", "serve to first answered request", "ms", values)])
}

async fn start(data: &Path) -> Result<Duration> {
    // A free port, known before the server is: nothing of its output has to be waited for.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tenure"));
    let started = Instant::now();
    let mut server = Command::new(program)
        .args(["serve", "--json", "--listen", &address.to_string(), "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start the server")?;
    let answered = async {
        loop {
            if let Ok(mut socket) = TcpStream::connect(address).await {
                socket
                    .write_all(
                        format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes(),
                    )
                    .await?;
                let mut reply = Vec::new();
                socket.read_to_end(&mut reply).await?;
                if reply.starts_with(b"HTTP/1.1 200") {
                    return Ok(started.elapsed());
                }
                bail!("the server answered {:?}", String::from_utf8_lossy(&reply).lines().next());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let elapsed =
        tokio::time::timeout(Duration::from_secs(20), answered).await.context("the server did not answer")??;
    server.kill().await?;
    Ok(elapsed)
}
