//! One attempt over HTTP: key, time limits and bounds around a dialect.
//!
//! One layer of retries only: this client makes none (promise P10). It follows no redirects, uses no
//! proxy that the configuration does not name, and unpacks no compressed bodies.

use crate::config::{ProviderConfig, Timeouts};
use crate::decoder::Decoder;
use crate::dialect::{self, HttpRequest};
use crate::model::{CallContext, Model, StreamEvent, Written, check_history};
use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tenure_core::failure::{Class, Failure, Reply, classify, incomplete, plain, unreachable};
use tenure_core::pace::buckets;
use tenure_core::redact::Masker;
use tenure_core::{Answer, Prompt};
use tokio::time::{Instant, timeout, timeout_at};

/// Most bytes that are read of a reply that is no stream; providers' errors are shorter.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// A provider with its connections, shared by its models.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) config: ProviderConfig,
    /// Made with the first call: reading certificates takes time that a start should not.
    http: OnceLock<Result<reqwest::Client, String>>,
}

impl Provider {
    pub(crate) fn new(name: String, config: ProviderConfig) -> Self {
        Self { name, config, http: OnceLock::new() }
    }

    fn http(&self) -> Result<&reqwest::Client, Failure> {
        let made = self.http.get_or_init(|| self.connect().map_err(|error| chain(&error)));
        made.as_ref().map_err(|reason| plain(Class::Config, format!("provider {}: {reason}", self.name)))
    }

    fn connect(&self) -> reqwest::Result<reqwest::Client> {
        let builder = reqwest::Client::builder()
            .connect_timeout(self.config.timeouts("").connect)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        match &self.config.proxy {
            Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy)?),
            None => builder,
        }
        .build()
    }

    /// The key, read now, so that a changed one works without a restart.
    async fn key(&self) -> Result<Option<String>, Failure> {
        let missing = |message: String| Failure { kind: "missing_key".to_owned(), ..plain(Class::Credential, message) };
        let (key, place) = match (&self.config.api_key_file, self.config.key_env()) {
            (Some(path), _) => {
                let read = tokio::fs::read_to_string(path).await;
                let key =
                    read.map_err(|error| missing(format!("the key file {} cannot be read: {error}", path.display())))?;
                (key, format!("the key file {}", path.display()))
            }
            (None, Some(name)) => {
                let key = std::env::var(name)
                    .map_err(|_| missing(format!("the environment variable {name} with the key is not set")))?;
                (key, format!("the environment variable {name}"))
            }
            (None, None) => return Ok(None),
        };
        let key = key.trim();
        if key.is_empty() {
            return Err(missing(format!("{place} is empty")));
        }
        if HeaderValue::from_str(key).is_err() {
            return Err(missing(format!("{place} holds characters that a key cannot have")));
        }
        Ok(Some(key.to_owned()))
    }
}

/// One model of a provider.
#[derive(Debug)]
pub(crate) struct HttpModel {
    provider: Arc<Provider>,
    full_name: String,
    timeouts: Timeouts,
}

impl HttpModel {
    pub(crate) fn new(provider: Arc<Provider>, full_name: String, timeouts: Timeouts) -> Self {
        Self { provider, full_name, timeouts }
    }

    async fn attempt(
        &self,
        prompt: &Prompt,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        check_history(prompt)?;
        let config = &self.provider.config;
        let base_url = config.base_url().unwrap_or_default();
        let (Some(request), Some(decoder)) = (
            dialect::request(config.dialect, base_url, prompt, &config.extra_body(&prompt.model_name)),
            dialect::decoder(config.dialect, &self.full_name),
        ) else {
            return Err(plain(Class::Config, format!("the dialect {} is not spoken over HTTP", config.dialect)));
        };
        let key = self.provider.key().await?;
        let masker = Masker::new(key.as_deref().into_iter().chain(config.headers.values().map(String::as_str)));
        self.exchange(request, decoder, key.as_deref(), on_event).await.map_err(|failure| masked(failure, &masker))
    }

