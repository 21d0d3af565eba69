//! The dialects that speak HTTP: what is sent, and who reads what comes back.

use crate::config::DialectName;
use crate::decoder::Decoder;
use crate::{anthropic, gemini, ollama, openai, responses};
use serde_json::{Map, Value};
use tenure_core::Prompt;

/// Stands for an answer of which nothing may go to this model.
pub(crate) const NOTHING: &str = "(no text)";

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
    extra_body: &Map<String, Value>,
) -> Option<HttpRequest> {
    match dialect {
        DialectName::Anthropic => Some(anthropic::request::request(base_url, prompt, extra_body)),
        DialectName::OpenAi => Some(openai::request::request(base_url, prompt, extra_body)),
        DialectName::Responses => Some(responses::request::request(base_url, prompt, extra_body)),
        DialectName::Gemini => Some(gemini::request::request(base_url, prompt, extra_body)),
        DialectName::Ollama => Some(ollama::request::request(base_url, prompt, extra_body)),
        DialectName::Script => None,
    }
}

/// The reader of a streamed answer of `model` (`provider/model`); `None` for dialects without HTTP.
pub fn decoder(dialect: DialectName, model: &str) -> Option<Box<dyn Decoder>> {
    match dialect {
        DialectName::Anthropic => Some(Box::new(anthropic::decoder::decoder(model))),
        DialectName::OpenAi => Some(Box::new(openai::decoder::decoder(model))),
        DialectName::Responses => Some(Box::new(responses::decoder::decoder(model))),
        DialectName::Gemini => Some(Box::new(gemini::decoder::decoder(model))),
        DialectName::Ollama => Some(Box::new(ollama::decoder::decoder(model))),
        DialectName::Script => None,
    }
}

/// Adds the operator's own fields; they win over ours. Objects such as `options` and
/// `generationConfig` are joined, so that one setting of the operator does not drop all of ours.
pub(crate) fn add_extra(body: &mut Map<String, Value>, extra_body: &Map<String, Value>) {
    for (name, value) in extra_body {
        match (body.get_mut(name), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => add_extra(ours, theirs),
            _ => {
                body.insert(name.clone(), value.clone());
            }
        }
    }
}
