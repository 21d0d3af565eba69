//! A played turn in the words of Gemini.

use super::{Out, Piece};
use crate::script::play::input_text;
use crate::script::scenario::Item;
use serde_json::{Value, json};
use tenure_core::{AnswerStop, Usage};

/// The stream of a turn in the words of Gemini.
pub fn gemini_stream(items: &[Item], stop: AnswerStop, usage: Usage) -> Vec<Piece> {
    let mut out = Out { pieces: Vec::new(), has_names: false };
    let chunk = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]});
    let mut reason = match stop {
        AnswerStop::EndTurn | AnswerStop::ToolUse | AnswerStop::StopSequence | AnswerStop::Pause => "STOP",
        AnswerStop::MaxTokens | AnswerStop::ContextWindow => "MAX_TOKENS",
        AnswerStop::Refusal => "SAFETY",
    };
    for item in items {
        match item {
            Item::Think { text, pace } => {
                out.paced(text, *pace, |piece| chunk(json!({"text": piece, "thought": true})))
            }
            Item::Say { text, pace } => out.paced(text, *pace, |piece| chunk(json!({"text": piece}))),
            // Calls come whole; one that is no JSON is what the provider itself cannot read.
            Item::Call { name, input, .. } => match serde_json::from_str::<Value>(&input_text(input)) {
                Ok(args) => {
                    let call = json!({"name": name, "args": args});
                    out.event(&chunk(json!({"functionCall": call, "thoughtSignature": "c2NyaXB0"})));
                }
                Err(_) => reason = "MALFORMED_FUNCTION_CALL",
            },
            Item::Stall(_) | Item::Cut(_) => {
                if out.interruption(item) {
                    return out.pieces;
                }
            }
            Item::Error { kind, message } => {
                // As it comes from there: on lines of its own, without `data:`.
                let error = json!({"error": {"status": kind, "message": message}});
                out.bytes(&format!("{error:#}\n"));
                return out.pieces;
            }
        }
    }
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    out.event(&json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": reason, "index": 0}],
        "usageMetadata": {
            "promptTokenCount": prompt, "cachedContentTokenCount": usage.cache_read,
            "candidatesTokenCount": usage.output, "totalTokenCount": prompt + usage.output,
        },
    }));
    out.pieces
}
