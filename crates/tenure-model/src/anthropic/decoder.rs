//! Reads streamed Messages.
//!
//! ```text
//! message_start (content_block_start content_block_delta* content_block_stop)* message_delta+ message_stop
//! ping, error: anywhere; unknown events: ignored
//! ```
//! Blocks that we do not know are kept verbatim and ride along with their neighbour. Plain text and
//! plain tool calls are not kept twice: they are written again from their parts.

use crate::decoder::{EventError, MAX_ANSWER_BLOCKS, OnEvent, Protocol, Sign, SseDecoder, tool_input};
use crate::model::{BlockPreview, StreamEvent};
use crate::sse::SseEvent;
use crate::text::Text;
use crate::verbatim::{is_nothing, kept};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tenure_core::{Answer, AnswerBlock, AnswerStop, BlockKind, Json, Usage, clean_surrogates};

/// A reader for one answer of `model` (`provider/model`).
pub(crate) fn decoder(model: &str) -> SseDecoder<Messages> {
    SseDecoder::new(Messages { model: model.to_owned(), ..Messages::default() })
}

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    model: String,
    blocks: Vec<OpenBlock>,
    placed: usize,
    stop: Option<String>,
    usage: Usage,
    is_done: bool,
}

#[derive(Debug)]
struct OpenBlock {
    /// The provider's number of the block.
    index: u64,
    /// Place in the answer; none for blocks that are unknown, or are text without text so far.
    place: Option<usize>,
    kind: Kind,
    /// The block as it began, with what was added to fields other than the ones in `kind`.
    fields: Map<String, Value>,
    /// The block as it began, byte for byte.
    start: String,
    /// Pieces of a tool's input.
    input: String,
}

#[derive(Debug)]
enum Kind {
    Text(String),
    Thinking(String),
    Redacted,
    ToolUse,
    Unknown,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    usage: Value,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
    #[serde(default)]
    citation: Value,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

impl Protocol for Messages {
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<Sign, EventError> {
        if event.data.trim().is_empty() {
            return Ok(Sign::Life);
        }
        if event.name == "error" {
            return Err(EventError::of_error(&event.data));
        }
        let data = clean_surrogates(&event.data);
        let envelope: Envelope<'_> = serde_json::from_str(&data).map_err(|error| EventError::unreadable(&error))?;
        match &*envelope.kind {
            "error" => return Err(EventError::of_error(&event.data)),
            // Some gateways send their own error without a type around it.
            "" if !is_nothing(&envelope.error) => return Err(EventError::of_error(&event.data)),
            "message_start" => self.count(&envelope.message["usage"]),
            "content_block_start" => self.start(envelope.index, envelope.content_block, on_event)?,
            "content_block_delta" => {
                if let Some(delta) = envelope.delta {
                    self.delta(envelope.index, delta, on_event);
                }
            }
            "content_block_stop" => {
                if let Some(index) = self.find(envelope.index).and_then(|block| block.place) {
                    on_event(StreamEvent::BlockStop { index });
                }
            }
            "message_delta" => {
                self.count(&envelope.usage);
                if let Some(delta) = envelope.delta.filter(|delta| !delta.stop_reason.is_empty()) {
                    self.stop = Some(delta.stop_reason.into_owned());
                }
            }
            "message_stop" => self.is_done = true,
            // `ping`, and events that do not exist yet.
            _ => return Ok(Sign::Life),
        }
        Ok(Sign::Progress)
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn answer(&mut self, _: OnEvent<'_>) -> Option<Answer> {
        if !self.is_done && self.stop.is_none() {
            return None;
        }
        let blocks = assemble(std::mem::take(&mut self.blocks));
        let has_calls = blocks.iter().any(|block| matches!(block.kind, BlockKind::ToolUse { .. }));
        Some(Answer {
            dialect: super::NAME.to_owned(),
            model: self.model.clone(),
            blocks,
            stop: stop_of(self.stop.as_deref(), has_calls),
            usage: self.usage,
            request_id: None,
        })
    }
}

impl Messages {
    /// Takes the counts that are there; they are totals, not additions.
    fn count(&mut self, usage: &Value) {
        let take = |field: &mut u64, name: &str| {
            if let Some(count) = usage[name].as_u64() {
                *field = count;
            }
        };
        take(&mut self.usage.input, "input_tokens");
        take(&mut self.usage.output, "output_tokens");
        take(&mut self.usage.cache_read, "cache_read_input_tokens");
        take(&mut self.usage.cache_write, "cache_creation_input_tokens");
    }

