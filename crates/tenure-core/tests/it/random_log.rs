//! Logs of any shape, also such as no engine would write: results missing, repeated, out of order or
//! of no call, users talking in between, answers of several models.

use tenure_core::{
    AgentId, Block, Body, CallKind, Effect, Event, EventId, Json, Origin, Outcome, Permission, Timestamp,
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
        match what % 12 {
            0 => {
                self.push(Body::UserMessage { content: vec![Block::Text(text)] });
            }
            1 => {
                self.push(Body::SystemMessage { content: vec![Block::Text(text)] });
            }
            2 => self.step += 1,
            3 => {
                self.push(Body::AgentMessage { text: text.clone(), origin: origin(detail, &plain_text(&text)) });
            }
            4 => {
                let block = format!(r#"{{"type":"thinking","thinking":"hm","signature":"{detail}"}}"#);
                self.push(Body::AgentThinking { text, origin: origin(detail, &block) });
            }
            5 | 6 => self.call(detail),
            7 | 8 => self.result(detail, &text),
            9 => {
                self.push(Body::EnvironmentReset { reason: text });
            }
            10 => {
                self.push(Body::StatusRunning);
            }
            _ => self.custom_result(detail, &text),
        }
    }

    fn call(&mut self, detail: u8) {
        // Every call has the same id with its provider (case O-013).
        let origin =
            origin(detail, r#"{"type":"tool_use","id":"same","name":"bash","input":{},"caller":{"type":"direct"}}"#);
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

fn plain_text(text: &str) -> String {
    Json::from_value(&text.into()).as_str().replacen('"', "{\"type\":\"text\",\"text\":\"", 1) + "}"
}

/// By this dialect and model or by another one, with or without the verbatim block.
fn origin(detail: u8, block: &str) -> Origin {
    let dialect = ["anthropic", "openai"][usize::from(detail) % 2].to_owned();
    let model = ["p/m", "p/other"][usize::from(detail / 2) % 2].to_owned();
    let is_kept = (detail / 4).is_multiple_of(2) && dialect == "anthropic";
    Origin { dialect, model, blocks: if is_kept { vec![Json::parse(block).unwrap()] } else { Vec::new() } }
}
