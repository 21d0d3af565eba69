//! The Rust client: requests with the error body understood, and event streams that resume.
//!
//! Replies are JSON values: the command line prints fields of servers that are newer than itself,
//! so it must not drop what it doesn't know. This client never repeats a request by itself except
//! the reading of a stream, which resumes from the last id that it saw.

mod error;
mod frames;
mod stream;

pub use error::{Error, Refusal};
pub use frames::{Frame, Frames, MAX_FRAME_BYTES};
pub use stream::{EventStream, From, Next};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;
use std::time::Duration;

/// How long the client waits for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an ordinary request may take; streams and transfers of files are not limited.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Most entries asked for in one page of a list.
pub const PAGE_LIMIT: usize = 100;
/// Largest error body that is read; the rest of a longer one is not wanted.
const MAX_ERROR_BYTES: usize = 256 * 1024;
/// Largest JSON reply that is read.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Talks to one server with one key.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<Key>,
}

/// A key; its text is never shown.
#[derive(Clone)]
struct Key(String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl Client {
    /// Prepares a client; nothing is sent yet.
    ///
    /// # Errors
    /// When the address is not an http or https address.
    pub fn new(base: &str, key: Option<String>) -> Result<Self, Error> {
        let address = |reason: String| Error::Address { address: base.to_owned(), reason };
        let base = Url::parse(base).map_err(|error| address(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(address("it must start with http:// or https://".to_owned()));
        }
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect would carry the key to another place.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&base) {
            // A proxy of the environment can't reach the loopback address that is meant here.
            http = http.no_proxy();
        }
        let http =
            http.build().map_err(|error| Error::Address { address: base.to_string(), reason: error.to_string() })?;
        Ok(Self { http, base, key: key.map(Key) })
    }

    /// The address of the server, without a slash at the end.
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The key that is sent, for another client of the same server.
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|Key(key)| key.as_str())
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Error> {
        self.json(self.request(Method::GET, path, query)?.timeout(REQUEST_TIMEOUT)).await
    }

    /// Sends a body to a resource.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn post(&self, path: &[&str], body: &Value) -> Result<Value, Error> {
        self.json(
            self.request(Method::POST, path, &[])?
                .timeout(REQUEST_TIMEOUT)
                .header("content-type", "application/json")
                .body(body.to_string()),
        )
        .await
    }

    /// Sends a body; the same key and body again give the same reply.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn post_once(&self, path: &[&str], body: &Value, idempotency_key: &str) -> Result<Value, Error> {
        let value = HeaderValue::from_str(idempotency_key).map_err(|_| Error::Unsendable {
            what: "idempotency key".to_owned(),
            reason: "it holds control characters".to_owned(),
        })?;
        let request = self.request(Method::POST, path, &[])?.timeout(REQUEST_TIMEOUT);
        self.json(
            request.header("content-type", "application/json").header("idempotency-key", value).body(body.to_string()),
        )
        .await
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn put(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        content_type: &str,
        body: reqwest::Body,
    ) -> Result<Value, Error> {
        self.json(self.request(Method::PUT, path, query)?.header("content-type", content_type).body(body)).await
    }

    /// Opens a download; errors of the server are errors here.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn download(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Download, Error> {
        let response = self.send(self.request(Method::GET, path, query)?, &HeaderMap::new()).await?;
        Ok(Download { response, base: self.base().to_owned() })
    }

    /// Reads a list page by page until `most` entries are there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, path: &[&str], query: &[(&str, &str)], most: usize) -> Result<Listed, Error> {
        let mut listed = Listed { data: Vec::new(), more: false };
        let mut page: Option<String> = None;
        loop {
            let limit = (most - listed.data.len()).min(PAGE_LIMIT).to_string();
            let mut query = query.to_vec();
            query.push(("limit", &limit));
            if let Some(page) = &page {
                query.push(("page", page));
            }
            let reply = self.get(path, &query).await?;
            if let Some(Value::Array(data)) = reply.get("data") {
                listed.data.extend(data.iter().cloned());
            }
            page = reply.get("next_page").and_then(Value::as_str).map(str::to_owned);
            listed.more = page.is_some();
            if page.is_none() || listed.data.len() >= most {
                return Ok(listed);
            }
        }
    }

    /// Opens the event stream of a session; it resumes by itself.
    ///
    /// # Errors
    /// When the first connection fails.
    pub async fn events(&self, session: &str, from: From, previews: bool) -> Result<EventStream, Error> {
        EventStream::open(self.clone(), session.to_owned(), from, previews).await
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> Result<RequestBuilder, Error> {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url);
        if let Some(Key(key)) = &self.key {
            let mut value = HeaderValue::from_str(key.trim()).map_err(|_| Error::Unsendable {
                what: "API key".to_owned(),
                reason: "it holds control characters".to_owned(),
            })?;
            value.set_sensitive(true);
            request = request.header(HeaderName::from_static("x-api-key"), value);
        }
        Ok(request)
    }

    async fn send(&self, request: RequestBuilder, headers: &HeaderMap) -> Result<Response, Error> {
        let response =
            request.headers(headers.clone()).send().await.map_err(|error| Error::lost(self.base(), error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    async fn refusal(&self, mut response: Response) -> Error {
        let status = response.status().as_u16();
        let request_id = response.headers().get("request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR_BYTES {
                break;
            }
        }
        Error::Refused(Box::new(Refusal::read(status, request_id, &body)))
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, Error> {
        let mut response = self.send(request, &HeaderMap::new()).await?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| Error::lost(self.base(), error))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_REPLY_BYTES {
                return Err(Error::Unreadable {
                    base: self.base().to_owned(),
                    reason: format!("the reply is longer than {MAX_REPLY_BYTES} bytes"),
                });
            }
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| Error::Unreadable { base: self.base().to_owned(), reason: error.to_string() })
    }
}

/// Entries of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The entries, in the order of the server.
    pub data: Vec<Value>,
    /// Whether the server has more of them.
    pub more: bool,
}

/// A body that is read piece by piece.
#[derive(Debug)]
pub struct Download {
    response: Response,
    base: String,
}

impl Download {
    /// The next piece, or nothing at the end.
    ///
    /// # Errors
    /// When the connection breaks before the end.
    pub async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, Error> {
        self.response.chunk().await.map_err(|error| Error::lost(&self.base, error))
    }

    /// How long the body is, where the server says so.
    pub fn size_bytes(&self) -> Option<u64> {
        self.response.content_length()
    }
}

/// Whether an address is this machine, seen from this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

/// Whether an address given as text is this machine.
pub fn is_loopback_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| is_loopback(&url))
}
