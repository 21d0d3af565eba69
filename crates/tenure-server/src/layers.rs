//! What every request passes: its id, the guard against panics, the checks of who asks from where.

use crate::error::{ApiError, REQUEST_ID};
use crate::keys::Caller;
use crate::state::ServerState;
use crate::workbench;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tenure_api::error::Code;
use tenure_api::openapi::OPERATIONS;
use tenure_api::scope::Scope;

/// Headers that only a proxy adds.
const FORWARDED: [HeaderName; 5] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// Gives each reply the id of its request, and writes the bodies of errors.
pub(crate) async fn finish(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let id = format!("req_{:032x}", state.new_bits());
    let (method, path, started) = (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| ApiError::internal("a route panicked").into_response());
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let kept = response.headers().clone();
        response = error.render(&id);
        // Such as `allow` and `content-range`.
        for (name, value) in &kept {
            if name != header::CONTENT_LENGTH && name != header::CONTENT_TYPE {
                response.headers_mut().insert(name.clone(), value.clone());
            }
        }
    }
    let route = response.extensions_mut().remove::<Route>().map(|Route(path)| path).or(matched);
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    state.meters.request(method.as_str(), route, response.status().as_u16(), started.elapsed());
    tracing::debug!(request_id = id, %method, path, status = response.status().as_u16(), "answered");
    let id = HeaderValue::from_str(&id).expect("an id is letters and digits");
    response.headers_mut().insert(REQUEST_ID, id);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Checks under which name and from which page the server is called (hazards Z-07, Z-09).
pub(crate) async fn check_place(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    match place(&state, request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Checks the key, and tells the routes who calls (hazard Z-06).
pub(crate) async fn check_key(State(state): State<Arc<ServerState>>, mut request: Request, next: Next) -> Response {
    let caller = match who(&state, request.headers()).await {
        Ok(caller) => caller,
        Err(error) => return error.into_response(),
    };
    let route = request.extensions().get::<MatchedPath>().cloned();
    if let Some(path) = &route
        && let Err(error) = check_scope(&caller, request.method(), path.as_str())
    {
        return error.into_response();
    }
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    if let Some(path) = route {
        response.extensions_mut().insert(Route(path));
    }
    response
}

/// Who calls: by a key, or by the login of a browser.
async fn who(state: &ServerState, headers: &HeaderMap) -> Result<Caller, ApiError> {
    if let Some(key) = key(headers) {
        let caller = state.config.keys.find(key).cloned();
        return caller.ok_or_else(|| ApiError::new(Code::InvalidApiKey, "this key is not known here"));
    }
    let by_login = workbench::caller_of(state, headers).await;
    by_login.unwrap_or_else(|| Err(ApiError::new(Code::AuthenticationRequired, "this request has no key")))
}

/// The route that answered, for the count of requests; the outer router does not know it.
#[derive(Clone)]
struct Route(MatchedPath);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::internal("a route without its key check").into_response())
    }
}

/// Checks that a caller may use a route; the table of operations says what is needed. A route that
/// the table forgot needs the most. Methods that the path does not take are refused later.
fn check_scope(caller: &Caller, method: &Method, path: &str) -> Result<(), ApiError> {
    let of_path = || OPERATIONS.iter().filter(|operation| operation.path == path);
    let wanted = if *method == Method::HEAD { &Method::GET } else { method };
    let found = of_path().find(|operation| operation.method.eq_ignore_ascii_case(wanted.as_str()));
    match found {
        Some(operation) => caller.needs(operation.scope, operation.id),
        None if of_path().next().is_some() => Ok(()),
        None => caller.needs(Scope::Person, path),
    }
}

fn key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || {
        let (scheme, key) = text("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    };
    text("x-api-key").or_else(bearer).filter(|key| !key.is_empty())
}

fn place(state: &ServerState, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let config = &state.config;
    if !config.is_behind_proxy && FORWARDED.iter().any(|name| headers.contains_key(name)) {
        return Err(ApiError::new(
            Code::HostNotAllowed,
            "this request came through a proxy, and the server is not configured to stand behind one",
        ));
    }
    let host = match headers.get(header::HOST) {
        Some(host) => host.to_str().ok().map(str::to_owned),
        None => uri.authority().map(ToString::to_string),
    };
    let Some(host) = host.filter(|host| is_known(state, host)) else {
        return Err(ApiError::new(Code::HostNotAllowed, "the server is not known under this host name"));
    };
    let refused = || Err(ApiError::new(Code::OriginNotAllowed, "pages of another origin may not call this server"));
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        let is_own = authority.eq_ignore_ascii_case(&host)
            || origin.eq_ignore_ascii_case(config.public_url.trim_end_matches('/'));
        if authority.is_empty() || !is_own {
            return refused();
        }
    }
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    match site {
        Some("cross-site" | "same-site") if changes => refused(),
        _ => Ok(()),
    }
}

/// Whether a host, with or without a port, is a name of this server.
fn is_known(state: &ServerState, host: &str) -> bool {
    let name = host_name(host);
    let public = state.config.public_url.split_once("://").map_or("", |(_, rest)| rest);
    let public = host_name(public.split('/').next().unwrap_or_default());
    let is = |other: &str| !other.is_empty() && name.eq_ignore_ascii_case(other);
    is("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || name == "[::1]"
        || is(public)
        || state.config.allowed_hosts.iter().any(|other| is(host_name(other)))
}

fn host_name(host: &str) -> &str {
    if host.starts_with('[') {
        return host.find(']').map_or(host, |end| &host[..=end]);
    }
    host.split(':').next().unwrap_or_default()
}
