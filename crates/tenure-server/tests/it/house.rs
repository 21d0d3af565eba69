//! A server over a store, and callers.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::scope::Scope;
use tenure_core::{Agent, Body as Row, Event, Session, SessionId, TenantId};
use tenure_server::*;
use tenure_store::Store;
use tenure_store::memory::Memory;
use tenure_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const KEY: &str = "key-of-alice";
pub(crate) const OTHER_KEY: &str = "key-of-bob";
/// A key of Alice for programs.
pub(crate) const CLIENT_KEY: &str = "key-of-a-program-of-alice";
/// A key of Alice for those who look.
pub(crate) const READ_KEY: &str = "key-of-a-board-of-alice";
pub(crate) const INSTALLATION_KEY: [u8; 32] = [3; 32];
pub(crate) const NODE_KEY: &str = "node-key";
pub(crate) const SECRET: &str = "sk-secret-of-the-provider";

pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) router: Router,
    pub(crate) state: Arc<ServerState>,
    pub(crate) stop: CancellationToken,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("no JSON: {:?}", String::from_utf8_lossy(&self.bytes)))
    }

    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", String::from_utf8_lossy(&self.bytes));
        self.json()
    }

    /// The code of an error, which must have the whole form of one.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        assert_eq!(body["type"], "error", "{body}");
        assert_eq!(body["request_id"].as_str(), self.header("request-id"));
        assert!(
            body["error"]["message"].is_string()
                && body["error"]["type"].is_string()
                && body["error"]["hint"].is_string()
        );
        let code = body["error"]["code"].as_str().unwrap();
        assert_eq!(body["error"]["docs"], format!("docs/errors/{code}.md"));
        code.to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Knows `p/priced` and `p/free`.
struct TwoModels;

impl ModelCheck for TwoModels {
    fn check(&self, model: &str) -> Result<KnownModel, String> {
        match model {
            "p/priced" | "priced" => Ok(KnownModel { name: "p/priced".into(), has_price: true }),
            "p/free" => Ok(KnownModel { name: "p/free".into(), has_price: false }),
            other => Err(format!("no provider knows {other:?}")),
        }
    }
}

/// Writes a request that says what it was made from; no model of the name `gone` is known.
struct Echo;

impl SeenRequests for Echo {
    fn seen(&self, _: &Agent, session: &Session, rows: &[Event], start: &Event) -> Result<SeenRequest, String> {
        let Row::SpanStart { model, .. } = &start.body else { return Err("no start".into()) };
        if model == "gone" {
            return Err(format!("nobody knows {SECRET}"));
        }
        let seqs: Vec<u64> = rows.iter().map(|row| row.seq).collect();
        let body = serde_json::json!({"system": SECRET, "rows": seqs, "last_seq": session.last_seq});
        Ok(SeenRequest { dialect: "echo".into(), body: body.to_string().into_bytes(), is_exact: true })
    }
}

impl House {
    /// Over the store in memory, whose clock stands still.
    pub(crate) fn new() -> Self {
        let memory = Arc::new(Memory::new());
        let mut house = Self::over(memory.clone(), |_| {});
        house.memory = Some(memory);
        house
    }

