//! Logins of browsers (hazards Z-06, Z-08, Z-09).
//!
//! A link with a code that works once is printed at the start, or made by somebody who has a key.
//! The page exchanges the code for two halves of a login:
//! - a cookie that no script reads (`HttpOnly`, `SameSite=Strict`);
//! - a page key that the page keeps for its own origin, and sends as a header.
//!
//! Both are needed. Cookies ignore ports, so the agent's own web server on another port of the same
//! host receives the cookie; it never sees the page key, which belongs to the origin with its port.
//! A script that got at the page key has no cookie. And because a header is needed, no link, image,
//! form or script of any page is a request with rights.
//!
//! Nothing is stored: both halves are codes under the key of the installation, so that a login
//! outlives a restart of the server and holds at each server of an installation. It names the digest
//! of an API key: a key that is taken away takes its logins along.

use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::JsonBody;
use crate::state::ServerState;
use aws_lc_rs::{constant_time, hmac};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_api::error::Code;
use tenure_api::time;
use tenure_core::Timestamp;
use tokio::time::Instant;

/// The header of the page's half.
pub(super) const PAGE_KEY_HEADER: &str = "x-tenure-page";

/// How long a link may wait to be used.
const LINK_LIVES: Duration = Duration::from_secs(60 * 60);

/// Most links that wait; the oldest one gives way.
const MAX_LINKS: usize = 64;

/// How long a login lasts.
const LOGIN_SECONDS: i64 = 30 * 24 * 60 * 60;

/// Links that nobody has used yet, by the digest of their code.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    links: Mutex<BTreeMap<[u8; 32], Link>>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    key: [u8; 32],
    until: Instant,
}

impl Logins {
    /// A code for the holder of a key, known by its digest.
    fn issue(&self, code: &str, key: [u8; 32]) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        links.retain(|_, link| link.until > now);
        let oldest = links.iter().min_by_key(|(_, link)| link.until).map(|(code, _)| *code);
        if let Some(oldest) = oldest.filter(|_| links.len() >= MAX_LINKS) {
            links.remove(&oldest);
        }
        links.insert(crate::keys::sha256(code.as_bytes()), Link { key, until: now + LINK_LIVES });
    }

    /// Takes a code; a second time there is nothing.
    fn take(&self, code: &str) -> Option<[u8; 32]> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.remove(&crate::keys::sha256(code.as_bytes()))?;
        (link.until > Instant::now()).then_some(link.key)
    }
}

impl ServerState {
    /// A link that opens the workbench once, for the holder of a key; `None` for a key that is not
    /// valid here.
    pub fn login_link(&self, key: &str) -> Option<String> {
        self.config.keys.find(key)?;
        Some(self.link_for(crate::keys::sha256(key.as_bytes())))
    }

    fn link_for(&self, digest: [u8; 32]) -> String {
        let code = hex(&random());
        self.logins.issue(&code, digest);
        // Behind the sign #, which browsers send to nobody and servers do not log.
        format!("{}/#login={code}", self.config.public_url.trim_end_matches('/'))
    }
}

/// `POST /v1/logins`: another link for the holder of the key that asks.
pub(crate) async fn link(State(state): State<Arc<ServerState>>, caller: Caller) -> Result<Json<Value>> {
    let digest = state.config.keys.digest_of(&caller);
    let digest = digest.ok_or_else(|| ApiError::internal("a caller without a key"))?;
    Ok(Json(json!({
        "type": "login_link", "url": state.link_for(digest), "expires_in_seconds": LINK_LIVES.as_secs(),
    })))
}

/// `GET /v1/whoami`: what the caller may do.
pub(crate) async fn whoami(State(state): State<Arc<ServerState>>, caller: Caller) -> Result<Json<Value>> {
    Ok(Json(json!({
        "type": "caller", "key_name": caller.key_name, "tenant": caller.tenant.0, "scope": caller.scope.name(),
        "server_version": env!("CARGO_PKG_VERSION"), "now": time::write(state.store().now().await?),
    })))
}

