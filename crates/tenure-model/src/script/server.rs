//! A server that speaks the bytes of real providers, for tests, demonstrations and measurements.
//!
//! What it answers is a function of the request ([`Responder`]), or a scenario ([`serve_scenario`]).
//! It listens where it is told to and checks no key: it is no door to anything.

use super::conversation::Conversation;
use super::play::{Play, play};
use super::scenario::{Scenario, error_body};
use super::wire::{Piece, anthropic_stream, gemini_stream, ollama_stream, openai_stream, responses_stream};
use crate::config::DialectName;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use std::collections::HashMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Largest request body that is read.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// Requests that are remembered to count attempts; beyond that counting starts anew.
const MAX_REMEMBERED: usize = 100_000;

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRequest {
    /// Counted from 1.
    pub number: u64,
    /// The path.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptReply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body, piece by piece.
    pub body: Vec<Piece>,
}

impl ScriptReply {
    /// A stream with status 200.
    pub fn stream(body: Vec<Piece>) -> Self {
        Self { status: 200, headers: vec![("content-type".to_owned(), EVENTS.to_owned())], body }
    }

    /// A whole body.
    pub fn whole(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: vec![Piece::Bytes(body.into())] }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Decides what a request gets.
pub type Responder = Arc<dyn Fn(&ScriptRequest) -> ScriptReply + Send + Sync>;

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct ScriptServer {
    /// Where it listens.
    pub addr: SocketAddr,
    seen: Arc<Mutex<Vec<ScriptRequest>>>,
    task: JoinHandle<()>,
}

impl ScriptServer {
    /// Starts on a free port of the loopback address.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(responder: Responder) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, inner) = (seen.clone(), responder);
        let recording: Responder = Arc::new(move |request| {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            inner(request)
        });
        let task = tokio::spawn(async move {
            // It ends only when the task is aborted.
            let _ = serve(listener, recording, std::future::pending()).await;
        });
        Ok(Self { addr, seen, task })
    }

    /// Starts with a scenario.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start_scenario(scenario: Arc<Scenario>) -> io::Result<Self> {
        Self::start(scenario_responder(scenario)).await
    }

    /// Where it listens, for `base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The requests so far; a server that lives long should be one of [`serve`], which keeps none.
    pub fn requests(&self) -> Vec<ScriptRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ScriptServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a scenario in the dialects of real providers until `stop` is ready.
///
/// # Errors
/// When the listener fails.
pub async fn serve_scenario(
    listener: TcpListener,
    scenario: Arc<Scenario>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve(listener, scenario_responder(scenario), stop).await
}

/// Serves until `stop` is ready. `GET /requests` says how many requests there were.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    responder: Responder,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let state = Arc::new(Served { responder, requests: Mutex::new(0) });
    let router = Router::new().fallback(answer).with_state(state);
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

struct Served {
    responder: Responder,
    requests: Mutex<u64>,
}

