//! From the moment a provider writes a piece of an answer to the moment a client has read it: through
//! a worker and a server that run as processes of their own, over real sockets.

use super::{Figure, fresh, millis};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_api::client::{Client, From, Next};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// Pieces that the provider writes.
const PIECES: usize = 400;

/// Time between two of them: about the pace of a fast model.
const PACE: Duration = Duration::from_millis(5);

/// First pieces that are not counted: connections are made and code is read from the disk then.
const WARM_UP: usize = 20;

/// Longest time for the whole.
const PATIENCE: Duration = Duration::from_secs(60);

/// When each piece was written.
type Sent = Arc<Mutex<Vec<Instant>>>;

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    let place = fresh(folder, "previews");
    std::fs::create_dir_all(&place)?;
    let sent = Sent::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let provider = listener.local_addr()?;
    let answering = tokio::spawn(answer(listener, sent.clone()));
    let config = format!(
        "[providers.bench]\ndialect = \"openai\"\nbase_url = \"http://{provider}/v1\"\napi_key_env = \"TENURE_BENCH_KEY\"\n"
    );
    std::fs::write(place.join("tenure.toml"), config)?;
    let (mut server, url) = start(&place).await?;
    let measured = tokio::time::timeout(PATIENCE, measure(&place, &url, &sent)).await;
    // In order, so that its worker ends before the folder is removed.
    if let Some(pid) = server.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM)?;
    }
    if tokio::time::timeout(Duration::from_secs(5), server.wait()).await.is_err() {
        server.kill().await?;
    }
    answering.abort();
    let values = measured.context("the answer did not come in time")??;
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let params = json!({ "pieces": PIECES, "pace_ms": millis(PACE), "p99_ms": super::quantile(&sorted, 0.99) });
    Ok(vec![Figure::new("previews", "provider byte to client byte", "ms", values).with(params)])
}

/// A provider that speaks Chat Completions and notes when it writes each piece.
async fn answer(listener: TcpListener, sent: Sent) -> Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        speak(socket, &sent).await?;
    }
}

async fn speak(mut socket: TcpStream, sent: &Sent) -> Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 8_192];
    while !is_whole(&request) {
        let length = socket.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(&piece[..length]);
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    let mut clock = tokio::time::interval(PACE);
    for place in 0..PIECES {
        clock.tick().await;
        let chunk =
            json!({ "choices": [{ "index": 0, "delta": { "content": format!("{place};") }, "finish_reason": null }] });
        let line = format!("data: {chunk}\n\n");
        sent.lock().expect("nobody panics while holding it").push(Instant::now());
        socket.write_all(line.as_bytes()).await?;
    }
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    socket.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).await?;
    socket.shutdown().await?;
    Ok(())
}

/// Whether a request with a content-length has come in full.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    request.len() >= head.len() + 4 + length.unwrap_or(0)
}

/// A server with its worker, and its address.
async fn start(place: &Path) -> Result<(Child, String)> {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tenure"));
    let mut server = Command::new(program)
        .args(["dev", "--json", "--listen", "127.0.0.1:0", "--config"])
        .arg(place.join("tenure.toml"))
        .arg("--data")
        .arg(place.join("data"))
        .env("TENURE_BENCH_KEY", "bench-key-of-no-use")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start the server")?;
    let stdout = server.stdout.take().context("the server has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let url = loop {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.context("the server was not ready")??;
        let Some(line) = line else { bail!("the server ended before it was ready") };
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(url) = value["url"].as_str() {
            break url.to_owned();
        }
    };
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((server, url))
}

async fn measure(place: &Path, url: &str, sent: &Sent) -> Result<Vec<f64>> {
    let key = std::fs::read_to_string(place.join("data").join("api.key"))?;
    let client = Client::new(url, Some(key.trim().to_owned()))?;
    let agent = client.post(&["v1", "agents"], &json!({ "name": "bench", "model": "bench/paced" })).await?;
    let environment = json!({ "name": "bench", "config": { "type": "cloud" } });
    let environment = client.post(&["v1", "environments"], &environment).await?;
    let session = json!({ "agent": agent["id"], "environment_id": environment["id"] });
    let session = client.post(&["v1", "sessions"], &session).await?;
    let id = session["id"].as_str().context("the session has an id")?;
    let mut stream = client.events(id, From::Start, true).await?;
    let message = json!({ "events": [{ "type": "user.message", "content": [{ "type": "text", "text": "go" }] }] });
    client.post(&["v1", "sessions", id, "events"], &message).await?;
    let (mut text, mut values) = (String::new(), Vec::new());
    loop {
        let Next::Frame(frame) = stream.next().await? else { continue };
        let at = Instant::now();
        match frame.event.as_str() {
            "event_delta" => {
                let event: Value = serde_json::from_str(&frame.data)?;
                text.push_str(event["delta"]["content"]["text"].as_str().unwrap_or_default());
                let arrived = text.matches(';').count();
                let sent = sent.lock().expect("nobody panics while holding it");
                values.extend((values.len()..arrived).map(|piece| millis(at - sent[piece])));
            }
            "session.error" => bail!("the session failed: {}", frame.data),
            "session.status_idle" => break,
            _ => {}
        }
    }
    if values.len() < PIECES {
        bail!("{} of {PIECES} pieces were seen before the answer was whole", values.len());
    }
    Ok(values.split_off(WARM_UP))
}