/// `POST /workbench/login` with a code of a link, or with a key.
pub(super) async fn enter(
    State(state): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response> {
    let fields = body.fields()?;
    let (code, key) = (fields.text("code", 128)?, fields.text("key", 512)?);
    let digest = match (code, key) {
        (Some(code), None) => state.logins.take(&code).ok_or_else(|| {
            ApiError::new(Code::LoginLinkUsed, "this link was used already, or it waited for more than an hour")
        })?,
        (None, Some(key)) => {
            state
                .config
                .keys
                .find(key.trim())
                .ok_or_else(|| ApiError::new(Code::InvalidApiKey, "this key is not known here"))?;
            crate::keys::sha256(key.trim().as_bytes())
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiError::new(Code::MissingField, "give either the code of a link or a key"));
        }
    };
    let now = state.store().now().await?;
    let until = now.0 / 1_000 + LOGIN_SECONDS;
    let login = format!("{}.{until}.{}", hex(&digest), hex(&random()));
    let cookie = format!(
        "{}={login}.{}; Path=/v1; HttpOnly; SameSite=Strict; Max-Age={LOGIN_SECONDS}{}",
        cookie_name(&state),
        sign(&state, "cookie", &login),
        secure(&state, &headers)
    );
    let body = json!({
        "type": "login", "page_key": sign(&state, "page", &login), "expires_at": time::write(Timestamp(until * 1_000)),
    });
    Ok((with_cookie(&cookie), Json(body)).into_response())
}

/// `POST /workbench/logout`: forgets the cookie.
pub(super) async fn leave(State(state): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    let cookie =
        format!("{}=; Path=/v1; HttpOnly; SameSite=Strict; Max-Age=0{}", cookie_name(&state), secure(&state, &headers));
    (with_cookie(&cookie), Json(json!({"type": "logout"}))).into_response()
}

/// Who calls with a login; `None` if the request has none.
pub(crate) async fn caller_of(state: &ServerState, headers: &HeaderMap) -> Option<Result<Caller>> {
    let page_key = headers.get(PAGE_KEY_HEADER)?.to_str().ok()?;
    let name = cookie_name(state);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = cookies.flat_map(|line| line.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    });
    let ended = |why: &str| Some(Err(ApiError::new(Code::LoginExpired, format!("the login of this browser {why}"))));
    let Some((login, signature)) = cookie.and_then(|cookie| cookie.rsplit_once('.')) else {
        return ended("is gone");
    };
    let is = |what: &str, given: &str| {
        constant_time::verify_slices_are_equal(sign(state, what, login).as_bytes(), given.as_bytes()).is_ok()
    };
    if !is("cookie", signature) || !is("page", page_key) {
        return ended("is not one of this server");
    }
    let mut parts = login.split('.');
    let (digest, until) = (parts.next().unwrap_or_default(), parts.next().and_then(|until| until.parse::<i64>().ok()));
    let now = match state.store().now().await {
        Ok(now) => now,
        Err(error) => return Some(Err(error.into())),
    };
    if until.is_none_or(|until| now.0 / 1_000 >= until) {
        return ended("has expired");
    }
    match state.config.keys.by_digest(digest) {
        Some(caller) => Some(Ok(caller.clone())),
        None => ended("belongs to a key that is no longer valid"),
    }
}

/// Cookies of one host are shared by all its ports: each installation has a name of its own.
fn cookie_name(state: &ServerState) -> String {
    format!("tenure_{}", &sign(state, "name", "")[..8])
}

fn secure(state: &ServerState, headers: &HeaderMap) -> &'static str {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if state.config.public_url == format!("https://{host}") { "; Secure" } else { "" }
}

fn with_cookie(cookie: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::SET_COOKIE, HeaderValue::from_str(cookie).expect("letters, digits and signs"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
}

fn sign(state: &ServerState, what: &str, login: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &state.config.installation_key);
    hex(hmac::sign(&key, format!("workbench {what} {login}").as_bytes()).as_ref())
}

fn random() -> [u8; 16] {
    rand::random()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
