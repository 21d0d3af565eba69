//! Reads bodies and queries of requests within their bounds.

use crate::error::{ApiError, Result};
use crate::keys::{Caller, sha256};
use crate::serve::Limits;
use axum::body::BodyDataStream;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use tenure_api::error::Code;
use tenure_api::fields::{Fields, Problem};
use tenure_core::Timestamp;
use tenure_core::{Json, MAX_JSON_DEPTH};
use tenure_store::Idempotency;
use tokio::time::Instant;

/// Largest body of a request that is read whole.
pub(crate) const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// Least bytes in a second, over a whole body: a byte now and then does not keep a request open.
const BODY_BYTES_PER_SECOND: u64 = 1024;

/// Longest Idempotency-Key.
const MAX_IDEMPOTENCY_KEY: usize = 255;

/// A body of JSON with what makes the request safe to repeat.
pub(crate) struct JsonBody {
    text: String,
    value: Value,
    idempotency: Option<(String, String, [u8; 32])>,
}

impl JsonBody {
    /// The fields of the body.
    pub(crate) fn fields(&self) -> Result<Fields<'_>, Problem> {
        Fields::root(&self.value)
    }

    /// Names what was sent.
    pub(crate) fn digest(&self) -> [u8; 32] {
        sha256(self.text.as_bytes())
    }

    /// The same body with known secrets taken out, for what is going to be stored.
    pub(crate) fn masked(mut self, mask: &dyn Fn(&str) -> String) -> Self {
        let masked = mask(&self.text);
        if masked != self.text
            && let Ok(json) = Json::parse(&masked)
        {
            self.value = json.to_value();
        }
        self
    }

    /// The key of a request that may be repeated; means nothing for another caller or route
    /// (hazard Z-18).
    pub(crate) fn idempotency(&self, caller: &Caller) -> Option<Idempotency> {
        self.idempotency.as_ref().map(|(route, key, digest)| Idempotency {
            scope: format!("{} {route}", caller.key_name),
            key: key.clone(),
            body_digest: *digest,
        })
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        let route = format!("{} {}", request.method(), request.uri().path());
        let key = idempotency_key(request.headers())?;
        let bytes = Arriving::from_request(request, state).await?.whole(MAX_BODY_BYTES).await?;
        let digest = sha256(&bytes);
        // A control such as pause needs no body.
        let text = if bytes.is_empty() { "{}".to_owned() } else { utf8(bytes)? };
        let json = Json::parse(&text).map_err(|error| {
            let code = if error.0.starts_with("nested deeper") { Code::JsonTooDeep } else { Code::InvalidJson };
            ApiError::new(
                code,
                format!("the body is not JSON that is taken here: {error} (nesting is limited to {MAX_JSON_DEPTH})"),
            )
        })?;
        Ok(Self { value: json.to_value(), text, idempotency: key.map(|key| (route, key, digest)) })
    }
}

fn utf8(bytes: Bytes) -> Result<String> {
    String::from_utf8(bytes.into()).map_err(|error| {
        ApiError::new(Code::InvalidJson, format!("the body is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
    })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= MAX_IDEMPOTENCY_KEY);
    match key {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(ApiError::new(
            Code::InvalidHeader,
            format!("Idempotency-Key: 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters"),
        )),
    }
}

/// A body whose chunks must keep coming (case O-091).
pub(crate) struct Arriving {
    stream: BodyDataStream,
    /// Its length, if it is said.
    said: Option<u64>,
    pause: Duration,
    /// Time that was spent on waiting for the client; our own work does not count.
    waited: Duration,
    received: u64,
}

impl<S: Send + Sync> FromRequest<S> for Arriving {
    type Rejection = ApiError;

    /// Refuses bodies that are encoded: nothing here decodes them, so none can explode (hazard Z-42).
    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
        if !parts.headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
            return Err(ApiError::new(
                Code::InvalidHeader,
                "Content-Encoding: bodies are taken as they are, not compressed",
            ));
        }
        let said = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let pause = parts.extensions.get::<Limits>().copied().unwrap_or_default().bodies;
        Ok(Self { stream: body.into_data_stream(), said, pause, waited: Duration::ZERO, received: 0 })
    }
}

impl Arriving {
    /// Refuses a body that is too large before it is read, if its length is said.
    pub(crate) fn at_most(self, max: u64) -> Result<Self> {
        if self.said.is_some_and(|said| said > max) { Err(too_large(max)) } else { Ok(self) }
    }

