//! Writes requests for Chat Completions.
//!
//! Ids of calls are always ours (case O-013). Each result is a `tool` message right after its call's
//! message; what such a message cannot hold, such as images, follows in the user's next message.

use crate::attachment::{Content, FAILED, result_text};
use crate::dialect::{HttpRequest, NOTHING};
use serde_json::{Map, Value, json};
use tenure_core::{AssistantPart, Message, Origin, Prompt, UserPart};

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
    if has_path { format!("{base}/chat/completions") } else { format!("{base}/v1/chat/completions") }
}

fn body(base_url: &str, prompt: &Prompt, extra_body: &Map<String, Value>) -> Vec<u8> {
    let mut messages = Vec::new();
    if let Some(system) = prompt.system.as_deref().filter(|system| !system.trim().is_empty()) {
        messages.push(json!({"role": "system", "content": system}));
    }
    for message in &prompt.messages {
        match message {
            Message::User(parts) => user(parts, &mut messages),
            Message::Assistant(parts) => messages.push(assistant(parts, &prompt.model)),
        }
    }
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(prompt.model_name));
    body.insert("messages".to_owned(), Value::Array(messages));
    body.insert("stream".to_owned(), json!(true));
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    // OpenAI's reasoning models know only the new name, other servers often only the old one.
    let is_openai = base_url.starts_with("https://api.openai.com");
    let limit = if is_openai { "max_completion_tokens" } else { "max_tokens" };
    body.insert(limit.to_owned(), json!(prompt.max_output_tokens));
    // Requests of one conversation reach the server that has their beginning in its cache.
    if is_openai && !prompt.cache_key.is_empty() {
        body.insert("prompt_cache_key".to_owned(), json!(prompt.cache_key));
    }
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let function =
                json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema.to_value()});
            json!({"type": "function", "function": function})
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    crate::dialect::add_extra(&mut body, extra_body);
    Value::Object(body).to_string().into_bytes()
}

fn user(parts: &[UserPart], messages: &mut Vec<Value>) {
    let mut content = Vec::new();
    for part in parts {
        match part {
            UserPart::Result { call, content: blocks, is_error } => {
                let mut result = result_text(*call, blocks);
                content.append(&mut result.attachments);
                let text = if *is_error { FAILED.to_owned() + &result.text } else { result.text };
                messages.push(json!({"role": "tool", "tool_call_id": call.to_string(), "content": text}));
            }
            UserPart::Block(block) => content.push(Content::of(block)),
        }
    }
    if !content.is_empty() {
        messages.push(json!({"role": "user", "content": joined(&content)}));
    }
}

/// Text alone is sent as text, which every server takes.
fn joined(content: &[Content]) -> Value {
    let texts: Option<Vec<&str>> = content
        .iter()
        .map(|part| match part {
            Content::Text(text) => Some(text.as_str()),
            Content::Image { .. } | Content::ImageUrl(_) | Content::File { .. } => None,
        })
        .collect();
    match texts {
        Some(texts) => json!(texts.join("\n\n")),
        None => content.iter().map(part).collect(),
    }
}

fn part(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({"type": "text", "text": text}),
        Content::Image { media_type, data } => {
            json!({"type": "image_url", "image_url": {"url": Content::data_url(media_type, data)}})
        }
        Content::ImageUrl(url) => json!({"type": "image_url", "image_url": {"url": url}}),
        Content::File { name, media_type, data } => {
            json!({"type": "file", "file": {"filename": name, "file_data": Content::data_url(media_type, data)}})
        }
    }
}

fn assistant(parts: &[AssistantPart], model: &str) -> Value {
    let mut message = Map::new();
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            AssistantPart::Text { text, .. } if text.trim().is_empty() => {}
            AssistantPart::Text { text, .. } => texts.push(text.as_str()),
            AssistantPart::Thinking { origin, .. } => message.extend(own_fields(origin, model)),
            AssistantPart::ToolUse { call, name, input, origin } => {
                let mut fields = own_fields(origin, model);
                fields.insert("id".to_owned(), json!(call.to_string()));
                fields.insert("type".to_owned(), json!("function"));
                fields.insert("function".to_owned(), json!({"name": name, "arguments": input.as_str()}));
                calls.push(Value::Object(fields));
            }
        }
    }
    let content = match (texts.is_empty(), calls.is_empty()) {
        (true, true) => json!(NOTHING),
        (true, false) => Value::Null,
        (false, _) => json!(texts.join("\n\n")),
    };
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), content);
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

/// Fields that this very model wrote beside what we know, such as its reasoning.
fn own_fields(origin: &Origin, model: &str) -> Map<String, Value> {
    if origin.dialect != super::NAME || origin.model != model {
        return Map::new();
    }
    let objects = origin.blocks.iter().filter_map(|block| match block.to_value() {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    objects.flatten().collect()
}