    async fn exchange(
        &self,
        request: HttpRequest,
        mut decoder: Box<dyn Decoder>,
        key: Option<&str>,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        let timeouts = &self.timeouts;
        let headers = headers(&request, &self.provider.config, key)?;
        let sent = self.provider.http()?.post(&request.url).headers(headers).body(request.body).send();
        let first_byte = Instant::now() + timeouts.first_byte;
        let reply = timeout_at(first_byte, sent)
            .await
            .map_err(|_| slow("first_byte_timeout", "no reply", timeouts.first_byte))?
            .map_err(|error| broken(error.without_url(), timeouts))?;
        if let Some(failure) = compressed(&reply) {
            return Err(failure);
        }
        if !is_stream(&reply) {
            return Err(refusal(reply, timeouts.idle).await);
        }
        let request_id = header(reply.headers(), "request-id").or_else(|| header(reply.headers(), "x-request-id"));
        on_event(StreamEvent::Started { request_id: request_id.clone() });
        let (status, headers) = (reply.status().as_u16(), texts(reply.headers()));
        let limits = buckets(&Reply { status, body: "", headers: &headers });
        if !limits.is_empty() {
            on_event(StreamEvent::Limits(limits));
        }
        let mut answer = read(reply, &mut *decoder, first_byte, timeouts, on_event).await.map_err(|mut failure| {
            failure.request_id = failure.request_id.or_else(|| request_id.clone());
            failure.status = failure.status.or(Some(200));
            failure
        })?;
        answer.request_id = request_id;
        Ok(answer)
    }
}

#[async_trait]
impl Model for HttpModel {
    async fn call(
        &self,
        prompt: &Prompt,
        _: &CallContext,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        let total = self.timeouts.total;
        timeout(total, self.attempt(prompt, on_event))
            .await
            .unwrap_or_else(|_| Err(slow("total_timeout", "no whole answer", total)))
    }

    fn written(&self, prompt: &Prompt) -> Option<Written> {
        let config = &self.provider.config;
        let base_url = config.base_url().unwrap_or_default();
        let request = dialect::request(config.dialect, base_url, prompt, &config.extra_body(&prompt.model_name))?;
        Some(Written { dialect: config.dialect.to_string(), body: request.body })
    }
}

