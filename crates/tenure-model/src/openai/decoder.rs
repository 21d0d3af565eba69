//! Reads streamed Chat Completions.
//!
//! ```text
//! (data: chunk)* data: [DONE]        complete with a finish_reason or with [DONE] (case O-004)
//! ```
//! One text, one reasoning and any number of tool calls; fields of a call that we do not know, such
//! as signatures that gateways add, are kept and go back.

use crate::decoder::{EventError, MAX_ANSWER_BLOCKS, OnEvent, Protocol, Sign, SseDecoder, tool_input};
use crate::model::{BlockPreview, StreamEvent};
use crate::reason::{Reason, reason as read_reason};
use crate::sse::SseEvent;
use crate::text::Text;
use crate::verbatim::{is_nothing, kept};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_core::failure::{Class, Failure, incomplete, plain};
use tenure_core::{Answer, AnswerBlock, AnswerStop, BlockKind, Usage, clean_surrogates};

/// A reader for one answer of `model` (`provider/model`).
pub(crate) fn decoder(model: &str) -> SseDecoder<Chunks> {
    SseDecoder::new(Chunks { model: model.to_owned(), ..Chunks::default() })
}

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    model: String,
    blocks: Vec<OpenBlock>,
    reasoning_details: Vec<Value>,
    reasoning_field: &'static str,
    has_refused: bool,
    stop: Option<AnswerStop>,
    usage: Usage,
    /// Pieces of the answer so far.
    pieces: u64,
    is_done: bool,
}

#[derive(Debug)]
enum OpenBlock {
    Text(String),
    Thinking(String),
    Call { index: Option<u64>, id: String, name: String, arguments: String, other: Map<String, Value> },
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Value,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// Gateways that do not stream send the whole message in one chunk.
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default)]
    native_finish_reason: Text<'a>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(default)]
    reasoning_details: Value,
    #[serde(default)]
    tool_calls: Value,
}

