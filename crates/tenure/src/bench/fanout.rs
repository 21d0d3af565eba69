//! Previews to many readers: from the moment a node tells a token to the moment a client has read it,
//! through a server that runs as a process of its own.
//!
//! The node is played here, so that neither a model nor a worker is measured. Next to the readers of the
//! server one reads the node itself: what its tokens take is what the machine and this bench need
//! alone, and the latency that the server adds is the difference.

use super::{Figure, fresh, millis, quantile};
use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_api::node::{PREVIEWS_PATH, PreviewFrame, PreviewKind};
use tenure_core::{
    AgentId, AgentRef, Block, Body, Draft, EnvironmentId, Event, EventId, InputBody, LeaseId, NodeId, Sent, Session,
    SessionId, TenantId, apply, intake,
};
use tenure_store::{Beat, Checkpoint, Claim, Lane, Leased, NewNode, NewSession, Store, Then};
use tenure_store_sqlite::Sqlite;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::broadcast;

/// Tokens of each session in a second.
const TOKENS_PER_SECOND: u32 = 50;

/// How long is measured.
const MEASURED: Duration = Duration::from_secs(10);

/// How long tokens flow before it is measured.
const WARM_UP: Duration = Duration::from_secs(3);

/// Tokens are told in slices, so that sessions do not all speak in the same moment.
const SLICE: Duration = Duration::from_millis(1);

/// How late a token may come and still count as one that came: a machine that cannot carry the load falls
/// behind for ever, and the share of tokens that came says so.
const LATE: Duration = Duration::from_secs(5);

/// Longest time for anything that must happen before the measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files that two processes with so many sockets need.
const FILES: u64 = 8_192;

/// What stands before each token, and after it.
const MARK: &str = "@";
const END: &str = "!";

/// Sessions that stream, and readers of each.
const SHAPES: [(usize, usize); 3] = [(100, 1), (1_000, 1), (1, 1_000)];

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    raise_files()?;
    let mut figures = Vec::new();
    for (sessions, readers) in SHAPES {
        figures.extend(measure(&fresh(folder, "fanout"), sessions, readers).await?);
    }
    Ok(figures)
}

fn raise_files() -> Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < FILES) {
        if maximum.is_some_and(|maximum| maximum < FILES) {
            bail!("this bench needs {FILES} open files, and the limit here is lower (ulimit -Hn)");
        }
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum })?;
    }
    Ok(())
}

async fn measure(data: &Path, sessions: usize, readers: usize) -> Result<Vec<Figure>> {
    let store = Sqlite::open(tenure_store_sqlite::Options::new(data))?;
    let (mut server, address) = start(data).await?;
    let key = std::fs::read_to_string(data.join("api.key"))?.trim().to_owned();
    let stage = Arc::new(Stage::set(&store, sessions).await?);
    let speaking = tokio::spawn(stage.clone().speak());
    let measured = listen(&stage, address, &key, readers, server.id().context("the server runs")?).await;
    speaking.abort();
    server.kill().await?;
    store.close().await;
    let Measured { through, direct, cpu, resident } = measured?;
    let params = json!({ "sessions": sessions, "readers": sessions * readers, "tokens_per_second": TOKENS_PER_SECOND });
    let name = format!("{sessions} x {readers}");
    let wanted = (sessions * readers) as f64 * f64::from(TOKENS_PER_SECOND) * MEASURED.as_secs_f64();
    let got = through.len() as f64 / wanted;
    let mut figures = Vec::new();
    for (share, label) in [(0.5, "p50"), (0.99, "p99")] {
        let figure = format!("{name}: token to client {label}");
        let direct = quantile(&direct, share);
        figures.push(Figure::new("fanout", figure, "ms", vec![quantile(&through, share)]).against(direct));
    }
    figures.push(Figure::new("fanout", format!("{name}: tokens that came in time"), "share", vec![got]));
    figures.push(Figure::new("fanout", format!("{name}: processors of the server"), "cores", vec![cpu]));
    figures.push(Figure::new("fanout", format!("{name}: memory of the server"), "MiB", vec![resident]));
    Ok(figures.into_iter().map(|figure| figure.with(params.clone())).collect())
}

