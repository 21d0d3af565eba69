//! The dialects that speak HTTP: what is sent, and who reads what comes back.

use crate::config::DialectName;
use crate::decoder::Decoder;
use crate::{anthropic, openai};
use tenure_core::Prompt;

/// A request, without what must stay secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Where it goes.
    pub url: String,
    /// Headers of the dialect.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The header that carries the key, and what stands before the key in it.
    pub key_header: (&'static str, &'static str),
    /// Strict JSON.
    pub body: Vec<u8>,
}

/// Writes the request for a prompt; `None` for dialects without HTTP.
pub fn request(
    dialect: DialectName,
    base_url: &str,
    prompt: &Prompt,
    extra_body: &serde_json::Map<String, serde_json::Value>,
) -> Option<HttpRequest> {
    match dialect {
        DialectName::Anthropic => Some(anthropic::request::request(base_url, prompt, extra_body)),
        DialectName::OpenAi => Some(openai::request::request(base_url, prompt, extra_body)),
        DialectName::Script => None,
    }
}

/// The reader of a streamed answer of `model` (`provider/model`); `None` for dialects without HTTP.
pub fn decoder(dialect: DialectName, model: &str) -> Option<Box<dyn Decoder>> {
    match dialect {
        DialectName::Anthropic => Some(Box::new(anthropic::decoder::decoder(model))),
        DialectName::OpenAi => Some(Box::new(openai::decoder::decoder(model))),
        DialectName::Script => None,
    }
}

/// Adds the operator's own fields; they win over ours.
pub(crate) fn add_extra(
    body: &mut serde_json::Map<String, serde_json::Value>,
    extra_body: &serde_json::Map<String, serde_json::Value>,
) {
    for (name, value) in extra_body {
        body.insert(name.clone(), value.clone());
    }
}
