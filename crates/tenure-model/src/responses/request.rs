//! Writes requests for Responses.
//!
//! The whole history is sent each time and nothing is left with the provider (`store: false`), so no
//! id of a stored response can be gone. A reasoning item goes back to the model that wrote it, with
//! the item after it or not at all (case O-024), and only if it carries its content: without that the
//! provider would look for it in its own store. Ids of calls are always ours (case O-013).

use crate::attachment::{Content, FAILED, result_text};
use crate::dialect::{HttpRequest, NOTHING, add_extra};
use crate::verbatim::{raw, type_of, verbatim, with_field};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use tenure_core::{AssistantPart, EventId, Json, Message, Origin, Prompt, UserPart};

/// What makes reasoning items carry their content.
const ENCRYPTED: &str = "reasoning.encrypted_content";

#[derive(Serialize)]
struct Body {
    #[serde(flatten)]
    fields: Map<String, Value>,
    input: Vec<Box<RawValue>>,
}

/// Writes the request for a prompt.
pub(crate) fn request(base_url: &str, prompt: &Prompt, extra_body: &Map<String, Value>) -> HttpRequest {
    HttpRequest {
        url: url(base_url),
        headers: vec![("content-type", "application/json"), ("accept", "text/event-stream")],
        key_header: ("authorization", "Bearer "),
        body: body(base_url, prompt, extra_body),
    }
}

/// A base without any path means the usual `/v1`.
fn url(base_url: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path { format!("{base}/responses") } else { format!("{base}/v1/responses") }
}

fn body(base_url: &str, prompt: &Prompt, extra_body: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), json!(prompt.model_name));
    if let Some(system) = prompt.system.as_deref().filter(|system| !system.trim().is_empty()) {
        fields.insert("instructions".to_owned(), json!(system));
    }
    fields.insert("stream".to_owned(), json!(true));
    fields.insert("store".to_owned(), json!(false));
    fields.insert("max_output_tokens".to_owned(), json!(prompt.max_output_tokens));
    // Requests of one conversation reach the server that has their beginning in its cache; other servers
    // of this dialect may refuse a field that they do not know.
    if base_url.starts_with("https://api.openai.com") && !prompt.cache_key.is_empty() {
        fields.insert("prompt_cache_key".to_owned(), json!(prompt.cache_key));
    }
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.input_schema.to_value(), "strict": false,
            })
        });
        fields.insert("tools".to_owned(), tools.collect());
    }
    // Models that do not reason answer 400 to this.
    if is_reasoning(&prompt.model_name) || extra_body.contains_key("reasoning") {
        fields.insert("include".to_owned(), json!([ENCRYPTED]));
    }
    add_extra(&mut fields, extra_body);
    let mut input = Input { items: Vec::new(), sent: BTreeSet::new(), model: &prompt.model };
    for message in &prompt.messages {
        match message {
            Message::User(parts) => input.user(parts),
            Message::Assistant(parts) => input.assistant(parts),
        }
    }
    serde_json::to_vec(&Body { fields, input: input.items })
        .expect("maps with string keys and checked JSON can be written")
}

/// Whether a name is one of OpenAI's reasoning models: `o3`, `gpt-5-mini`, a `codex`, but no `-chat`.
fn is_reasoning(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let digit_after = |start: &str| {
        let digits: String = name.strip_prefix(start)?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let is_known = digit_after("o").is_some() || digit_after("gpt-").is_some_and(|version| version >= 5);
    (is_known || name.contains("codex")) && !name.contains("-chat")
}

struct Input<'a> {
    items: Vec<Box<RawValue>>,
    /// Ids of the provider's own items so far; it refuses one that comes twice.
    sent: BTreeSet<String>,
    model: &'a str,
}

impl Input<'_> {
    fn user(&mut self, parts: &[UserPart]) {
        let mut content = Vec::new();
        for part in parts {
            match part {
                UserPart::Result { call, content: blocks, is_error } => {
                    let mut result = result_text(*call, blocks);
                    content.append(&mut result.attachments);
                    let text = if *is_error { FAILED.to_owned() + &result.text } else { result.text };
                    self.items.push(raw(
                        &json!({"type": "function_call_output", "call_id": call.to_string(), "output": text}),
                    ));
                }
                UserPart::Block(block) => content.push(Content::of(block)),
            }
        }
        if !content.is_empty() {
            let content: Vec<Value> = content.iter().map(input_part).collect();
            self.items.push(raw(&json!({"type": "message", "role": "user", "content": content})));
        }
    }

    fn assistant(&mut self, parts: &[AssistantPart]) {
        let before = self.items.len();
        for part in parts {
            match part {
                // Reasoning stands with the block after it.
                AssistantPart::Thinking { .. } => {}
                AssistantPart::Text { text, origin } => match self.own(origin, "message") {
                    Some(items) => self.items.extend(items),
                    None if text.trim().is_empty() => {}
                    None => self.items.push(said(text)),
                },
                AssistantPart::ToolUse { call, name, input, origin } => match self.own(origin, "function_call") {
                    Some(items) => self.items.extend(items.into_iter().map(|item| with_our_id(item, *call, input))),
                    None => self.items.push(raw(&json!({
                        "type": "function_call", "call_id": call.to_string(), "name": name, "arguments": input.as_str(),
                    }))),
                },
            }
        }
        if self.items.len() == before {
            self.items.push(said(NOTHING));
        }
    }

    /// The items as this very model wrote them: what stood before, and the item itself at the end.
    fn own(&mut self, origin: &Origin, kind: &str) -> Option<Vec<Box<RawValue>>> {
        if origin.dialect != super::NAME || origin.model != self.model {
            return None;
        }
        let items: Vec<Value> = origin.blocks.iter().map(Json::to_value).collect();
        let is_whole = items.last().is_some_and(|last| last["type"] == kind)
            && items.iter().filter(|item| item["type"] == kind).count() == 1
            && items.iter().all(|item| item["type"] != "reasoning" || item["encrypted_content"].is_string());
        let mut ids = BTreeSet::new();
        let is_new = items
            .iter()
            .filter_map(|item| item["id"].as_str())
            .all(|id| !self.sent.contains(id) && ids.insert(id.to_owned()));
        if !is_whole || !is_new {
            return None;
        }
        self.sent.append(&mut ids);
        Some(origin.blocks.iter().map(verbatim).collect())
    }
}

fn said(text: &str) -> Box<RawValue> {
    let content = json!([{"type": "output_text", "text": text}]);
    raw(&json!({"type": "message", "role": "assistant", "content": content}))
}

fn input_part(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({"type": "input_text", "text": text}),
        Content::Image { media_type, data } => {
            json!({"type": "input_image", "detail": "auto", "image_url": Content::data_url(media_type, data)})
        }
        Content::ImageUrl(url) => json!({"type": "input_image", "detail": "auto", "image_url": url}),
        Content::File { name, media_type, data } => {
            json!({"type": "input_file", "filename": name, "file_data": Content::data_url(media_type, data)})
        }
    }
}

/// The call itself gets our id, and the input as the log has it; items beside it stay.
fn with_our_id(item: Box<RawValue>, call: EventId, input: &Json) -> Box<RawValue> {
    if type_of(&item) != "function_call" {
        return item;
    }
    with_field(&item, "call_id", raw(&call.to_string()))
        .and_then(|item| with_field(&item, "arguments", raw(input.as_str())))
        .unwrap_or(item)
}
