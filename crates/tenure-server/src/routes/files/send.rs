//! Downloads that a browser neither shows nor runs.

use crate::error::{ApiError, Result};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use tenure_api::error::Code;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

/// What a browser wants a reply for, if it would show or run it.
const SHOWN_OR_RUN: [&str; 14] = [
    "document",
    "iframe",
    "frame",
    "embed",
    "object",
    "script",
    "worker",
    "sharedworker",
    "serviceworker",
    "audioworklet",
    "paintworklet",
    "style",
    "xslt",
    "manifest",
];

/// Refuses requests of a browser that would show or run a file.
pub(crate) fn check_destination(headers: &HeaderMap) -> Result<()> {
    let destination = headers.get("sec-fetch-dest").and_then(|destination| destination.to_str().ok());
    let is_worker = headers.contains_key("service-worker");
    match destination {
        Some(destination) if SHOWN_OR_RUN.contains(&destination) => Err(ApiError::new(
            Code::DestinationNotAllowed,
            format!("files of a session are not loaded as {destination}"),
        )),
        _ if is_worker => {
            Err(ApiError::new(Code::DestinationNotAllowed, "files of a session are not loaded as workers"))
        }
        _ => Ok(()),
    }
}

/// A whole body as a download.
pub(super) fn download(body: Body, kind: &'static str, name: &[u8]) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let disposition = format!("attachment; filename*=UTF-8''{}", percent(name));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_str(&disposition).expect("percent-encoded"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// A file, or the part of it that the request asks for.
pub(crate) fn send_file(mut file: File, size: u64, tag: &str, name: &[u8], headers: &HeaderMap) -> Result<Response> {
    send_part(size, tag, name, headers, |start, len| {
        file.seek(SeekFrom::Start(start)).map_err(ApiError::internal)?;
        Ok(Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file).take(len))))
    })
}

/// Some content, or the part of it that the request asks for; `give` is asked for the part.
pub(crate) fn send_part(
    size: u64,
    tag: &str,
    name: &[u8],
    headers: &HeaderMap,
    give: impl FnOnce(u64, u64) -> Result<Body>,
) -> Result<Response> {
    let etag = format!("\"{tag}\"");
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_known = text(header::IF_NONE_MATCH)
        .is_some_and(|known| known.split(',').any(|known| known.trim() == etag || known.trim() == "*"));
    let tag = HeaderValue::from_str(&etag).map_err(ApiError::internal)?;
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    // A part of another version would not fit to what the client has.
    let is_current = text(header::IF_RANGE).is_none_or(|known| known == etag);
    let range = text(header::RANGE).filter(|_| is_current).and_then(|range| read_range(range, size));
    let (start, len) = match range {
        None => (0, size),
        Some(Ok((start, len))) => (start, len),
        Some(Err(())) => {
            let error = ApiError::new(Code::RangeNotSatisfiable, format!("the file has {size} bytes"));
            let mut response = error.into_response();
            response
                .headers_mut()
                .insert(header::CONTENT_RANGE, HeaderValue::from_str(&format!("bytes */{size}")).expect("digits"));
            return Ok(response);
        }
    };
    let mut response = download(give(start, len)?, "application/octet-stream", name);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::ETAG, tag);
    if range.is_some() {
        let part = format!("bytes {start}-{}/{size}", start + len - 1);
        headers.insert(header::CONTENT_RANGE, HeaderValue::from_str(&part).expect("digits"));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// Start and length of one range; `None` for what is no single range of bytes, which is ignored.
fn read_range(range: &str, size: u64) -> Option<Result<(u64, u64), ()>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    // `parse` would also take a plus sign.
    if !first.bytes().chain(last.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if first.is_empty() {
        let count: u64 = last.parse().ok()?;
        let start = size.saturating_sub(count);
        return Some(if count == 0 || size == 0 { Err(()) } else { Ok((start, size - start)) });
    }
    let first: u64 = first.parse().ok()?;
    let last: u64 = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
    if last < first {
        return None;
    }
    if first >= size {
        return Some(Err(()));
    }
    Some(Ok((first, last.min(size - 1) - first + 1)))
}

/// Percent-encodes all but the plainest bytes.
pub(super) fn percent(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file_and_nonsense_is_ignored() {
        for (range, expected) in [
            ("bytes=0-3", Some(Ok((0, 4)))),
            ("bytes=4-", Some(Ok((4, 6)))),
            ("bytes=-3", Some(Ok((7, 3)))),
            ("bytes=-99", Some(Ok((0, 10)))),
            ("bytes=9-99", Some(Ok((9, 1)))),
            ("bytes=10-", Some(Err(()))),
            ("bytes=-0", Some(Err(()))),
            ("bytes=3-2", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("lines=0-1", None),
            ("bytes=0-1,3-4", None),
        ] {
            assert_eq!(read_range(range, 10), expected, "{range}");
        }
        assert_eq!(read_range("bytes=0-", 0), Some(Err(())));
    }
}