impl Protocol for Chunks {
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<Sign, EventError> {
        match event.data.trim() {
            // Empty data lines occur as signs of life.
            "" => return Ok(Sign::Life),
            "[DONE]" => {
                self.is_done = true;
                return Ok(Sign::Progress);
            }
            _ => {}
        }
        let data = clean_surrogates(&event.data);
        let chunk: Chunk<'_> = serde_json::from_str(&data).map_err(|error| EventError::unreadable(&error))?;
        if is_error(&chunk.error) || event.name == "error" {
            return Err(EventError::of_error(&data));
        }
        self.count(&chunk.usage);
        let choice = chunk.choices.into_iter().flatten().find(|choice| choice.index.unwrap_or(0) == 0);
        let Some(choice) = choice else {
            return Ok(Sign::of(chunk.usage.is_object()));
        };
        if is_error(&choice.error) {
            return Err(EventError::of_error(&json!({"error": choice.error}).to_string()));
        }
        let before = self.pieces;
        if let Some(delta) = choice.delta.or(choice.message) {
            self.delta(&delta, on_event);
        }
        if self.blocks.len() > MAX_ANSWER_BLOCKS {
            return Err(EventError::too_many_blocks());
        }
        if !choice.finish_reason.is_empty() {
            self.finish(&choice.finish_reason, &choice.native_finish_reason)?;
            return Ok(Sign::Progress);
        }
        // Chunks without anything in them occur as signs of life too.
        Ok(Sign::of(self.pieces != before))
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn answer(&mut self, on_event: OnEvent<'_>) -> Option<Answer> {
        if !self.is_done && self.stop.is_none() {
            return None;
        }
        if !self.is_done {
            tracing::warn!(model = %self.model, "the stream ended after its finish reason, but without [DONE]");
        }
        let blocks: Vec<AnswerBlock> =
            std::mem::take(&mut self.blocks).into_iter().map(|block| self.close(block)).collect();
        for index in 0..blocks.len() {
            on_event(StreamEvent::BlockStop { index });
        }
        let has_calls = blocks.iter().any(|block| matches!(block.kind, BlockKind::ToolUse { .. }));
        let stop = match self.stop {
            _ if self.has_refused => AnswerStop::Refusal,
            // What is there decides, whatever the reason says (case O-016).
            None | Some(AnswerStop::EndTurn | AnswerStop::ToolUse) if has_calls => AnswerStop::ToolUse,
            None | Some(AnswerStop::EndTurn | AnswerStop::ToolUse) => AnswerStop::EndTurn,
            Some(stop) => stop,
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

impl Chunks {
    fn count(&mut self, usage: &Value) {
        if !usage.is_object() {
            return;
        }
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let details = &usage["prompt_tokens_details"];
        let (read, write) = (number(&details["cached_tokens"]), number(&details["cache_write_tokens"]));
        self.usage = Usage {
            // The provider counts cached tokens as part of the prompt; ours are apart.
            input: number(&usage["prompt_tokens"]).saturating_sub(read).saturating_sub(write),
            output: number(&usage["completion_tokens"]),
            cache_read: read,
            cache_write: write,
        };
    }

    fn finish(&mut self, reason: &str, native: &str) -> Result<(), EventError> {
        // Some gateways hide the truth behind a normal reason (case O-017).
        let (told, truth) = (read_reason(reason), read_reason(native));
        let word = if native.is_empty() { reason } else { native };
        let is_worse = matches!(
            truth,
            Reason::BrokenCall | Reason::BadHistory | Reason::Cut | Reason::ContextWindow | Reason::Refused
        );
        self.stop = match if is_worse { truth } else { told } {
            Reason::BrokenCall => return Err(EventError::broken_call(word, "")),
            Reason::BadHistory => {
                let failure = plain(Class::BadHistory, "the provider misses a signature in the history");
                return Err(EventError::Failed(Failure { status: Some(200), kind: word.to_owned(), ..failure }));
            }
            Reason::Unknown if reason.eq_ignore_ascii_case("error") => {
                let failure = incomplete("the provider could not finish the answer");
                return Err(EventError::Failed(Failure { status: Some(200), kind: word.to_owned(), ..failure }));
            }
            Reason::Cut => Some(AnswerStop::MaxTokens),
            Reason::ContextWindow => Some(AnswerStop::ContextWindow),
            Reason::Calls => Some(AnswerStop::ToolUse),
            Reason::Refused => Some(AnswerStop::Refusal),
            Reason::Pause => Some(AnswerStop::Pause),
            Reason::End | Reason::Sequence | Reason::Unknown => Some(AnswerStop::EndTurn),
        };
        Ok(())
    }

    fn delta(&mut self, delta: &Delta<'_>, on_event: OnEvent<'_>) {
        for (field, piece) in [("reasoning_content", &delta.reasoning_content), ("reasoning", &delta.reasoning)] {
            if !piece.is_empty() && (self.reasoning_field.is_empty() || self.reasoning_field == field) {
                self.reasoning_field = field;
                self.add_thinking(piece, on_event);
            }
        }
        if let Some(details) = delta.reasoning_details.as_array() {
            if self.reasoning_field.is_empty() {
                self.reasoning_field = "reasoning";
            }
            self.add_thinking("", on_event);
            self.reasoning_details.extend(details.iter().cloned());
        }
        self.add_text(&delta.content, on_event);
        self.has_refused |= !delta.refusal.is_empty();
        self.add_text(&delta.refusal, on_event);
        for call in delta.tool_calls.as_array().map(Vec::as_slice).unwrap_or_default() {
            self.add_call(call, on_event);
        }
    }

    fn add_text(&mut self, piece: &str, on_event: OnEvent<'_>) {
        if piece.is_empty() {
            return;
        }
        self.pieces += 1;
        let place = self.blocks.iter().position(|block| matches!(block, OpenBlock::Text(_)));
        let index = place.unwrap_or_else(|| self.open(OpenBlock::Text(String::new()), BlockPreview::Text, on_event));
        if let OpenBlock::Text(text) = &mut self.blocks[index] {
            text.push_str(piece);
        }
        on_event(StreamEvent::Text { index, text: piece.to_owned() });
    }

    fn add_thinking(&mut self, piece: &str, on_event: OnEvent<'_>) {
        self.pieces += 1;
        let place = self.blocks.iter().position(|block| matches!(block, OpenBlock::Thinking(_)));
        let index =
            place.unwrap_or_else(|| self.open(OpenBlock::Thinking(String::new()), BlockPreview::Thinking, on_event));
        if let OpenBlock::Thinking(text) = &mut self.blocks[index] {
            text.push_str(piece);
        }
        if !piece.is_empty() {
            on_event(StreamEvent::Thinking { index, text: piece.to_owned() });
        }
    }

    fn open(&mut self, block: OpenBlock, kind: BlockPreview, on_event: OnEvent<'_>) -> usize {
        let index = self.blocks.len();
        self.blocks.push(block);
        on_event(StreamEvent::BlockStart { index, kind });
        index
    }

    fn add_call(&mut self, piece: &Value, on_event: OnEvent<'_>) {
        self.pieces += 1;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (index, id) = (piece["index"].as_u64(), text(&piece["id"]));
        let (name, arguments) = (text(&piece["function"]["name"]), argument_text(&piece["function"]["arguments"]));
        let place = self.call_at(index, &id, &name).unwrap_or_else(|| {
            let call = OpenBlock::Call {
                index,
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
                other: Map::new(),
            };
            self.open(call, BlockPreview::ToolUse { name: name.clone() }, on_event)
        });
        let OpenBlock::Call { id: known_id, name: known_name, arguments: known, other, .. } = &mut self.blocks[place]
        else {
            return;
        };
        if known_id.is_empty() {
            *known_id = id;
        }
        // The name comes whole in the first piece; some servers repeat it.
        if known_name.is_empty() {
            *known_name = name;
        }
        known.push_str(&arguments);
        for (field, value) in piece.as_object().into_iter().flatten() {
            if !["index", "id", "type", "function"].contains(&field.as_str()) && !value.is_null() {
                other.insert(field.clone(), value.clone());
            }
        }
        if !arguments.is_empty() {
            on_event(StreamEvent::InputDelta { index: place, json: arguments });
        }
    }

    /// The open call that a piece belongs to: by its index; servers that leave the index out, or give
    /// every call the same one, begin a new call with a new id and a name.
    fn call_at(&self, wanted: Option<u64>, wanted_id: &str, name: &str) -> Option<usize> {
        let place = self.blocks.iter().rposition(|block| match block {
            OpenBlock::Call { index, .. } => wanted.is_none() || *index == wanted,
            OpenBlock::Text(_) | OpenBlock::Thinking(_) => false,
        })?;
        let OpenBlock::Call { id, .. } = &self.blocks[place] else {
            return None;
        };
        let begins = !name.is_empty() && !wanted_id.is_empty() && !id.is_empty() && id != wanted_id;
        (!begins).then_some(place)
    }

    fn close(&mut self, block: OpenBlock) -> AnswerBlock {
        let (kind, raw) = match block {
            OpenBlock::Text(text) => (BlockKind::Text { text }, Vec::new()),
            OpenBlock::Thinking(text) => {
                let mut fields = Map::new();
                fields.insert(self.reasoning_field.to_owned(), json!(text));
                if !self.reasoning_details.is_empty() {
                    fields.insert(
                        "reasoning_details".to_owned(),
                        Value::Array(std::mem::take(&mut self.reasoning_details)),
                    );
                }
                (BlockKind::Thinking { text }, vec![kept(&Value::Object(fields).to_string())])
            }
            OpenBlock::Call { id, name, arguments, other, .. } => {
                let raw = if other.is_empty() { Vec::new() } else { vec![kept(&Value::Object(other).to_string())] };
                (BlockKind::ToolUse { provider_id: id, name, input: tool_input(&arguments) }, raw)
            }
        };
        AnswerBlock { id: None, kind, raw }
    }
}

/// Whether a field `error` says that there is one.
fn is_error(error: &Value) -> bool {
    !is_nothing(error) && *error != Value::Bool(false) && *error != ""
}

/// Arguments are text that holds JSON; some servers send the JSON itself.
fn argument_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
