//! Writes requests for Ollama's own API.
//!
//! Calls and results have no ids there: a result names its tool and stands in the order of the calls,
//! right after their message. Reasoning goes back to the model that wrote it.

use crate::attachment::{Content, FAILED, UNREADABLE, result_text};
use crate::dialect::{HttpRequest, NOTHING, add_extra};
use crate::verbatim::{raw, verbatim};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tenure_core::{AssistantPart, EventId, Message, Prompt, UserPart};

#[derive(Serialize)]
struct Body {
    #[serde(flatten)]
    fields: Map<String, Value>,
    messages: Vec<Box<RawValue>>,
}

/// Writes the request for a prompt.
pub(crate) fn request(base_url: &str, prompt: &Prompt, extra_body: &Map<String, Value>) -> HttpRequest {
    HttpRequest {
        url: url(base_url),
        headers: vec![("content-type", "application/json"), ("accept", "application/x-ndjson")],
        key_header: ("authorization", "Bearer "),
        body: body(prompt, extra_body),
    }
}

/// Addresses of the same server's other API are taken too.
fn url(base_url: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let base = base.strip_suffix("/api").or_else(|| base.strip_suffix("/v1")).unwrap_or(base);
    format!("{base}/api/chat")
}

fn body(prompt: &Prompt, extra_body: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), json!(prompt.model_name));
    fields.insert("stream".to_owned(), json!(true));
    fields.insert("options".to_owned(), json!({"num_predict": prompt.max_output_tokens}));
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let function =
                json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema.to_value()});
            json!({"type": "function", "function": function})
        });
        fields.insert("tools".to_owned(), tools.collect());
    }
    add_extra(&mut fields, extra_body);
    let mut writer = Writer { messages: Vec::new(), names: BTreeMap::new(), model: &prompt.model };
    if let Some(system) = prompt.system.as_deref().filter(|system| !system.trim().is_empty()) {
        writer.messages.push(raw(&json!({"role": "system", "content": system})));
    }
    for message in &prompt.messages {
        match message {
            Message::User(parts) => writer.user(parts),
            Message::Assistant(parts) => writer.assistant(parts),
        }
    }
    serde_json::to_vec(&Body { fields, messages: writer.messages })
        .expect("maps with string keys and checked JSON can be written")
}

struct Writer<'a> {
    messages: Vec<Box<RawValue>>,
    /// Names of the tools of the calls so far.
    names: BTreeMap<EventId, &'a str>,
    model: &'a str,
}

impl<'a> Writer<'a> {
    fn user(&mut self, parts: &[UserPart]) {
        let mut content = Vec::new();
        for part in parts {
            match part {
                UserPart::Result { call, content: blocks, is_error } => {
                    let mut result = result_text(*call, blocks);
                    content.append(&mut result.attachments);
                    let text = if *is_error { FAILED.to_owned() + &result.text } else { result.text };
                    let name = self.names.get(call).copied().unwrap_or("unknown");
                    self.messages.push(raw(&json!({"role": "tool", "tool_name": name, "content": text})));
                }
                UserPart::Block(block) => content.push(Content::of(block)),
            }
        }
        if content.is_empty() {
            return;
        }
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for part in content {
            match part {
                Content::Text(text) => texts.push(text),
                Content::Image { data, .. } => images.push(data),
                Content::ImageUrl(url) => texts.push(format!("{UNREADABLE} ({url})")),
                Content::File { name, .. } => texts.push(format!("{UNREADABLE} ({name})")),
            }
        }
        let mut message = json!({"role": "user", "content": texts.join("\n\n")});
        if !images.is_empty() {
            message["images"] = json!(images);
        }
        self.messages.push(raw(&message));
    }

    fn assistant(&mut self, parts: &'a [AssistantPart]) {
        let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match part {
                AssistantPart::Text { text, .. } if text.trim().is_empty() => {}
                AssistantPart::Text { text, .. } => texts.push(text.as_str()),
                AssistantPart::Thinking { text, origin } => {
                    let is_own = origin.dialect == super::NAME && origin.model == self.model;
                    thoughts.extend((is_own && !text.trim().is_empty()).then_some(text.as_str()));
                }
                AssistantPart::ToolUse { call, name, input, .. } => {
                    self.names.insert(*call, name);
                    let function = BTreeMap::from([("name", raw(name)), ("arguments", verbatim(input))]);
                    calls.push(BTreeMap::from([("function", raw(&function))]));
                }
            }
        }
        let is_nothing = texts.is_empty() && calls.is_empty();
        let text = if is_nothing { NOTHING.to_owned() } else { texts.join("\n\n") };
        let mut message = BTreeMap::from([("role", raw("assistant")), ("content", raw(&text))]);
        if !thoughts.is_empty() {
            message.insert("thinking", raw(&thoughts.join("\n\n")));
        }
        if !calls.is_empty() {
            message.insert("tool_calls", raw(&calls));
        }
        self.messages.push(raw(&message));
    }
}
