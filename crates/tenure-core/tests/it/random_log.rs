//! Logs of any shape, also such as no engine would write: results missing, repeated, out of order or
//! of no call, users talking in between, answers of several models.

use serde_json::{Value, json};
use tenure_core::{
    AgentId, Block, Body, CallKind, Compacted, Effect, Event, EventId, Json, Origin, Outcome, Permission, Summary,
    Timestamp,
};

/// Makes a log of pairs of random bytes: what happens, and a detail of it.
pub(crate) fn log(script: &[(u8, u8)]) -> Vec<Event> {
    let mut log = Log { events: Vec::new(), calls: Vec::new(), step: 0 };
    for (what, detail) in script {
        log.add(*what, *detail);
    }
    log.events
}

struct Log {
    events: Vec<Event>,
    calls: Vec<EventId>,
    step: u64,
}

impl Log {
    fn push(&mut self, body: Body) -> EventId {
        let seq = u64::try_from(self.events.len()).unwrap() + 1;
        let id = EventId::from_bits(u128::from(seq) << 20);
        self.events.push(Event { id, seq, at: Timestamp(0), step: self.step, body });
        id
    }

    fn add(&mut self, what: u8, detail: u8) {
        let text = ["", " ", "hello", "a\0b", "😀 \u{2028}", "\n"][usize::from(detail) % 6].to_owned();
        match what % 13 {
            0 => {
                self.push(Body::UserMessage { content: vec![Block::Text(text)] });
            }
            1 => {
                self.push(Body::SystemMessage { content: vec![Block::Text(text)] });
            }
            2 => self.step += 1,
            3 => {
                let origin = self.origin(detail, Wrote::Text(&text));
                self.push(Body::AgentMessage { text, origin });
            }
            4 => {
                let origin = self.origin(detail, Wrote::Thought);
                self.push(Body::AgentThinking { text, origin });
            }
            5 | 6 => self.call(detail),
            7 | 8 => self.result(detail, &text),
            9 => {
                self.push(Body::EnvironmentReset { reason: text, snapshot: None });
            }
            10 => {
                self.push(Body::StatusRunning);
            }
            11 => self.custom_result(detail, &text),
            _ => self.compact(detail, &text),
        }
    }

    /// Anywhere, also where no engine would cut.
    fn compact(&mut self, detail: u8, text: &str) {
        let next = u64::try_from(self.events.len()).unwrap() + 1;
        let keep_from = next.saturating_sub(u64::from(detail) % 16).max(1);
        let summary = (!detail.is_multiple_of(3)).then(|| Summary { text: text.to_owned(), ..Summary::default() });
        let compacted = Compacted { from: 1, keep_from, media_from: keep_from, summary, ..Compacted::default() };
        self.push(Body::ContextCompacted { compacted });
    }