/// Reads the stream to its terminal marker, or to its end.
async fn read(
    mut reply: reqwest::Response,
    decoder: &mut dyn Decoder,
    first_byte: Instant,
    timeouts: &Timeouts,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<Answer, Failure> {
    let mut limit = Limit::FirstByte(first_byte);
    let (mut progress, mut progress_at) = (decoder.progress(), Instant::now());
    loop {
        match timeout_at(limit.at(), reply.chunk()).await {
            Ok(Ok(Some(bytes))) => decoder.push(&bytes, on_event)?,
            Ok(Ok(None)) => break,
            // What broke after the marker does not matter; before it, `finish` says incomplete.
            Ok(Err(error)) => {
                return decoder.finish(on_event).map_err(|failure| match failure.class {
                    Class::Incomplete => incomplete(format!("{}: {}", failure.message, chain(&error.without_url()))),
                    _ => failure,
                });
            }
            Err(_) => {
                return decoder.finish(on_event).map_err(|failure| match failure.class {
                    Class::Incomplete => limit.failure(timeouts),
                    _ => failure,
                });
            }
        }
        if decoder.is_complete() {
            break;
        }
        let now = Instant::now();
        if decoder.progress() != progress {
            (progress, progress_at) = (decoder.progress(), now);
        }
        let (idle, stuck) = (now + timeouts.idle, progress_at + timeouts.progress);
        limit = if idle <= stuck { Limit::Idle(idle) } else { Limit::Progress(stuck) };
    }
    decoder.finish(on_event)
}

/// The time limit that comes first.
#[derive(Clone, Copy)]
enum Limit {
    FirstByte(Instant),
    Idle(Instant),
    Progress(Instant),
}

impl Limit {
    fn at(self) -> Instant {
        match self {
            Self::FirstByte(at) | Self::Idle(at) | Self::Progress(at) => at,
        }
    }

    fn failure(self, timeouts: &Timeouts) -> Failure {
        let incomplete = |failure: Failure| Failure { class: Class::Incomplete, ..failure };
        match self {
            Self::FirstByte(_) => slow("first_byte_timeout", "no byte of the answer", timeouts.first_byte),
            Self::Idle(_) => incomplete(slow("idle_timeout", "nothing more of the answer", timeouts.idle)),
            Self::Progress(_) => {
                incomplete(slow("progress_timeout", "signs of life, but nothing more of the answer", timeouts.progress))
            }
        }
    }
}

/// A call that ended before there was a reply.
fn broken(error: reqwest::Error, timeouts: &Timeouts) -> Failure {
    if error.is_connect() && error.is_timeout() {
        return slow("connect_timeout", "no connection to the provider", timeouts.connect);
    }
    let what = if error.is_connect() { "the provider cannot be reached" } else { "no reply that can be read" };
    unreachable(format!("{what}: {}", chain(&error)))
}

/// A reply in a form that was not asked for; unpacking it unasked would open the door to bombs
/// (hazard Z-42).
fn compressed(reply: &reqwest::Response) -> Option<Failure> {
    let encoding = header(reply.headers(), "content-encoding")?;
    let is_plain = encoding.trim().is_empty() || encoding.trim().eq_ignore_ascii_case("identity");
    let message = format!("the reply is compressed ({encoding:.20}), which was not asked for");
    let status = Some(reply.status().as_u16());
    (!is_plain).then(|| Failure { kind: "compressed_reply".to_owned(), status, ..unreachable(message) })
}

fn headers(request: &HttpRequest, config: &ProviderConfig, key: Option<&str>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (name, value) in &config.headers {
        let problem =
            || plain(Class::Config, format!("the configured header {name:?} has a name or value that cannot be sent"));
        let mut value = HeaderValue::from_str(value).map_err(|_| problem())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| problem())?, value);
    }
    if let Some(key) = key {
        let (name, before) = request.key_header;
        let mut value = HeaderValue::from_str(&format!("{before}{key}"))
            .map_err(|_| plain(Class::Credential, "the key holds characters that a header cannot have"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Whether the body is read as a stream: a success that does not say that it is something else.
fn is_stream(reply: &reqwest::Response) -> bool {
    let content_type = header(reply.headers(), "content-type").unwrap_or_default().to_ascii_lowercase();
    let other = ["text/html", "application/json", "application/problem+json", "application/xml", "text/xml"];
    reply.status().is_success() && !other.iter().any(|other| content_type.starts_with(other))
}

/// The failure that a reply other than a stream is (case O-018: a page with status 200 too).
async fn refusal(mut reply: reqwest::Response, idle: Duration) -> Failure {
    let status = reply.status().as_u16();
    let headers = texts(reply.headers());
    let mut body = Vec::new();
    let read = async {
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Some(bytes)) = reply.chunk().await
        {
            body.extend_from_slice(&bytes[..bytes.len().min(MAX_ERROR_BYTES - body.len())]);
        }
    };
    // Status and headers are worth more than the rest of a body that does not come.
    let _ = timeout(idle, read).await;
    classify(&Reply { status, body: &String::from_utf8_lossy(&body), headers: &headers })
}

/// The headers that are text.
fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text =
        |(name, value): (&HeaderName, &HeaderValue)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()));
    headers.iter().filter_map(text).collect()
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn slow(kind: &str, what: &str, limit: Duration) -> Failure {
    Failure { kind: kind.to_owned(), ..unreachable(format!("{what} within {} s", limit.as_secs_f64())) }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

/// Providers quote keys in their messages.
fn masked(failure: Failure, masker: &Masker) -> Failure {
    Failure {
        message: masker.mask(&failure.message).into_owned(),
        kind: masker.mask(&failure.kind).into_owned(),
        ..failure
    }
}
