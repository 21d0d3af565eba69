//! A played turn in the words of Responses.

use super::{Out, Piece};
use crate::script::play::input_text;
use crate::script::scenario::Item;
use serde_json::{Value, json};
use tenure_core::{AnswerStop, Usage};

/// The stream of a turn in the words of Responses.
pub fn responses_stream(model: &str, items: &[Item], stop: AnswerStop, usage: Usage) -> Vec<Piece> {
    let mut out = Out { pieces: Vec::new(), has_names: true };
    let response = |status: &str| json!({"id": "resp_script", "object": "response", "status": status, "model": model, "output": []});
    out.event(&json!({"type": "response.created", "response": response("in_progress")}));
    let mut index = 0usize;
    for item in items {
        let delta = |kind: &str, piece: &str| json!({"type": format!("response.{kind}.delta"), "item_id": format!("item_{index}"), "output_index": index, "delta": piece});
        // A stall between a block and its end, or a cut in it, leaves the block open.
        match item {
            Item::Think { text, pace } => {
                out.added(index, json!({"type": "reasoning", "summary": []}));
                out.paced(text, *pace, |piece| delta("reasoning_summary_text", piece));
                let summary = json!([{"type": "summary_text", "text": text}]);
                out.done(index, json!({"type": "reasoning", "summary": summary, "encrypted_content": "c2NyaXB0"}));
            }
            Item::Say { text, pace } => {
                out.added(index, json!({"type": "message", "role": "assistant", "content": []}));
                out.paced(text, *pace, |piece| delta("output_text", piece));
                let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
                out.done(index, json!({"type": "message", "role": "assistant", "content": content}));
            }
            Item::Call { name, input, pace } => {
                let call = |arguments: &str| json!({"type": "function_call", "call_id": format!("call_{index}"), "name": name, "arguments": arguments});
                let input = input_text(input);
                out.added(index, call(""));
                out.paced(&input, *pace, |piece| delta("function_call_arguments", piece));
                out.done(index, call(&input));
            }
            Item::Stall(_) | Item::Cut(_) => {
                if out.interruption(item) {
                    return out.pieces;
                }
                continue;
            }
            Item::Error { kind, message } => {
                out.event(&json!({"type": "error", "code": kind, "message": message, "param": null}));
                return out.pieces;
            }
        }
        index += 1;
    }
    let (kind, status, why) = match stop {
        AnswerStop::EndTurn | AnswerStop::ToolUse | AnswerStop::StopSequence | AnswerStop::Pause => {
            ("response.completed", "completed", Value::Null)
        }
        AnswerStop::MaxTokens | AnswerStop::ContextWindow => {
            ("response.incomplete", "incomplete", json!({"reason": "max_output_tokens"}))
        }
        AnswerStop::Refusal => ("response.incomplete", "incomplete", json!({"reason": "content_filter"})),
    };
    let mut response = response(status);
    let input = usage.input + usage.cache_read + usage.cache_write;
    response["incomplete_details"] = why;
    response["usage"] = json!({
        "input_tokens": input, "output_tokens": usage.output, "total_tokens": input + usage.output,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
    });
    out.event(&json!({"type": kind, "response": response}));
    out.pieces
}

impl Out {
    fn added(&mut self, index: usize, item: Value) {
        self.item("added", index, item);
    }

    fn done(&mut self, index: usize, item: Value) {
        self.item("done", index, item);
    }

    fn item(&mut self, what: &str, index: usize, mut item: Value) {
        item["id"] = json!(format!("item_{index}"));
        self.event(&json!({"type": format!("response.output_item.{what}"), "output_index": index, "item": item}));
    }
}
