//! Masks secrets that tenure holds in everything that goes into a log (promise P18).

use tenure_core::redact::Masker;
use tenure_core::{Block, Body, Json};

/// Masks the texts of events.
#[derive(Clone, Debug, Default)]
pub struct EventMasker {
    masker: Option<Masker>,
}

impl EventMasker {
    /// Masks these values; none masks nothing.
    pub fn new(secrets: &[String]) -> Self {
        let masker = (!secrets.is_empty()).then(|| Masker::new(secrets.iter().map(String::as_str)));
        Self { masker }
    }

    /// A text without known secrets.
    pub fn text(&self, text: String) -> String {
        match &self.masker {
            Some(masker) => masker.mask(&text).into_owned(),
            None => text,
        }
    }

    /// An event's body without known secrets.
    ///
    /// Reasoning blocks stay as they are: they are signed, and a changed one is refused (promise P4).
    pub(crate) fn body(&self, body: Body) -> Body {
        if self.masker.is_none() {
            return body;
        }
        match body {
            Body::AgentMessage { text, origin } => Body::AgentMessage { text: self.text(text), origin },
            Body::AgentToolResult { tool_use_id, content, outcome } => {
                Body::AgentToolResult { tool_use_id, content: self.blocks(content), outcome }
            }
            Body::AgentToolUse { name, input, kind, effect, permission, malformed, origin } => {
                let input = self.json(input);
                Body::AgentToolUse { name, input, kind, effect, permission, malformed, origin }
            }
            Body::AgentCustomToolUse { name, input, kind, origin } => {
                Body::AgentCustomToolUse { name, input: self.json(input), kind, origin }
            }
            Body::Error { class, message, retrying, request_id } => {
                Body::Error { class, message: self.text(message), retrying, request_id }
            }
            Body::CallbackReceived { callback, body } => Body::CallbackReceived { callback, body: self.text(body) },
            other => other,
        }
    }

    fn blocks(&self, blocks: Vec<Block>) -> Vec<Block> {
        let mask = |block| match block {
            Block::Text(text) => Block::Text(self.text(text)),
            media @ Block::Media { .. } => media,
        };
        blocks.into_iter().map(mask).collect()
    }

    fn json(&self, json: Json) -> Json {
        Json::parse(&self.text(json.as_str().to_owned())).unwrap_or(json)
    }
}
