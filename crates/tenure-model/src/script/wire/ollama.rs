//! A played turn in the words of Ollama.

use super::{Out, Piece};
use crate::script::play::input_text;
use crate::script::scenario::Item;
use serde_json::{Value, json};
use tenure_core::{AnswerStop, Usage};

/// The stream of a turn in the words of Ollama: one object a line.
pub fn ollama_stream(model: &str, items: &[Item], stop: AnswerStop, usage: Usage) -> Vec<Piece> {
    let mut out = Out { pieces: Vec::new(), has_names: false };
    let line = |message: Value| json!({"model": model, "message": message, "done": false});
    for item in items {
        match item {
            Item::Think { text, pace } => {
                let thought = |piece: &str| line(json!({"role": "assistant", "content": "", "thinking": piece}));
                out.paced_lines(text, *pace, thought);
            }
            Item::Say { text, pace } => {
                out.paced_lines(text, *pace, |piece| line(json!({"role": "assistant", "content": piece})));
            }
            // Calls come whole.
            Item::Call { name, input, .. } => {
                let text = input_text(input);
                let arguments = serde_json::from_str(&text).unwrap_or(Value::String(text));
                let calls = json!([{"function": {"name": name, "arguments": arguments}}]);
                out.line(&line(json!({"role": "assistant", "content": "", "tool_calls": calls})));
            }
            Item::Stall(_) | Item::Cut(_) => {
                if out.interruption(item) {
                    return out.pieces;
                }
            }
            Item::Error { kind, message } => {
                out.line(&json!({"error": format!("{kind}: {message}")}));
                return out.pieces;
            }
        }
    }
    let reason = match stop {
        AnswerStop::EndTurn
        | AnswerStop::ToolUse
        | AnswerStop::StopSequence
        | AnswerStop::Pause
        | AnswerStop::Refusal => "stop",
        AnswerStop::MaxTokens | AnswerStop::ContextWindow => "length",
    };
    out.line(&json!({
        "model": model, "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": reason,
        "prompt_eval_count": usage.input + usage.cache_read + usage.cache_write, "eval_count": usage.output,
    }));
    out.pieces
}

impl Out {
    fn line(&mut self, data: &Value) {
        self.bytes(&format!("{data}\n"));
    }

    fn paced_lines(&mut self, text: &str, pace: crate::script::Pace, line: impl Fn(&str) -> Value) {
        self.paced_as(text, pace, |piece| format!("{}\n", line(piece)));
    }
}