async fn answer(State(served): State<Arc<Served>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.method == "GET" && head.uri.path() == "/requests" {
        let requests = *served.requests.lock().unwrap_or_else(PoisonError::into_inner);
        return respond(ScriptReply::whole(200, "application/json", format!("{{\"requests\":{requests}}}")));
    }
    let Ok(body) = axum::body::to_bytes(body, MAX_REQUEST_BYTES).await else {
        return respond(ScriptReply::whole(
            413,
            "application/json",
            error_body("request_too_large", "the body is too large"),
        ));
    };
    let number = {
        let mut requests = served.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests += 1;
        *requests
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let request = ScriptRequest { number, path: head.uri.path().to_owned(), headers, body: body.to_vec() };
    respond((served.responder)(&request))
}

fn respond(reply: ScriptReply) -> Response {
    let pieces = futures_util::stream::unfold(reply.body.into_iter(), |mut pieces| async move {
        loop {
            match pieces.next()? {
                Piece::Bytes(bytes) => {
                    return Some((Ok::<_, io::Error>(Bytes::from(bytes)), pieces));
                }
                Piece::Wait(span) => tokio::time::sleep(span).await,
                Piece::Forever => std::future::pending().await,
                Piece::Break => {
                    // What was sent before is flushed while the body is not ready.
                    tokio::task::yield_now().await;
                    return Some((Err(io::Error::other("the script breaks the connection")), pieces));
                }
            }
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Plays a scenario; an attempt is counted by how often the same messages came.
fn scenario_responder(scenario: Arc<Scenario>) -> Responder {
    let attempts: Mutex<HashMap<u64, u32>> = Mutex::new(HashMap::new());
    Arc::new(move |request| {
        let problem = |status, message: &str| {
            ScriptReply::whole(status, "application/json", error_body("invalid_request_error", message))
        };
        let Ok(body) = serde_json::from_slice::<serde_json::Value>(&request.body) else {
            return problem(400, "the body is not JSON");
        };
        let Some(dialect) = dialect_of(&request.path) else {
            return ScriptReply::whole(404, "application/json", error_body("not_found_error", &paths()));
        };
        let conversation = match dialect {
            DialectName::Anthropic => Conversation::of_anthropic(&body),
            DialectName::OpenAi => Conversation::of_openai(&body),
            DialectName::Responses => Conversation::of_responses(&body),
            DialectName::Gemini => Conversation::of_gemini(&body),
            DialectName::Ollama | DialectName::Script => Conversation::of_ollama(&body),
        };
        let attempt = {
            let mut hasher = DefaultHasher::new();
            for field in ["messages", "input", "contents"] {
                body[field].to_string().hash(&mut hasher);
            }
            let mut attempts = attempts.lock().unwrap_or_else(PoisonError::into_inner);
            if attempts.len() >= MAX_REMEMBERED {
                attempts.clear();
            }
            let attempt = attempts.entry(hasher.finish()).or_insert(0);
            *attempt += 1;
            *attempt
        };
        let model = body["model"].as_str().unwrap_or("script");
        let id = format!("req_{}", request.number);
        match play(&scenario, &conversation, attempt) {
            Err(message) => problem(400, &message),
            Ok(Play::Reply { status, headers, body }) => {
                let content_type = if body.starts_with('<') { "text/html" } else { "application/json" };
                let reply = ScriptReply::whole(status, content_type, body).with_header("request-id", &id);
                headers.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value))
            }
            Ok(Play::Stream { items, stop, usage }) => {
                let (body, content_type) = match dialect {
                    DialectName::Anthropic => (anthropic_stream(model, &items, stop, usage), EVENTS),
                    DialectName::OpenAi => (openai_stream(model, &items, stop, usage), EVENTS),
                    DialectName::Responses => (responses_stream(model, &items, stop, usage), EVENTS),
                    DialectName::Gemini => (gemini_stream(&items, stop, usage), EVENTS),
                    DialectName::Ollama | DialectName::Script => (ollama_stream(model, &items, stop, usage), LINES),
                };
                let name = if dialect == DialectName::Anthropic { "request-id" } else { "x-request-id" };
                let headers = vec![("content-type".to_owned(), content_type.to_owned())];
                ScriptReply { status: 200, headers, body }.with_header(name, &id)
            }
        }
    })
}

const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";

/// Which dialect a request speaks, by its path.
fn dialect_of(path: &str) -> Option<DialectName> {
    PATHS.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, dialect)| dialect)
}

const PATHS: [(&str, DialectName); 5] = [
    ("/messages", DialectName::Anthropic),
    ("/chat/completions", DialectName::OpenAi),
    ("/responses", DialectName::Responses),
    (":streamGenerateContent", DialectName::Gemini),
    ("/api/chat", DialectName::Ollama),
];

fn paths() -> String {
    format!("use a path that ends in one of: {}", PATHS.map(|(end, _)| end).join(", "))
}