    /// The next chunk; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        let credit = self.pause + Duration::from_secs(self.received / BODY_BYTES_PER_SECOND);
        let within = self.pause.min(credit.saturating_sub(self.waited));
        let began = Instant::now();
        let chunk = tokio::time::timeout(within, self.stream.next()).await;
        self.waited += began.elapsed();
        match chunk {
            Err(_) => Err(ApiError::new(Code::BodyTimeout, "the body did not arrive in time")),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(ApiError::new(Code::BodyTimeout, format!("the body broke off: {error}"))),
            Ok(Some(Ok(chunk))) => {
                self.received += chunk.len() as u64;
                Ok(Some(chunk))
            }
        }
    }

    /// The whole body.
    pub(crate) async fn whole(self, max: usize) -> Result<Bytes> {
        let (mut body, mut bytes) = (self.at_most(max as u64)?, BytesMut::new());
        while let Some(chunk) = body.next().await? {
            if bytes.len() + chunk.len() > max {
                return Err(too_large(max as u64));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

fn too_large(max: u64) -> ApiError {
    ApiError::new(Code::RequestTooLarge, format!("the body is larger than {max} bytes"))
}

/// Names in the path of a request. One that is no text belongs to nothing.
#[derive(Clone, Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let names = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        names
            .map(|axum::extract::Path(names)| Self(names))
            .map_err(|_| ApiError::new(Code::RouteNotFound, "the path is not UTF-8 where it names something"))
    }
}

/// The query of a request. Parameters that nobody asks for are ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    /// Values are bytes: paths need not be text.
    pairs: Vec<(String, Vec<u8>)>,
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    fn parse(query: &str) -> Result<Self> {
        let wrong = || ApiError::new(Code::InvalidQuery, "the query is not UTF-8");
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (String::from_utf8(decode(name)).map_err(|_| wrong())?, decode(value));
            let is_name = name == "path" || name == "after";
            if !is_name && std::str::from_utf8(&value).is_err() {
                return Err(wrong());
            }
            Ok((name, value))
        });
        Ok(Self { pairs: pairs.collect::<Result<_>>()? })
    }

    /// The value of a parameter; the last one counts.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.bytes(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The value of a parameter that need not be text.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
    }

    /// All values of a parameter, with or without brackets after its name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let is = |key: &str| key == name || key.strip_suffix("[]") == Some(name);
        self.pairs.iter().filter(|(key, _)| is(key)).filter_map(|(_, value)| std::str::from_utf8(value).ok()).collect()
    }

    /// A number within bounds.
    pub(crate) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.parse::<u64>() {
            Ok(number) if number >= least => Ok(Some(number.min(most))),
            _ => Err(ApiError::new(
                Code::InvalidQuery,
                format!("{name}: expected a whole number from {least}, found {text:?}"),
            )),
        }
    }

    /// true or false.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => {
                Err(ApiError::new(Code::InvalidQuery, format!("{name}: expected true or false, found {text:?}")))
            }
        }
    }

    /// A time.
    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let at = tenure_api::time::read(text);
        at.map(Some).ok_or_else(|| {
            ApiError::new(
                Code::InvalidQuery,
                format!("{name}: expected a time as in 2026-11-30T02:31:10Z, found {text:?}"),
            )
        })
    }
}

/// A range of times, as `created_at[gt|gte|lt|lte]` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    after: Option<Timestamp>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Created {
    /// The range that a request asks for.
    pub(crate) fn read(query: &Query) -> Result<Self> {
        Ok(Self {
            after: query.time("created_at[gt]")?,
            from: query.time("created_at[gte]")?,
            before: query.time("created_at[lt]")?,
            until: query.time("created_at[lte]")?,
        })
    }

    /// Whether it leaves nothing out.
    pub(crate) fn is_all(&self) -> bool {
        [self.after, self.from, self.before, self.until].iter().all(Option::is_none)
    }

    /// Whether a time lies in it.
    pub(crate) fn takes(&self, at: Timestamp) -> bool {
        self.after.is_none_or(|after| at > after)
            && self.from.is_none_or(|from| at >= from)
            && self.before.is_none_or(|before| at < before)
            && self.until.is_none_or(|until| at <= until)
    }

    /// The first time in it.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.from.into_iter().chain(beyond(self.after)).max()
    }

    /// The first time after it.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        self.before.into_iter().chain(beyond(self.until)).min()
    }
}

fn beyond(at: Option<Timestamp>) -> Option<Timestamp> {
    at.map(|at| Timestamp(at.0.saturating_add(1)))
}

fn decode(text: &str) -> Vec<u8> {
    let (mut out, bytes, mut at) = (Vec::with_capacity(text.len()), text.as_bytes(), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))) {
            (b'%', Some(hex)) => {
                out.push(u8::from_str_radix(hex, 16).expect("two hexadecimal digits"));
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_lists_may_have_brackets() {
        let query = Query::parse("types%5B%5D=agent.message&types[]=b+c&limit=5&x=%zz&page=%C3%BC").expect("valid");
        assert_eq!(query.all("types"), ["agent.message", "b c"]);
        assert_eq!(query.number("limit", 1, 3).expect("valid"), Some(3));
        assert_eq!((query.get("x"), query.get("page"), query.get("none")), (Some("%zz"), Some("ü"), None));
        assert!(Query::parse("a=%ff").is_err());
        assert!(Query::parse("limit=0").and_then(|query| query.number("limit", 1, 3)).is_err());
    }
}
