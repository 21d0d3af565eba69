//! Reads streamed Chat Completions.
//!
//! ```text
//! (data: chunk)* data: [DONE]        complete with a finish_reason or with [DONE] (case O-004)
//! ```
//! One text, one reasoning and any number of tool calls; fields of a call that we do not know, such
//! as signatures that gateways add, are kept and go back.

use crate::decoder::{EventError, OnEvent, Protocol, SseDecoder, tool_input};
use crate::model::{BlockPreview, StreamEvent};
use crate::sse::SseEvent;
use serde_json::{Map, Value, json};
use tenure_core::failure::{Class, Failure, Reply, classify};
use tenure_core::{Answer, AnswerBlock, AnswerStop, BlockKind, Json, Usage, clean_surrogates};

/// A reader for one answer of `model` (`provider/model`).
pub(crate) fn decoder(model: &str) -> SseDecoder<Chunks> {
    SseDecoder::new(Chunks { model: model.to_owned(), ..Chunks::default() })
}

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    model: String,
    blocks: Vec<OpenBlock>,
    /// The number of choices[0].delta.tool_calls[].index of each call, by place in `blocks`.
    reasoning_details: Vec<Value>,
    reasoning_field: &'static str,
    has_refused: bool,
    stop: Option<AnswerStop>,
    usage: Usage,
    is_done: bool,
}

#[derive(Debug)]
enum OpenBlock {
    Text(String),
    Thinking(String),
    Call { index: Option<u64>, id: String, name: String, arguments: String, other: Map<String, Value> },
}

impl Protocol for Chunks {
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<(), EventError> {
        match event.data.trim() {
            // Empty data lines occur as signs of life.
            "" => return Ok(()),
            "[DONE]" => {
                self.is_done = true;
                return Ok(());
            }
            _ => {}
        }
        let data = clean_surrogates(&event.data);
        let chunk: Value = serde_json::from_str(&data).map_err(|error| EventError::Unreadable(error.to_string()))?;
        let has_error = chunk.get("error").is_some_and(|error| !error.is_null());
        if has_error || event.name == "error" {
            return Err(EventError::Failed(classify(&Reply { status: 200, body: &data, headers: &[] })));
        }
        self.count(&chunk["usage"]);
        let choices = chunk["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(choice) = choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0) else {
            return Ok(());
        };
        self.delta(&choice["delta"], on_event);
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish(reason, choice["native_finish_reason"].as_str().unwrap_or_default())?;
        }
        Ok(())
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
        // Some gateways hide the truth behind a normal reason.
        if native.eq_ignore_ascii_case("malformed_function_call") || reason == "error" {
            return Err(EventError::Failed(Failure {
                class: Class::Incomplete,
                status: Some(200),
                kind: if native.is_empty() { reason } else { native }.to_owned(),
                message: "the provider could not finish the answer".to_owned(),
                retry_after: None,
                request_id: None,
            }));
        }
        let is_cut = ["length", "max_tokens", "max_output_tokens"].iter().any(|word| native.eq_ignore_ascii_case(word));
        self.stop = Some(match reason {
            _ if is_cut => AnswerStop::MaxTokens,
            "length" => AnswerStop::MaxTokens,
            "tool_calls" | "function_call" => AnswerStop::ToolUse,
            "content_filter" => AnswerStop::Refusal,
            _ => AnswerStop::EndTurn,
        });
        Ok(())
    }

    fn delta(&mut self, delta: &Value, on_event: OnEvent<'_>) {
        for field in ["reasoning_content", "reasoning"] {
            let piece = delta[field].as_str().unwrap_or_default();
            if !piece.is_empty() && (self.reasoning_field.is_empty() || self.reasoning_field == field) {
                self.reasoning_field = field;
                self.add_thinking(piece, on_event);
            }
        }
        if let Some(details) = delta["reasoning_details"].as_array() {
            if self.reasoning_field.is_empty() {
                self.reasoning_field = "reasoning";
            }
            self.add_thinking("", on_event);
            self.reasoning_details.extend(details.iter().cloned());
        }
        self.add_text(delta["content"].as_str().unwrap_or_default(), on_event);
        let refusal = delta["refusal"].as_str().unwrap_or_default();
        self.has_refused |= !refusal.is_empty();
        self.add_text(refusal, on_event);
        for call in delta["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
            self.add_call(call, on_event);
        }
    }

    fn add_text(&mut self, piece: &str, on_event: OnEvent<'_>) {
        if piece.is_empty() {
            return;
        }
        let place = self.blocks.iter().position(|block| matches!(block, OpenBlock::Text(_)));
        let index = place.unwrap_or_else(|| self.open(OpenBlock::Text(String::new()), BlockPreview::Text, on_event));
        if let OpenBlock::Text(text) = &mut self.blocks[index] {
            text.push_str(piece);
        }
        on_event(StreamEvent::Text { index, text: piece.to_owned() });
    }

    fn add_thinking(&mut self, piece: &str, on_event: OnEvent<'_>) {
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
                (BlockKind::Thinking { text }, vec![Json::from_value(&Value::Object(fields))])
            }
            OpenBlock::Call { id, name, arguments, other, .. } => {
                let raw = if other.is_empty() { Vec::new() } else { vec![Json::from_value(&Value::Object(other))] };
                (BlockKind::ToolUse { provider_id: id, name, input: tool_input(&arguments) }, raw)
            }
        };
        AnswerBlock { id: None, kind, raw }
    }
}

/// Arguments are text that holds JSON; some servers send the JSON itself.
fn argument_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