    fn call(&mut self, detail: u8) {
        let origin = self.origin(detail, Wrote::Call);
        let input = Json::parse([r#"{"command":"ls"}"#, "{}", "[1]"][usize::from(detail) % 3]).unwrap();
        let name = "bash".to_owned();
        let id = if detail.is_multiple_of(4) {
            self.push(Body::AgentCustomToolUse { name, input, kind: CallKind::Custom, origin })
        } else {
            let (kind, effect, permission) = (CallKind::Sandbox, Effect::Once, Permission::Allow);
            self.push(Body::AgentToolUse { name, input, kind, effect, permission, malformed: None, origin })
        };
        self.calls.push(id);
    }

    fn result(&mut self, detail: u8, text: &str) {
        let tool_use_id = self.any_call(detail);
        let content = if detail.is_multiple_of(5) { Vec::new() } else { vec![Block::Text(text.to_owned())] };
        let outcome = if detail.is_multiple_of(2) { Outcome::Done } else { Outcome::Unknown };
        self.push(Body::AgentToolResult { tool_use_id, content, outcome });
    }

    fn custom_result(&mut self, detail: u8, text: &str) {
        let tool_use_id = self.any_call(detail);
        self.push(Body::UserCustomToolResult {
            tool_use_id,
            content: vec![Block::Text(text.to_owned())],
            is_error: detail.is_multiple_of(2),
        });
    }

    /// One of the calls so far, or one that was never made.
    fn any_call(&self, detail: u8) -> EventId {
        let place = usize::from(detail) % (self.calls.len() + 1);
        self.calls.get(place).copied().unwrap_or(EventId::from_bits(AgentId::from_bits(7).bits()))
    }
}

/// What an answer wrote.
enum Wrote<'a> {
    Text(&'a str),
    Thought,
    Call,
}

/// The dialects whose blocks occur.
const DIALECTS: [&str; 5] = ["anthropic", "openai", "responses", "gemini", "ollama"];

impl Log {
    /// By any dialect, by the model that is asked next or by another one, with or without verbatim blocks.
    ///
    /// Signatures name who wrote them, so that one that goes elsewhere is seen. Every call has the same
    /// id with its provider (case O-013).
    fn origin(&self, detail: u8, wrote: Wrote<'_>) -> Origin {
        let dialect = DIALECTS[usize::from(detail) % DIALECTS.len()];
        let model = ["p/m", "p/other"][usize::from(detail / 5) % 2];
        let is_kept = !(detail / 10).is_multiple_of(4);
        // The same answer in a fork, or a log that was copied: its ids come twice.
        let number = if (detail / 40).is_multiple_of(3) { 0 } else { self.events.len() };
        let signature = format!("sig:{dialect}:{model}:{number}");
        let blocks = if is_kept { blocks(dialect, &signature, number, detail / 10, &wrote) } else { Vec::new() };
        let blocks = blocks.iter().map(Json::from_value).collect();
        Origin { dialect: dialect.to_owned(), model: model.to_owned(), blocks }
    }
}

fn blocks(dialect: &str, signature: &str, number: usize, variant: u8, wrote: &Wrote<'_>) -> Vec<Value> {
    let is_odd = !variant.is_multiple_of(2);
    match (dialect, wrote) {
        ("anthropic", Wrote::Text(text)) => vec![json!({"type": "text", "text": text})],
        ("anthropic", Wrote::Thought) => vec![json!({"type": "thinking", "thinking": "hm", "signature": signature})],
        ("anthropic", Wrote::Call) => {
            vec![json!({"type": "tool_use", "id": "same", "name": "bash", "input": {}, "caller": {"type": "direct"}})]
        }
        ("openai", Wrote::Thought) => vec![json!({"reasoning_content": signature})],
        ("openai", Wrote::Call) => vec![json!({"extra_content": {"google": {"thought_signature": signature}}})],
        ("responses", Wrote::Text(_) | Wrote::Call) => {
            let mut reasoning = json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": []});
            if is_odd {
                reasoning["encrypted_content"] = json!(signature);
            }
            let item = match wrote {
                Wrote::Text(text) => json!({
                    "type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": format!("{text}."), "annotations": []}],
                }),
                Wrote::Thought | Wrote::Call => json!({
                    "type": "function_call", "id": format!("fc_{number}"), "call_id": "same", "name": "bash",
                    "arguments": "{}", "status": "completed",
                }),
            };
            // Masking can leave out one of them.
            match variant {
                5 => vec![reasoning],
                _ => vec![reasoning, item],
            }
        }
        ("gemini", Wrote::Text(text)) => {
            vec![json!({"text": text}), json!({"text": "", "thoughtSignature": signature})]
        }
        ("gemini", Wrote::Thought) => vec![json!({"text": "hm", "thought": true, "thoughtSignature": signature})],
        ("gemini", Wrote::Call) => {
            let mut call = json!({"name": "bash", "args": {}});
            if is_odd {
                call["id"] = json!("same");
            }
            vec![json!({"functionCall": call, "thoughtSignature": signature})]
        }
        _ => Vec::new(),
    }
}