/// A server on a data folder, and its address.
async fn start(data: &Path) -> Result<(Child, std::net::SocketAddr)> {
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tenure"));
    let server = Command::new(program)
        .args(["serve", "--json", "--listen", &address.to_string(), "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start the server")?;
    let answers = async {
        // A listener takes connections before there is a key behind it.
        while healthy(address).await.is_err() {
            tokio::time::sleep(SLICE * 20).await;
        }
    };
    tokio::time::timeout(PATIENCE, answers).await.context("the server did not answer")?;
    Ok((server, address))
}

async fn healthy(address: std::net::SocketAddr) -> Result<()> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut reply = [0; 12];
    socket.read_exact(&mut reply).await?;
    if &reply != b"HTTP/1.1 200" {
        bail!("the server is not well yet");
    }
    Ok(())
}

/// The node that is played, with its sessions in the middle of an answer.
struct Stage {
    began: Instant,
    /// The begin of each answer.
    open: Vec<PreviewFrame>,
    /// What was said of each so far: a node tells it to everybody who calls, as a worker does. Without it
    /// the server would see a hole in the text, and show nothing more of that answer.
    said: Mutex<Vec<String>>,
    lines: broadcast::Sender<Arc<str>>,
    address: std::net::SocketAddr,
    listener: Mutex<Option<TcpListener>>,
}

fn bits() -> u128 {
    rand::random()
}

impl Stage {
    async fn set(store: &Arc<Sqlite>, sessions: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let node = NodeId::from_bits(bits());
        store.register(NewNode { id: node, address: address.to_string(), label: "bench".to_owned() }).await?;
        let now = store.now().await?;
        for _ in 0..sessions {
            let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
            let id = SessionId::from_bits(bits());
            let session = Session::new(id, TenantId::default_tenant(), agent, EnvironmentId::from_bits(1), now);
            let input = InputBody::Message { content: vec![Block::Text("go".to_owned())] };
            let inputs = vec![(EventId::from_bits(bits()), input)];
            store
                .create(NewSession {
                    session,
                    events: Vec::new(),
                    metadata: BTreeMap::new(),
                    inputs,
                    idempotency: None,
                })
                .await?;
        }
        let mut open = Vec::new();
        while open.len() < sessions {
            let claim =
                Claim { node, lane: Lane::Workers, id: LeaseId::from_bits(bits()), limit: sessions - open.len() };
            for leased in store.claim(claim).await? {
                open.push(begin(store, leased).await?);
            }
        }
        tokio::spawn(live(store.clone(), node, open.iter().map(|frame| (frame.session, frame.epoch)).collect()));
        let lines = broadcast::channel(64 * 1024).0;
        let (said, listener) = (Mutex::new(vec![String::new(); open.len()]), Mutex::new(Some(listener)));
        Ok(Self { began: Instant::now(), open, said, lines, address, listener })
    }

    /// Tells tokens for ever, each with the time at which it is told.
    async fn speak(self: Arc<Self>) -> Result<()> {
        let listener = self.listener.lock().expect("nobody panics while holding it").take();
        let listener = listener.context("it speaks once")?;
        tokio::spawn(answer(listener, self.clone()));
        let slices = 1_000 / (TOKENS_PER_SECOND as usize * SLICE.as_millis() as usize);
        let mut clock = tokio::time::interval(SLICE);
        for slice in (0..slices).cycle() {
            clock.tick().await;
            let mut said = self.said.lock().expect("nobody panics while holding it");
            for (open, said) in self.open.iter().zip(said.iter_mut()).skip(slice).step_by(slices) {
                let text = format!("{MARK}{}{END}", self.began.elapsed().as_micros());
                said.push_str(&text);
                // Nobody listens yet.
                let _ = self.lines.send((delta(open, said.len(), text).to_line() + "\n").into());
            }
        }
        Ok(())
    }

