//! Reads streamed answers of Gemini.
//!
//! ```text
//! (data: GenerateContentResponse)*      complete with a finishReason; the stream ends after it
//! ```
//! A signature goes back on the part that it came with, so signed parts are kept one by one; plain
//! pieces of text are joined. Parts that we do not know ride along with their neighbour.

use crate::decoder::{EventError, MAX_ANSWER_BLOCKS, OnEvent, Protocol, Sign, SseDecoder, tool_input_value};
use crate::model::{BlockPreview, StreamEvent};
use crate::reason::{Reason, reason};
use crate::sse::SseEvent;
use crate::verbatim::{is_nothing, kept};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tenure_core::failure::{Class, Failure, incomplete, plain};
use tenure_core::{Answer, AnswerBlock, AnswerStop, BlockKind, Json, Usage, clean_surrogates};

/// A reader for one answer of `model` (`provider/model`).
pub(crate) fn decoder(model: &str) -> SseDecoder<Parts> {
    SseDecoder::new(Parts { model: model.to_owned(), ..Parts::default() })
}

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    model: String,
    blocks: Vec<OpenBlock>,
    /// Parts without anything to see, before the first block.
    strays: Vec<Part>,
    stop: Option<AnswerStop>,
    usage: Usage,
    has_usage_at_end: bool,
}

#[derive(Debug)]
struct OpenBlock {
    kind: Kind,
    parts: Vec<Part>,
    /// The block is a call that says nothing but its name and arguments.
    is_plain_call: bool,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking,
    Call { id: String, name: String, input: Result<Json, String> },
}

/// A part as it goes back.
#[derive(Debug)]
enum Part {
    /// Text alone.
    Plain(String),
    /// Text with more, or something else, byte for byte.
    Kept { text: String, raw: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(default)]
    prompt_feedback: Value,
    #[serde(default)]
    usage_metadata: Value,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    finish_message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<&'a RawValue>>,
}

impl Protocol for Parts {
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<Sign, EventError> {
        if event.data.trim().is_empty() || event.data.trim() == "[DONE]" {
            return Ok(Sign::Life);
        }
        let data = clean_surrogates(&event.data);
        if event.name == "error" || data.trim_start().starts_with('[') {
            return Err(EventError::of_error(&data));
        }
        let chunk: Chunk<'_> = serde_json::from_str(&data).map_err(|error| EventError::unreadable(&error))?;
        if !is_nothing(&chunk.error) {
            return Err(EventError::of_error(&data));
        }
        let is_ended = self.stop.is_some();
        let has_usage = chunk.usage_metadata.is_object();
        self.count(&chunk.usage_metadata);
        let candidate = chunk.candidates.into_iter().flatten().find(|candidate| candidate.index == 0);
        let Some(candidate) = candidate else {
            if let Some(why) = chunk.prompt_feedback["blockReason"].as_str() {
                return Err(EventError::Failed(blocked(why)));
            }
            self.has_usage_at_end |= is_ended && has_usage;
            return Ok(Sign::of(has_usage));
        };
        if is_ended {
            // Nothing counts after the reason, except the usage.
            self.has_usage_at_end |= has_usage;
            return Ok(Sign::of(has_usage));
        }
        let mut has_come = false;
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            has_come = true;
            self.part(part, &mut *on_event)?;
        }
        match candidate.finish_reason.as_deref() {
            None | Some("" | "FINISH_REASON_UNSPECIFIED") => Ok(Sign::of(has_come)),
            Some(word) => {
                self.finish(word, candidate.finish_message.as_deref().unwrap_or_default())?;
                self.has_usage_at_end = has_usage;
                Ok(Sign::Progress)
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.stop.is_some() && self.has_usage_at_end
    }

    fn answer(&mut self, on_event: OnEvent<'_>) -> Option<Answer> {
        let stop = self.stop?;
        let blocks: Vec<AnswerBlock> = std::mem::take(&mut self.blocks).into_iter().map(OpenBlock::close).collect();
        for index in 0..blocks.len() {
            on_event(StreamEvent::BlockStop { index });
        }
        let is_call = |block: &AnswerBlock| matches!(block.kind, BlockKind::ToolUse { .. });
        let stop = match stop {
            AnswerStop::EndTurn if blocks.iter().any(is_call) => AnswerStop::ToolUse,
            stop => stop,
        };
        Some(Answer {
            dialect: super::NAME.to_owned(),
            model: self.model.clone(),
            blocks,
            stop,
            usage: self.usage,
            request_id: None,
        })
    }
}

/// The prompt itself was refused; there is no answer.
fn blocked(why: &str) -> Failure {
    let message = format!("the provider refused the prompt ({why})");
    Failure { status: Some(200), kind: why.to_owned(), ..plain(Class::Refused, message) }
}

impl Parts {
    fn count(&mut self, usage: &Value) {
        if !usage.is_object() {
            return;
        }
        let number = |name: &str| usage[name].as_u64().unwrap_or(0);
        let read = number("cachedContentTokenCount");
        self.usage = Usage {
            // The provider counts cached tokens as part of the prompt; ours are apart.
            input: number("promptTokenCount").saturating_add(number("toolUsePromptTokenCount")).saturating_sub(read),
            output: number("candidatesTokenCount").saturating_add(number("thoughtsTokenCount")),
            cache_read: read,
            cache_write: 0,
        };
    }

