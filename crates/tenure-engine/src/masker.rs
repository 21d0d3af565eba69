//! Masks secrets that tenure holds in everything that goes into a log (promise P18).

use tenure_core::redact::Masker;
use tenure_core::{Block, Body, Compacted, Decision, Json, ModelChoice, Origin, Summary, Update};

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

    /// What is masked, if anything is.
    pub(crate) fn forms(&self) -> Option<&Masker> {
        self.masker.as_ref()
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
    /// The verbatim block of a piece of reasoning stays as it is: it is signed, and a changed one is
    /// refused (promise P4). It is sent to the model that it came from and never shown.
    pub(crate) fn body(&self, body: Body) -> Body {
        if self.masker.is_none() {
            return body;
        }
        match body {
            Body::UserMessage { content } => Body::UserMessage { content: self.blocks(content) },
            Body::SystemMessage { content } => Body::SystemMessage { content: self.blocks(content) },
            Body::UserToolConfirmation { tool_use_id, decision } => {
                let decision = match decision {
                    Decision::Allow => Decision::Allow,
                    Decision::Deny { message } => Decision::Deny { message: message.map(|text| self.text(text)) },
                };
                Body::UserToolConfirmation { tool_use_id, decision }
            }
            Body::UserCustomToolResult { tool_use_id, content, is_error } => {
                Body::UserCustomToolResult { tool_use_id, content: self.blocks(content), is_error }
            }
            Body::AgentMessage { text, origin } => {
                Body::AgentMessage { text: self.text(text), origin: self.origin(origin) }
            }
            Body::AgentThinking { text, origin } => {
                Body::AgentThinking { text: self.text(text), origin: self.origin(origin) }
            }
            Body::AgentToolResult { tool_use_id, content, outcome } => {
                Body::AgentToolResult { tool_use_id, content: self.blocks(content), outcome }
            }
            Body::AgentToolUse { name, input, kind, effect, permission, malformed, origin } => Body::AgentToolUse {
                name: self.text(name),
                input: self.json(input),
                kind,
                effect,
                permission,
                malformed: malformed.map(|text| self.text(text)),
                origin: self.origin(origin),
            },
            Body::AgentCustomToolUse { name, input, kind, origin } => Body::AgentCustomToolUse {
                name: self.text(name),
                input: self.json(input),
                kind,
                origin: self.origin(origin),
            },
            Body::Error { class, message, retrying, request_id, limit } => {
                Body::Error { class, message: self.text(message), retrying, request_id, limit }
            }
            Body::ContextCompacted { compacted } => {
                let summary = compacted.summary.map(|summary| Summary {
                    text: self.text(summary.text),
                    instructions: self.blocks(summary.instructions),
                    request: self.blocks(summary.request),
                });
                Body::ContextCompacted { compacted: Compacted { summary, ..compacted } }
            }
            Body::Condition { condition, class, model, message } => {
                Body::Condition { condition, class, model, message: self.text(message) }
            }
            Body::CallbackCreated { callback, label, expires_at } => {
                Body::CallbackCreated { callback, label: self.text(label), expires_at }
            }
            Body::CallbackReceived { callback, body } => Body::CallbackReceived { callback, body: self.text(body) },
            Body::Updated { update: Update::Title(title) } => Body::Updated { update: Update::Title(self.text(title)) },
            Body::Updated { update: Update::Models(choice) } => {
                let names = |names: Vec<String>| names.into_iter().map(|name| self.text(name)).collect();
                let choice = ModelChoice {
                    model: choice.model.map(|name| self.text(name)),
                    fallback_models: choice.fallback_models.map(names),
                };
                Body::Updated { update: Update::Models(choice) }
            }
            Body::Updated { update: Update::Metadata(notes) } => {
                let notes = notes.into_iter().map(|(key, note)| (self.text(key), self.text(note))).collect();
                Body::Updated { update: Update::Metadata(notes) }
            }
            Body::EnvironmentStarted { driver, missing, epoch } => {
                let missing = missing.into_iter().map(|line| self.text(line)).collect();
                Body::EnvironmentStarted { driver, missing, epoch }
            }
            Body::EnvironmentReset { reason, snapshot } => {
                Body::EnvironmentReset { reason: self.text(reason), snapshot }
            }
            // Words, numbers and ids of our own.
            body @ (Body::UserInterrupt
            | Body::Forked { .. }
            | Body::SnapshotCreated { .. }
            | Body::ToolStarted { .. }
            | Body::StatusRunning
            | Body::StatusIdle { .. }
            | Body::StatusRescheduled
            | Body::StatusTerminated { .. }
            | Body::SpanStart { .. }
            | Body::SpanEnd { .. }
            | Body::WaitStarted { .. }
            | Body::WaitResolved { .. }
            | Body::BudgetUpdated { .. }
            | Body::UsageSnapshot { .. }
            | Body::Updated { update: Update::Paused | Update::Resumed }) => body,
        }
    }

    /// The provider's verbatim blocks. One that cannot be masked and stay JSON is left out: the
    /// request is then made from the event itself.
    fn origin(&self, origin: Origin) -> Origin {
        let Origin { dialect, model, blocks } = origin;
        let blocks: Option<Vec<Json>> = blocks.into_iter().map(|block| self.verbatim(block)).collect();
        Origin { dialect, model, blocks: blocks.unwrap_or_default() }
    }

    fn verbatim(&self, block: Json) -> Option<Json> {
        let is_signed = matches!(
            block.to_value().get("type").and_then(|kind| kind.as_str()),
            Some("thinking" | "redacted_thinking")
        );
        if is_signed {
            return Some(block);
        }
        let masked = self.text(block.as_str().to_owned());
        if masked == block.as_str() { Some(block) } else { Json::parse(&masked).ok() }
    }

    fn blocks(&self, blocks: Vec<Block>) -> Vec<Block> {
        let mask = |block| match block {
            Block::Text(text) => Block::Text(self.text(text)),
            media @ Block::Media { .. } => media,
        };
        blocks.into_iter().map(mask).collect()
    }

    fn json(&self, json: Json) -> Json {
        let masked = self.text(json.as_str().to_owned());
        if masked == json.as_str() {
            return json;
        }
        // The mask is plain text, so what was JSON stays JSON; if ever not, nothing is shown of it.
        Json::parse(&masked).unwrap_or(Json::object())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    const SECRET: &str = "sk-very-secret-0123456789";

    #[test]
    fn o_088_the_verbatim_blocks_of_an_answer_hold_no_secret_and_signed_ones_stay() {
        let masker = EventMasker::new(&[SECRET.to_owned()]);
        let block = |text: &str| Json::parse(text).unwrap();
        let call = block(&format!(r#"{{"type":"tool_use","id":"t","name":"bash","input":{{"command":"{SECRET}"}}}}"#));
        let thinking = block(&format!(r#"{{"type":"thinking","thinking":"the key is {SECRET}","signature":"s"}}"#));
        let origin = |blocks: &[&Json]| Origin {
            dialect: "anthropic".into(),
            model: "a/m".into(),
            blocks: blocks.iter().map(|block| (*block).clone()).collect(),
        };
        let said = masker.body(Body::AgentMessage { text: format!("it is {SECRET}"), origin: origin(&[&call]) });
        let Body::AgentMessage { text, origin: masked } = said else { panic!("another body") };
        assert!(!text.contains(SECRET));
        assert!(!masked.blocks[0].as_str().contains(SECRET), "{:?}", masked.blocks);
        assert_eq!(masked.blocks[0].to_value()["name"], "bash", "still the same call");
        let thought = masker.body(Body::AgentThinking { text: SECRET.into(), origin: origin(&[&thinking]) });
        let Body::AgentThinking { text, origin: kept } = thought else { panic!("another body") };
        assert!(!text.contains(SECRET), "what is shown is masked");
        assert_eq!(kept.blocks, [thinking], "what is signed is not touched");
    }
}
