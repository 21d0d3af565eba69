//! A played turn as the bytes of a real provider.

mod gemini;
mod ollama;
mod responses;

pub use gemini::gemini_stream;
pub use ollama::ollama_stream;
pub use responses::responses_stream;

use super::play::{input_text, pieces};
use super::scenario::{Cut, Item, Pace};
use serde_json::{Value, json};
use std::time::Duration;
use tenure_core::{AnswerStop, Usage};

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes, sent at once.
    Bytes(Vec<u8>),
    /// Silence.
    Wait(Duration),
    /// Silence until the other side gives up.
    Forever,
    /// The connection breaks.
    Break,
}

/// The stream of a turn in Anthropic's words.
pub fn anthropic_stream(model: &str, items: &[Item], stop: AnswerStop, usage: Usage) -> Vec<Piece> {
    let mut out = Out { pieces: Vec::new(), has_names: true };
    let counts = json!({
        "input_tokens": usage.input, "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write, "output_tokens": 1,
    });
    let message = json!({
        "id": "msg_script", "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": counts,
    });
    out.event(&json!({"type": "message_start", "message": message}));
    let (mut next, mut open) = (0usize, None);
    for item in items {
        let is_block = matches!(item, Item::Think { .. } | Item::Say { .. } | Item::Call { .. });
        if is_block && let Some(index) = open.replace(next) {
            out.event(&json!({"type": "content_block_stop", "index": index}));
        }
        let index = next;
        let delta = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        match item {
            Item::Think { text, pace } => {
                out.event(&json!({"type": "content_block_start", "index": index, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}));
                out.paced(text, *pace, |piece| delta(json!({"type": "thinking_delta", "thinking": piece})));
                out.event(&delta(json!({"type": "signature_delta", "signature": "c2NyaXB0"})));
            }
            Item::Say { text, pace } => {
                out.event(&json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}));
                out.paced(text, *pace, |piece| delta(json!({"type": "text_delta", "text": piece})));
            }
            Item::Call { name, input, pace } => {
                let block = json!({"type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {}});
                out.event(&json!({"type": "content_block_start", "index": index, "content_block": block}));
                out.paced(&input_text(input), *pace, |piece| {
                    delta(json!({"type": "input_json_delta", "partial_json": piece}))
                });
            }
            Item::Stall(_) | Item::Cut(_) => {
                if out.interruption(item) {
                    return out.pieces;
                }
            }
            Item::Error { kind, message } => {
                out.event(&json!({"type": "error", "error": {"type": kind, "message": message}}));
                return out.pieces;
            }
        }
        if is_block {
            next += 1;
        }
    }
    if let Some(index) = open {
        out.event(&json!({"type": "content_block_stop", "index": index}));
    }
    let reason = match stop {
        AnswerStop::EndTurn => "end_turn",
        AnswerStop::ToolUse => "tool_use",
        AnswerStop::MaxTokens => "max_tokens",
        AnswerStop::StopSequence => "stop_sequence",
        AnswerStop::Refusal => "refusal",
        AnswerStop::Pause => "pause_turn",
        AnswerStop::ContextWindow => "model_context_window_exceeded",
    };
    out.event(&json!({
        "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": usage.output},
    }));
    out.event(&json!({"type": "message_stop"}));
    out.pieces
}

/// The stream of a turn in the words of Chat Completions.
pub fn openai_stream(model: &str, items: &[Item], stop: AnswerStop, usage: Usage) -> Vec<Piece> {
    let mut out = Out { pieces: Vec::new(), has_names: false };
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null,
        })
    };
    out.event(&chunk(json!({"role": "assistant", "content": ""}), Value::Null));
    let mut calls = 0;
    for item in items {
        match item {
            Item::Think { text, pace } => {
                out.paced(text, *pace, |piece| chunk(json!({"reasoning_content": piece}), Value::Null))
            }
            Item::Say { text, pace } => out.paced(text, *pace, |piece| chunk(json!({"content": piece}), Value::Null)),
            Item::Call { name, input, pace } => {
                let call = json!({"index": calls, "id": format!("call_{calls}"), "type": "function", "function": {"name": name, "arguments": ""}});
                out.event(&chunk(json!({"tool_calls": [call]}), Value::Null));
                out.paced(&input_text(input), *pace, |piece| {
                    chunk(json!({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}), Value::Null)
                });
                calls += 1;
            }
            Item::Stall(_) | Item::Cut(_) => {
                if out.interruption(item) {
                    return out.pieces;
                }
            }
            Item::Error { kind, message } => {
                out.event(&json!({"error": {"type": kind, "code": null, "message": message}}));
                return out.pieces;
            }
        }
    }
    let reason = match stop {
        AnswerStop::EndTurn | AnswerStop::StopSequence | AnswerStop::Pause => "stop",
        AnswerStop::ToolUse => "tool_calls",
        AnswerStop::MaxTokens | AnswerStop::ContextWindow => "length",
        AnswerStop::Refusal => "content_filter",
    };
    out.event(&chunk(json!({}), json!(reason)));
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    out.event(&json!({
        "id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [],
        "usage": {
            "prompt_tokens": prompt, "completion_tokens": usage.output, "total_tokens": prompt + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        },
    }));
    out.bytes("data: [DONE]\n\n");
    out.pieces
}

struct Out {
    pieces: Vec<Piece>,
    has_names: bool,
}

impl Out {
    fn bytes(&mut self, text: &str) {
        self.pieces.push(Piece::Bytes(text.as_bytes().to_vec()));
    }

    fn event(&mut self, data: &Value) {
        let text = self.event_text(data);
        self.bytes(&text);
    }

    fn event_text(&self, data: &Value) -> String {
        let name = if self.has_names {
            format!("event: {}\n", data["type"].as_str().unwrap_or_default())
        } else {
            String::new()
        };
        format!("{name}data: {data}\n\n")
    }

    fn paced(&mut self, text: &str, pace: Pace, event: impl Fn(&str) -> Value) {
        let has_names = self.has_names;
        self.paced_as(text, pace, |piece| Self { pieces: Vec::new(), has_names }.event_text(&event(piece)));
    }

    fn paced_as(&mut self, text: &str, pace: Pace, written: impl Fn(&str) -> String) {
        for piece in pieces(text, pace.pieces) {
            if !pace.delay.is_zero() {
                self.pieces.push(Piece::Wait(pace.delay));
            }
            self.bytes(&written(&piece));
        }
    }

    /// Whether the stream is over.
    fn interruption(&mut self, item: &Item) -> bool {
        match item {
            Item::Stall(Some(span)) => self.pieces.push(Piece::Wait(*span)),
            Item::Stall(None) => self.pieces.push(Piece::Forever),
            Item::Cut(Cut::Break) => self.pieces.push(Piece::Break),
            Item::Cut(Cut::End) | Item::Think { .. } | Item::Say { .. } | Item::Call { .. } | Item::Error { .. } => {}
        }
        matches!(item, Item::Cut(_) | Item::Stall(None))
    }
}