    fn part(&mut self, raw: &RawValue, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let fields: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(raw.get()).map_err(|error| EventError::unreadable(&error))?;
        let text: Option<String> = fields.get("text").and_then(|text| serde_json::from_str(text.get()).ok());
        let is_thought = fields.get("thought").is_some_and(|thought| thought.get() == "true");
        let is_plain = fields.iter().all(|(name, value)| {
            matches!(&**name, "text" | "thought")
                || (name == "thoughtSignature" && matches!(value.get(), "null" | "\"\""))
        });
        if let Some(call) = fields.get("functionCall") {
            return self.call(call, raw, &fields, on_event);
        }
        let kept = |text: String| Part::Kept { text, raw: raw.get().to_owned() };
        match text {
            Some(text) if !text.is_empty() => {
                let part = if is_plain { Part::Plain(text.clone()) } else { kept(text.clone()) };
                self.text(is_thought, text, part, on_event)
            }
            // A signature often comes last, on a part without text.
            Some(_) if is_plain => Ok(()),
            other => {
                let part = kept(other.unwrap_or_default());
                match self.blocks.last_mut() {
                    Some(block) => block.parts.push(part),
                    None => self.strays.push(part),
                }
                Ok(())
            }
        }
    }

    fn text(&mut self, is_thought: bool, text: String, part: Part, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let continues = match self.blocks.last().map(|block| &block.kind) {
            Some(Kind::Text) => !is_thought,
            Some(Kind::Thinking) => is_thought,
            Some(Kind::Call { .. }) | None => false,
        };
        if !continues {
            let (kind, preview) = match is_thought {
                true => (Kind::Thinking, BlockPreview::Thinking),
                false => (Kind::Text, BlockPreview::Text),
            };
            self.open(kind, preview, &mut *on_event)?;
        }
        let index = self.blocks.len() - 1;
        self.blocks[index].add(part);
        on_event(match is_thought {
            true => StreamEvent::Thinking { index, text },
            false => StreamEvent::Text { index, text },
        });
        Ok(())
    }

    fn open(&mut self, kind: Kind, preview: BlockPreview, on_event: OnEvent<'_>) -> Result<(), EventError> {
        if self.blocks.len() >= MAX_ANSWER_BLOCKS {
            return Err(EventError::too_many_blocks());
        }
        on_event(StreamEvent::BlockStart { index: self.blocks.len(), kind: preview });
        let parts = std::mem::take(&mut self.strays);
        self.blocks.push(OpenBlock { kind, parts, is_plain_call: false });
        Ok(())
    }