    /// What is open now and what follows it, without a gap between them.
    fn listen(&self) -> (Vec<PreviewFrame>, broadcast::Receiver<Arc<str>>) {
        let said = self.said.lock().expect("nobody panics while holding it");
        let told = |(open, said): (&PreviewFrame, &String)| {
            let rest = (!said.is_empty()).then(|| delta(open, said.len(), said.clone()));
            std::iter::once(open.clone()).chain(rest)
        };
        (self.open.iter().zip(said.iter()).flat_map(told).collect(), self.lines.subscribe())
    }
}

/// A piece of an answer that ends after `end` bytes of its text.
fn delta(open: &PreviewFrame, end: usize, text: String) -> PreviewFrame {
    let PreviewKind::Start { event_id, .. } = open.kind else { return open.clone() };
    PreviewFrame { n: open.n + end as u64, kind: PreviewKind::Delta { event_id, text }, ..open.clone() }
}

/// Takes the message of a session and begins the answer to it.
async fn begin(store: &Arc<Sqlite>, leased: Leased) -> Result<PreviewFrame> {
    let Leased { lease, mut session, inbox, now, .. } = leased;
    let consumed = inbox.last().map_or(0, |(place, _)| *place);
    let inputs: Vec<_> = inbox.into_iter().map(|(_, input)| input).collect();
    let mut drafts = intake(&session, &inputs, now);
    drafts.push(Draft::of_step(
        1,
        Body::SpanStart { model: "bench/paced".to_owned(), attempt: 1, instead_of: None, sent: Sent::default() },
    ));
    let mut events = Vec::new();
    for draft in drafts {
        let id = draft.id.unwrap_or(EventId::from_bits(bits()));
        let event = Event { id, seq: session.last_seq + 1, at: now, step: draft.step, body: draft.body };
        apply(&mut session, &event)?;
        events.push(event);
    }
    let (id, epoch, after_seq) = (session.id, lease.epoch, session.last_seq);
    let commit_id = LeaseId::from_bits(bits());
    store.commit(Checkpoint { lease, commit_id, events, session, consumed, then: Then::Keep }).await?;
    let event_id = EventId::from_bits(bits());
    let kind = PreviewKind::Start { event_id, event_type: "agent.message".to_owned() };
    Ok(PreviewFrame { session: id, epoch, after_seq, attempt: 1, n: 1, kind })
}

/// Heartbeats of the node.
async fn live(store: Arc<Sqlite>, node: NodeId, held: Vec<(SessionId, u64)>) -> Result<()> {
    let mut clock = tokio::time::interval(Duration::from_secs(5));
    loop {
        clock.tick().await;
        let claimed_before = store.now().await?;
        store.heartbeat(Beat { node, held: held.clone(), claimed_before }).await?;
    }
}

