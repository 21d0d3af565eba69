//! Plays a scenario in this process.

use super::conversation::Conversation;
use super::play::{Play, input_text, input_tokens, pieces, play};
use super::scenario::{Item, Pace, Scenario, error_body};
use crate::config::DialectName;
use crate::decoder::tool_input;
use crate::dialect;
use crate::model::{BlockPreview, CallContext, Model, StreamEvent, Written, check_history};
use async_trait::async_trait;
use std::sync::Arc;
use tenure_core::failure::{Class, Failure, Reply, classify, incomplete, plain};
use tenure_core::{Answer, AnswerBlock, BlockKind, Prompt};

/// A model that plays a scenario.
#[derive(Debug)]
pub struct ScriptModel {
    scenario: Arc<Scenario>,
    full_name: String,
}

impl ScriptModel {
    /// A model of this name that plays `scenario`.
    pub fn new(scenario: Arc<Scenario>, full_name: String) -> Self {
        Self { scenario, full_name }
    }

    async fn stream(
        &self,
        items: &[Item],
        request_id: &str,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Vec<AnswerBlock>, Failure> {
        on_event(StreamEvent::Started { request_id: Some(request_id.to_owned()) });
        let mut blocks: Vec<AnswerBlock> = Vec::new();
        for item in items {
            let index = blocks.len();
            let kind = match item {
                Item::Stall(Some(span)) => {
                    tokio::time::sleep(*span).await;
                    continue;
                }
                Item::Stall(None) => std::future::pending().await,
                Item::Cut(_) => {
                    return Err(incomplete("the stream ended before the answer was complete"));
                }
                Item::Error { kind, message } => {
                    return Err(classify(&Reply { status: 200, body: &error_body(kind, message), headers: &[] }));
                }
                Item::Think { text, pace } => {
                    on_event(StreamEvent::BlockStart { index, kind: BlockPreview::Thinking });
                    say(text, *pace, on_event, |text| StreamEvent::Thinking { index, text }).await;
                    BlockKind::Thinking { text: text.clone() }
                }
                Item::Say { text, pace } => {
                    on_event(StreamEvent::BlockStart { index, kind: BlockPreview::Text });
                    say(text, *pace, on_event, |text| StreamEvent::Text { index, text }).await;
                    BlockKind::Text { text: text.clone() }
                }
                Item::Call { name, input, pace } => {
                    let json = input_text(input);
                    on_event(StreamEvent::BlockStart { index, kind: BlockPreview::ToolUse { name: name.clone() } });
                    say(&json, *pace, on_event, |json| StreamEvent::InputDelta { index, json }).await;
                    BlockKind::ToolUse {
                        provider_id: format!("call_{index}"),
                        name: name.clone(),
                        input: tool_input(&json),
                    }
                }
            };
            on_event(StreamEvent::BlockStop { index });
            blocks.push(AnswerBlock { id: None, kind, raw: Vec::new() });
        }
        Ok(blocks)
    }
}

async fn say(
    text: &str,
    pace: Pace,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
    event: impl Fn(String) -> StreamEvent,
) {
    for piece in pieces(text, pace.pieces) {
        if !pace.delay.is_zero() {
            tokio::time::sleep(pace.delay).await;
        }
        on_event(event(piece));
    }
}

#[async_trait]
impl Model for ScriptModel {
    fn count(&self, prompt: &Prompt) -> Option<u64> {
        Some(input_tokens(&Conversation::of_prompt(prompt)))
    }

    /// Nothing goes over a wire here; it is written as Anthropic's dialect would be.
    fn written(&self, prompt: &Prompt) -> Option<Written> {
        let request = dialect::request(DialectName::Anthropic, "", prompt, &serde_json::Map::new())?;
        Some(Written { dialect: super::NAME.to_owned(), body: request.body })
    }

    async fn call(
        &self,
        prompt: &Prompt,
        context: &CallContext,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        check_history(prompt)?;
        let conversation = Conversation::of_prompt(prompt);
        match play(&self.scenario, &conversation, context.attempt) {
            Err(problem) => Err(plain(Class::Config, problem)),
            Ok(Play::Reply { status, headers, body }) => {
                let headers: Vec<(String, String)> = headers.into_iter().collect();
                Err(classify(&Reply { status, body: &body, headers: &headers }))
            }
            Ok(Play::Stream { items, stop, usage }) => {
                let request_id = format!("req_{}_{}", context.step, context.attempt);
                let blocks = self.stream(&items, &request_id, on_event).await?;
                Ok(Answer {
                    dialect: super::NAME.to_owned(),
                    model: self.full_name.clone(),
                    blocks,
                    stop,
                    usage,
                    request_id: Some(request_id),
                })
            }
        }
    }
}