    fn call(
        &mut self,
        call: &RawValue,
        raw: &RawValue,
        fields: &BTreeMap<Cow<'_, str>, &RawValue>,
        on_event: OnEvent<'_>,
    ) -> Result<(), EventError> {
        let parts: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(call.get()).map_err(|error| EventError::unreadable(&error))?;
        let text = |name: &str| {
            parts.get(name).and_then(|text| serde_json::from_str::<String>(text.get()).ok()).unwrap_or_default()
        };
        let json = parts.get("args").map_or("", |args| args.get());
        let (id, name) = (text("id"), text("name"));
        let kind = Kind::Call { id, name: name.clone(), input: tool_input_value(json) };
        self.open(kind, BlockPreview::ToolUse { name }, &mut *on_event)?;
        let index = self.blocks.len() - 1;
        let is_plain = fields.keys().all(|name| name == "functionCall")
            && parts.keys().all(|name| matches!(&**name, "name" | "args"));
        let block = &mut self.blocks[index];
        block.is_plain_call = is_plain && block.parts.is_empty();
        block.parts.push(Part::Kept { text: String::new(), raw: raw.get().to_owned() });
        if !json.is_empty() {
            on_event(StreamEvent::InputDelta { index, json: json.to_owned() });
        }
        Ok(())
    }

    fn finish(&mut self, word: &str, message: &str) -> Result<(), EventError> {
        self.stop = Some(match reason(word) {
            Reason::End | Reason::Calls | Reason::Sequence => AnswerStop::EndTurn,
            Reason::Cut => AnswerStop::MaxTokens,
            Reason::ContextWindow => AnswerStop::ContextWindow,
            Reason::Refused => AnswerStop::Refusal,
            Reason::Pause => AnswerStop::Pause,
            Reason::BrokenCall => return Err(EventError::broken_call(word, message)),
            Reason::BadHistory => {
                let failure = plain(Class::BadHistory, "the provider misses a signature in the history");
                return Err(EventError::Failed(Failure { status: Some(200), kind: word.to_owned(), ..failure }));
            }
            // `OTHER`, and words that do not exist yet: what came may be half an answer.
            Reason::Unknown => {
                let failure = incomplete("the provider ended the answer and does not say why");
                return Err(EventError::Failed(Failure { status: Some(200), kind: word.to_owned(), ..failure }));
            }
        });
        Ok(())
    }
}

impl OpenBlock {
    /// Adds a part; plain text joins the plain text before it.
    fn add(&mut self, part: Part) {
        match (self.parts.last_mut(), part) {
            (Some(Part::Plain(before)), Part::Plain(text)) => before.push_str(&text),
            (_, part) => self.parts.push(part),
        }
    }

    fn close(self) -> AnswerBlock {
        let is_thought = matches!(self.kind, Kind::Thinking);
        let is_plain_call = self.is_plain_call && self.parts.len() == 1;
        let must_be_kept = !is_plain_call && self.parts.iter().any(|part| matches!(part, Part::Kept { .. }));
        let text = self.parts.iter().map(Part::text).collect::<String>();
        let raw = match must_be_kept {
            true => self.parts.iter().map(|part| part.raw(is_thought)).collect(),
            false => Vec::new(),
        };
        let kind = match self.kind {
            Kind::Text => BlockKind::Text { text },
            Kind::Thinking => BlockKind::Thinking { text },
            Kind::Call { id, name, input } => BlockKind::ToolUse { provider_id: id, name, input },
        };
        AnswerBlock { id: None, kind, raw }
    }
}

impl Part {
    fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Kept { text, .. } => text,
        }
    }

    fn raw(&self, is_thought: bool) -> Json {
        match self {
            Self::Plain(text) if is_thought => Json::from_value(&serde_json::json!({"text": text, "thought": true})),
            Self::Plain(text) => Json::from_value(&serde_json::json!({"text": text})),
            Self::Kept { raw, .. } => kept(raw),
        }
    }
}
