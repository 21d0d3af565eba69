//! The files of the workbench.

use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_api::error::Code;

/// A file as it was built.
pub(super) struct File {
    path: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/workbench.rs"));

/// The page that all addresses of pages give; what it shows depends on the address.
const PAGE: &str = "/index.html";

/// Nothing but what this server sends, no frames, no forms, no plug-ins. The hash is that of the one
/// style that the component library adds by itself; a test in a browser fails when it is another.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-38RhXrc7EdReTKsOm23ZPOCUgniTUUcjky8QOOrQx6o='; img-src 'self' data: blob:; \
     font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// What a build without Node shows instead.
const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tenure</title>\
     <h1>This build has no workbench</h1>\
     <p>It was built without Node.js. The API and the command line work all the same.</p>\
     <p>To have it: <code>cargo xtask web</code>, then build tenure again.</p></html>";

/// Whether this build has a workbench.
pub fn has_workbench() -> bool {
    find(PAGE).is_some()
}

/// The addresses of all files.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path)
}

/// Answers a request for a page or a file of the workbench.
pub(super) async fn respond(request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return ApiError::new(Code::MethodNotAllowed, "pages of the workbench are only read").into_response();
    }
    let path = request.uri().path();
    let mut response = match find(path).or_else(|| find(PAGE)) {
        Some(file) => send(file, request.headers()),
        None => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], MISSING).into_response(),
    };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if *request.method() == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

fn send(file: &'static File, asked: &HeaderMap) -> Response {
    let takes = |coding: &str| {
        let offered = asked.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // A coding with the weight 0 is refused; nobody who means it writes it otherwise.
        offered.split(',').any(|part| {
            let (name, weight) = part.split_once(';').unwrap_or((part, ""));
            name.trim().eq_ignore_ascii_case(coding) && weight.trim() != "q=0"
        })
    };
    let (bytes, coding) = match file {
        File { brotli: Some(bytes), .. } if takes("br") => (*bytes, Some("br")),
        File { gzip: Some(bytes), .. } if takes("gzip") => (*bytes, Some("gzip")),
        File { plain, .. } => (*plain, None),
    };
    // Names of assets change with their content; everything else is asked for again.
    let is_fixed = file.path.starts_with("/assets/");
    let tag = format!("\"{}\"", short_digest(file.plain));
    let kept = if is_fixed { "public, max-age=31536000, immutable" } else { "no-cache" };
    let is_known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Body::from(Bytes::from_static(bytes)).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(file.path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).expect("hexadecimal digits in quotes"));
    if let Some(coding) = coding.filter(|_| !is_known) {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    response
}

fn short_digest(bytes: &[u8]) -> String {
    crate::keys::sha256(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some(_) | None => "application/octet-stream",
    }
}
