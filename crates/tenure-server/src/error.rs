//! Errors of routes: a code of the table, words for the caller, and other words for the log.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tenure_api::error::{Code, ErrorBody, ErrorReply};
use tenure_api::fields::Problem;
use tenure_store::Kind;

/// Header with the id of a request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Seconds after which a busy store is asked again.
const BUSY_RETRY_SECONDS: u64 = 1;

/// Why a request got no success.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    code: Code,
    message: String,
    details: Option<Value>,
    retry_after_seconds: Option<u64>,
    /// For the log only.
    cause: Option<String>,
}

/// What routes give.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retry_after_seconds: None, cause: None }
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Values that matter.
    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// When to ask again.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Whether it has this code.
    pub(crate) fn is(&self, code: Code) -> bool {
        self.code == code
    }

    /// The same error under another code, if it has this one.
    pub(crate) fn instead(mut self, of: Code, code: Code) -> Self {
        if self.code == of {
            self.code = code;
        }
        self
    }

    /// An error that only the log may know about.
    pub(crate) fn internal(cause: impl std::fmt::Display) -> Self {
        let mut error = Self::new(Code::Internal, "the server failed to answer this request");
        error.cause = Some(cause.to_string());
        error
    }

    /// The whole reply.
    pub(crate) fn render(&self, request_id: &str) -> Response {
        if let Some(cause) = &self.cause {
            tracing::error!(request_id, code = self.code.name(), cause, "answer request");
        }
        let reply = ErrorReply {
            kind: "error".into(),
            error: ErrorBody {
                kind: self.code.kind().into(),
                message: self.message.clone(),
                code: Some(self.code.name().into()),
                hint: Some(self.code.hint().into()),
                docs: Some(self.code.docs()),
                details: self.details.clone(),
            },
            request_id: request_id.to_owned(),
        };
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(reply)).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The body is written by the outermost layer, which knows the request's id.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response =
            StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self::new(problem.code, problem.message)
    }
}

/// Where the route knows nothing better about an error of the store.
impl From<tenure_store::Error> for ApiError {
    fn from(error: tenure_store::Error) -> Self {
        let hidden = |code, message: &str| {
            let mut hidden = Self::new(code, message);
            hidden.cause = Some(error.to_string());
            hidden
        };
        match error.kind {
            Kind::Retry => Self::new(Code::StoreBusy, "the store is busy").retry_after(BUSY_RETRY_SECONDS),
            Kind::NotFound => Self::new(Code::SessionNotFound, error.message),
            Kind::Conflict => Self::new(Code::Conflict, error.message),
            Kind::IdempotencyMismatch => {
                Self::new(Code::IdempotencyMismatch, "this Idempotency-Key was used with another body before")
            }
            Kind::Full => Self::new(Code::InboxFull, error.message).retry_after(BUSY_RETRY_SECONDS),
            Kind::Invalid => Self::new(Code::InvalidField, error.message),
            Kind::NoSpace => hidden(Code::StorageFull, "the store has no space left; nothing was changed"),
            Kind::Corrupt => hidden(Code::CorruptRecord, "a stored record cannot be read"),
            Kind::Broken => hidden(Code::StoreBroken, "the store cannot be used"),
            Kind::Fenced => hidden(Code::Internal, "the server failed to answer this request"),
        }
    }
}