    /// Over the embedded store.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store =
            tenure_store_sqlite::Sqlite::open(tenure_store_sqlite::Options::new(folder.path().join("store"))).unwrap();
        let mut house = Self::over(store, |_| {});
        house.folder = folder;
        house
    }

    pub(crate) fn over(store: Arc<dyn Store>, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Keys::new();
        keys.add(KEY, Caller { tenant: TenantId("alice".into()), key_name: "first".into(), scope: Scope::Person });
        for (key, name, scope) in [(CLIENT_KEY, "program", Scope::Client), (READ_KEY, "board", Scope::Read)] {
            keys.add(key, Caller { tenant: TenantId("alice".into()), key_name: name.into(), scope });
        }
        keys.add(OTHER_KEY, Caller { tenant: TenantId("bob".into()), key_name: "second".into(), scope: Scope::Person });
        let stop = CancellationToken::new();
        let (workspaces, outputs) = (folder.path().join("workspaces"), folder.path().join("outputs"));
        let mut config = Config {
            store: store.clone(),
            keys,
            public_url: "https://tenure.example".into(),
            allowed_hosts: vec![],
            is_behind_proxy: false,
            installation_key: INSTALLATION_KEY,
            node_key: NODE_KEY.into(),
            callback_secret: None,
            workspace: Box::new(move |session: SessionId| workspaces.join(session.to_string())),
            outputs: Box::new(move |session: SessionId| outputs.join(session.to_string())),
            snapshots: Arc::new(tenure_files::snapshots::Stores::new(&folder.path().join("snapshots"), None)),
            models: Arc::new(TwoModels),
            requests: Arc::new(Echo),
            ids: Arc::new(TimeIds),
            mask: Arc::new(|text| text.replace(SECRET, "[redacted]")),
            telemetry: Telemetry::default(),
            stop: stop.clone(),
        };
        change(&mut config);
        let state = ServerState::new(config);
        Self { router: router(state.clone()), state, store, memory: None, stop, folder }
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn workspace(&self, session: &str) -> PathBuf {
        self.folder.path().join("workspaces").join(session)
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        // Something that should be a reply may be a stream.
        let bytes =
            tokio::time::timeout(PATIENCE, axum::body::to_bytes(body, usize::MAX)).await.expect("a reply that ends");
        let bytes = bytes.unwrap().to_vec();
        Reply { status: parts.status, headers: parts.headers, bytes }
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Reply {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request(method, path, body, headers)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, None, &[]).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.call(Method::POST, path, Some(body), &[]).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.call(Method::DELETE, path, None, &[]).await
    }

    pub(crate) async fn agent(&self) -> String {
        let body = json!({"name": "tester", "model": "p/priced", "tools": [{"type": "agent_toolset_20260401"}]});
        self.post("/v1/agents", body).await.ok()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn environment(&self) -> String {
        let body = json!({"name": "here", "config": {"type": "cloud"}});
        self.post("/v1/environments", body).await.ok()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn session(&self) -> String {
        let body = json!({"agent": self.agent().await, "environment_id": self.environment().await});
        self.post("/v1/sessions", body).await.ok()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn say(&self, session: &str, text: &str) -> Value {
        self.post(&format!("/v1/sessions/{session}/events"), message(text)).await.ok()
    }

    /// Opens a stream.
    pub(crate) async fn stream(&self, session: &str, query: &str, headers: &[(&str, &str)]) -> Frames {
        self.frames(&format!("/v1/sessions/{session}/events/stream{query}"), headers).await
    }

    /// Opens any stream.
    pub(crate) async fn frames(&self, path: &str, headers: &[(&str, &str)]) -> Frames {
        let response = self.router.clone().oneshot(request(Method::GET, path, Body::empty(), headers)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Frames {
            headers: response.headers().clone(),
            chunks: response.into_body().into_data_stream(),
            text: String::new(),
            ready: VecDeque::new(),
        }
    }
}

pub(crate) fn message(text: &str) -> Value {
    json!({"events": [{"type": "user.message", "content": [{"type": "text", "text": text}]}]})
}

/// A request with Alice's key and a known host, unless `headers` say otherwise.
pub(crate) fn request(method: Method, path: &str, body: Body, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    if !has("host") {
        request = request.header("host", "127.0.0.1:7373");
    }
    if !has("x-api-key") && !has("authorization") {
        request = request.header("x-api-key", KEY);
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty() || has("last-event-id")) {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

/// One frame of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) event: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

/// The frames of a stream; comments are left out.
pub(crate) struct Frames {
    pub(crate) headers: HeaderMap,
    chunks: axum::body::BodyDataStream,
    text: String,
    ready: VecDeque<Frame>,
}

impl Frames {
    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        // Comments alone are not enough.
        tokio::time::timeout(PATIENCE, self.read()).await.expect("a frame in time")
    }

    async fn read(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let chunk = self.chunks.next().await?;
            self.text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
            while let Some(end) = self.text.find("\n\n") {
                let frame: String = self.text.drain(..end + 2).collect();
                self.ready.extend(parse(&frame));
            }
        }
    }

    /// What is there to be read without waiting for anything.
    pub(crate) fn at_once(&mut self) -> Option<String> {
        let chunk = self.chunks.next().now_or_never()??;
        Some(String::from_utf8(chunk.unwrap().to_vec()).unwrap())
    }

    /// The next frames.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while frames.len() < count {
            frames.push(self.next().await.expect("a frame"));
        }
        frames
    }

    /// Frames up to and with the first of a type.
    pub(crate) async fn until(&mut self, event: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.expect("a frame");
            let is_last = frame.event == event;
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }
}

fn parse(text: &str) -> Option<Frame> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let data = field("data: ")?;
    Some(Frame {
        event: field("event: ").expect("every frame has a type"),
        id: field("id: "),
        data: serde_json::from_str(&data).unwrap(),
    })
}