    fn find(&mut self, index: u64) -> Option<&mut OpenBlock> {
        self.blocks.iter_mut().rev().find(|block| block.index == index)
    }

    fn start(&mut self, index: u64, start: Option<&RawValue>, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let Some(start) = start else {
            return Err(EventError::Unreadable("a block starts without content_block".to_owned()));
        };
        if self.blocks.len() >= MAX_ANSWER_BLOCKS {
            return Err(EventError::too_many_blocks());
        }
        let fields: Map<String, Value> =
            serde_json::from_str(start.get()).map_err(|error| EventError::unreadable(&error))?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, preview, first) = match &*text("type") {
            "text" => (Kind::Text(String::new()), None, text("text")),
            "thinking" => (Kind::Thinking(String::new()), Some(BlockPreview::Thinking), text("thinking")),
            "redacted_thinking" => (Kind::Redacted, Some(BlockPreview::Thinking), String::new()),
            "tool_use" => (Kind::ToolUse, Some(BlockPreview::ToolUse { name: text("name") }), String::new()),
            _ => (Kind::Unknown, None, String::new()),
        };
        let place = preview.map(|kind| {
            let index = self.placed;
            self.placed += 1;
            on_event(StreamEvent::BlockStart { index, kind });
            index
        });
        self.blocks.push(OpenBlock { index, place, kind, fields, start: start.get().to_owned(), input: String::new() });
        self.add_text(index, &first, on_event);
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: Delta<'_>, on_event: OnEvent<'_>) {
        match &*delta.kind {
            "text_delta" => self.add_text(index, &delta.text, on_event),
            "thinking_delta" => self.add_text(index, &delta.thinking, on_event),
            "signature_delta" => {
                if let Some(block) = self.find(index) {
                    match block.fields.entry("signature").or_insert_with(|| Value::String(String::new())) {
                        Value::String(signature) => signature.push_str(&delta.signature),
                        other => *other = Value::String(delta.signature.into_owned()),
                    }
                }
            }
            "input_json_delta" => {
                let Some(block) = self.find(index) else {
                    return;
                };
                block.input.push_str(&delta.partial_json);
                if let Some(index) = block.place {
                    on_event(StreamEvent::InputDelta { index, json: delta.partial_json.into_owned() });
                }
            }
            "citations_delta" => {
                if let Some(block) = self.find(index) {
                    let citations = block.fields.entry("citations").or_insert(Value::Null);
                    match citations.as_array_mut() {
                        Some(citations) => citations.push(delta.citation),
                        None => *citations = Value::Array(vec![delta.citation]),
                    }
                }
            }
            _ => {}
        }
    }