/// Tells everybody who calls what is open, and then each token.
async fn answer(listener: TcpListener, stage: Arc<Stage>) -> Result<()> {
    loop {
        let (mut socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let stage = stage.clone();
        tokio::spawn(async move {
            let mut request = [0; 4_096];
            let _ = socket.read(&mut request).await?;
            let mut out = BufWriter::new(socket);
            out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n")
                .await?;
            let (open, mut tokens) = stage.listen();
            for frame in open {
                out.write_all((frame.to_line() + "\n").as_bytes()).await?;
            }
            out.flush().await?;
            loop {
                let line = tokens.recv().await?;
                out.write_all(line.as_bytes()).await?;
                // Whoever was too slow is sent away and calls again, as a worker does it: a line that is left out
                // would be a hole in the text.
                loop {
                    match tokens.try_recv() {
                        Ok(line) => out.write_all(line.as_bytes()).await?,
                        Err(broadcast::error::TryRecvError::Empty) => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                out.flush().await?;
            }
            #[allow(unreachable_code, reason = "names the type of the error")]
            Ok::<_, anyhow::Error>(())
        });
    }
}

struct Measured {
    /// Sorted latencies of tokens, in milliseconds.
    through: Vec<f64>,
    direct: Vec<f64>,
    cpu: f64,
    resident: f64,
}

async fn listen(
    stage: &Arc<Stage>,
    server: std::net::SocketAddr,
    key: &str,
    readers: usize,
    pid: u32,
) -> Result<Measured> {
    let mut tasks = Vec::new();
    let from = Instant::now() + WARM_UP;
    let mut connected = Vec::new();
    for frame in &stage.open {
        for _ in 0..readers {
            let path = format!("/v1/sessions/{}/events/stream?event_deltas[]=agent.message", frame.session);
            connected.push(connect(server, &path, key).await?);
        }
    }
    let from = from.max(Instant::now() + WARM_UP);
    for socket in connected {
        tasks.push(tokio::spawn(read(socket, stage.began, from)));
    }
    let direct = tokio::spawn(read(connect(stage.address, PREVIEWS_PATH, key).await?, stage.began, from));
    tokio::time::sleep_until(from.into()).await;
    let before = processor_seconds(pid)?;
    tokio::time::sleep(MEASURED).await;
    let cpu = (processor_seconds(pid)? - before) / MEASURED.as_secs_f64();
    let resident = resident_mib(pid)?;
    let mut through = Vec::new();
    for task in tasks {
        through.extend(task.await??);
    }
    let mut direct = direct.await??;
    through.sort_by(f64::total_cmp);
    direct.sort_by(f64::total_cmp);
    Ok(Measured { through, direct, cpu, resident })
}

async fn connect(address: std::net::SocketAddr, path: &str, key: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nx-api-key: {key}\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    Ok(socket)
}

/// Reads tokens, and says how old those are that were told while it is measured.
async fn read(mut socket: TcpStream, began: Instant, from: Instant) -> Result<Vec<f64>> {
    let (first, last) = ((from - began).as_micros() as u64, (from - began + MEASURED).as_micros() as u64);
    let (mut bytes, mut values, mut is_first) = (Vec::new(), Vec::new(), true);
    let mut piece = vec![0; 16 * 1024];
    let stop = from + MEASURED + LATE;
    loop {
        let Ok(length) = tokio::time::timeout_at(stop.into(), socket.read(&mut piece)).await else { return Ok(values) };
        let length = length?;
        let now = began.elapsed();
        if length == 0 {
            bail!("the stream ended");
        }
        bytes.extend_from_slice(&piece[..length]);
        if std::mem::take(&mut is_first) && !bytes.starts_with(b"HTTP/1.1 200") {
            bail!("the stream was refused: {}", String::from_utf8_lossy(&bytes));
        }
        let mut read = 0;
        while let Some((told, end)) = token(&bytes[read..]) {
            read += end;
            if told >= last {
                return Ok(values);
            }
            if told >= first {
                values.push(millis(now.saturating_sub(Duration::from_micros(told))));
            }
        }
        bytes.drain(..read);
    }
}

/// The first whole token, and where it ends.
fn token(bytes: &[u8]) -> Option<(u64, usize)> {
    let mark = bytes.iter().position(|byte| *byte == MARK.as_bytes()[0])?;
    let end = bytes[mark..].iter().position(|byte| *byte == END.as_bytes()[0])? + mark;
    let told = std::str::from_utf8(&bytes[mark + 1..end]).ok()?.parse().ok()?;
    Some((told, end + 1))
}

/// Seconds of processor time that a process has used.
fn processor_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').context("it has a name")?.1;
    let ticks: Vec<u64> = after_name.split_whitespace().skip(11).take(2).filter_map(|tick| tick.parse().ok()).collect();
    Ok(ticks.iter().sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it says its memory")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1_024.0)
}