    fn add_text(&mut self, index: u64, piece: &str, on_event: OnEvent<'_>) {
        if piece.is_empty() {
            return;
        }
        let next_place = self.placed;
        let Some(block) = self.find(index) else {
            return;
        };
        match &mut block.kind {
            Kind::Text(text) => {
                text.push_str(piece);
                let is_new = block.place.is_none();
                let index = *block.place.get_or_insert(next_place);
                if is_new {
                    self.placed += 1;
                    on_event(StreamEvent::BlockStart { index, kind: BlockPreview::Text });
                }
                on_event(StreamEvent::Text { index, text: piece.to_owned() });
            }
            Kind::Thinking(text) => {
                text.push_str(piece);
                if let Some(index) = block.place {
                    on_event(StreamEvent::Thinking { index, text: piece.to_owned() });
                }
            }
            Kind::Redacted | Kind::ToolUse | Kind::Unknown => {}
        }
    }
}

fn stop_of(reason: Option<&str>, has_calls: bool) -> AnswerStop {
    match reason {
        Some("max_tokens") => AnswerStop::MaxTokens,
        Some("model_context_window_exceeded") => AnswerStop::ContextWindow,
        Some("refusal") => AnswerStop::Refusal,
        Some("pause_turn") => AnswerStop::Pause,
        Some("stop_sequence") => AnswerStop::StopSequence,
        // What is there decides, whatever the reason says (case O-016).
        _ if has_calls => AnswerStop::ToolUse,
        _ => AnswerStop::EndTurn,
    }
}

/// Brings the blocks into the order of their places; unknown ones join the next, the last ones the
/// one before.
fn assemble(blocks: Vec<OpenBlock>) -> Vec<AnswerBlock> {
    let mut done: Vec<(usize, AnswerBlock, Json)> = Vec::new();
    let mut strays: Vec<Json> = Vec::new();
    for block in blocks {
        let own = block.verbatim();
        let Some(place) = block.place else {
            strays.extend(matches!(block.kind, Kind::Unknown).then_some(own));
            continue;
        };
        let mut raw = std::mem::take(&mut strays);
        if !raw.is_empty() || block.must_be_verbatim() {
            raw.push(own.clone());
        }
        done.push((place, AnswerBlock { id: None, kind: block.into_kind(), raw }, own));
    }
    done.sort_by_key(|(place, _, _)| *place);
    if let Some((_, last, own)) = done.last_mut()
        && !strays.is_empty()
    {
        if last.raw.is_empty() {
            last.raw.push(own.clone());
        }
        last.raw.append(&mut strays);
    }
    done.into_iter().map(|(_, block, _)| block).collect()
}

impl OpenBlock {
    /// Whether it says more than what our own form of it keeps.
    fn must_be_verbatim(&self) -> bool {
        let has_other_fields = |known: &[&str]| {
            self.fields.iter().any(|(name, value)| !known.contains(&name.as_str()) && !is_nothing(value))
        };
        match self.kind {
            Kind::Text(_) => has_other_fields(&["type", "text"]),
            Kind::ToolUse => has_other_fields(&["type", "id", "name", "input"]),
            Kind::Thinking(_) | Kind::Redacted | Kind::Unknown => true,
        }
    }

    /// The block as the provider wants it back.
    fn verbatim(&self) -> Json {
        let mut fields = self.fields.clone();
        match &self.kind {
            Kind::Text(text) => {
                fields.insert("text".to_owned(), Value::String(text.clone()));
            }
            Kind::Thinking(text) => {
                fields.insert("thinking".to_owned(), Value::String(text.clone()));
            }
            Kind::Redacted => return kept(&self.start),
            Kind::ToolUse | Kind::Unknown if self.input.is_empty() => return kept(&self.start),
            Kind::ToolUse | Kind::Unknown => return self.with_input(fields),
        }
        kept(&Value::Object(fields).to_string())
    }

    /// The fields with the streamed input, whose text stays as it came.
    fn with_input(&self, mut fields: Map<String, Value>) -> Json {
        let input = tool_input(&self.input).unwrap_or_else(|_| Json::object());
        fields.remove("input");
        let mut text = Value::Object(fields).to_string();
        text.pop();
        text.push_str(if text.ends_with('{') { "\"input\":" } else { ",\"input\":" });
        text.push_str(input.as_str());
        text.push('}');
        kept(&text)
    }

    fn into_kind(self) -> BlockKind {
        match self.kind {
            Kind::Text(text) => BlockKind::Text { text },
            Kind::Thinking(text) => BlockKind::Thinking { text },
            Kind::Redacted | Kind::Unknown => BlockKind::Thinking { text: String::new() },
            Kind::ToolUse => {
                let text = |name: &str| self.fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let input = match self.fields.get("input") {
                    Some(input) if self.input.trim().is_empty() && !is_nothing(input) => {
                        Json::parse(&input.to_string()).map_err(|error| error.to_string())
                    }
                    _ => tool_input(&self.input),
                };
                BlockKind::ToolUse { provider_id: text("id"), name: text("name"), input }
            }
        }
    }
}
