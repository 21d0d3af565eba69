//! Writes requests for Messages.
//!
//! Blocks that came from this dialect and model go back byte for byte; the id of a call is always
//! ours, in the call and in its result (case O-013). Reasoning goes to no other model (promise P4).

use crate::dialect::{HttpRequest, NOTHING};
use crate::verbatim::{raw, type_of, verbatim, with_field};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tenure_core::{AssistantPart, Block, EventId, Json, Message, Origin, Prompt, UserPart};

/// The version of the API that requests are written for.
const VERSION: &str = "2023-06-01";

/// User messages whose end is marked for the provider's cache: the newest, and the one before, which
/// the newest request's prefix was stored under.
const CACHED_MESSAGES: usize = 2;

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    fields: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Box<RawValue>>,
    messages: Vec<MessageOut<'a>>,
}

#[derive(Serialize)]
struct MessageOut<'a> {
    role: &'a str,
    content: Vec<Box<RawValue>>,
}

/// Writes the request for a prompt.
pub(crate) fn request(base_url: &str, prompt: &Prompt, extra_body: &Map<String, Value>) -> HttpRequest {
    let base = base_url.trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    HttpRequest {
        url: format!("{base}/v1/messages"),
        headers: vec![
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("anthropic-version", VERSION),
        ],
        key_header: ("x-api-key", ""),
        body: body(prompt, extra_body),
    }
}

fn body(prompt: &Prompt, extra_body: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), json!(prompt.model_name));
    fields.insert("max_tokens".to_owned(), json!(prompt.max_output_tokens));
    fields.insert("stream".to_owned(), json!(true));
    let system = prompt.system.as_deref().filter(|system| !system.trim().is_empty());
    if let Some(system) = system {
        fields.insert(
            "system".to_owned(),
            json!([{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]),
        );
    }
    crate::dialect::add_extra(&mut fields, extra_body);
    let mut tools: Vec<Box<RawValue>> = prompt
        .tools
        .iter()
        .map(|tool| {
            let parts = [
                ("name", raw(&tool.name)),
                ("description", raw(&tool.description)),
                ("input_schema", verbatim(&tool.input_schema)),
            ];
            raw(&BTreeMap::from(parts))
        })
        .collect();
    // The system text comes after the tools and caches them too.
    if system.is_none()
        && let Some(last) = tools.last_mut()
    {
        mark(last);
    }
    let mut messages: Vec<MessageOut<'_>> = prompt
        .messages
        .iter()
        .map(|message| match message {
            Message::User(parts) => MessageOut { role: "user", content: parts.iter().map(user_part).collect() },
            Message::Assistant(parts) => MessageOut { role: "assistant", content: assistant(parts, &prompt.model) },
        })
        .collect();
    let users = messages.iter_mut().rev().filter(|message| message.role == "user");
    for message in users.take(CACHED_MESSAGES) {
        if let Some(last) = message.content.last_mut() {
            mark(last);
        }
    }
    serde_json::to_vec(&Body { fields, tools, messages })
        .expect("maps with string keys and checked JSON can be written")
}

/// Marks the end of what the provider may keep in its cache.
fn mark(block: &mut Box<RawValue>) {
    if let Some(marked) = with_field(block, "cache_control", raw(&json!({"type": "ephemeral"}))) {
        *block = marked;
    }
}

fn user_part(part: &UserPart) -> Box<RawValue> {
    match part {
        UserPart::Block(block) => content(block),
        UserPart::Result { call, content: blocks, is_error } => {
            let mut fields = BTreeMap::from([
                ("type", raw("tool_result")),
                ("tool_use_id", raw(&call.to_string())),
                ("content", raw(&blocks.iter().map(content).collect::<Vec<_>>())),
            ]);
            if *is_error {
                fields.insert("is_error", raw(&true));
            }
            raw(&fields)
        }
    }
}

fn content(block: &Block) -> Box<RawValue> {
    match block {
        Block::Text(text) => raw(&json!({"type": "text", "text": text})),
        Block::Media { json, .. } => verbatim(json),
    }
}

fn assistant(parts: &[AssistantPart], model: &str) -> Vec<Box<RawValue>> {
    let mut blocks: Vec<Box<RawValue>> = parts.iter().flat_map(|part| assistant_part(part, model)).collect();
    if blocks.is_empty() {
        blocks.push(raw(&json!({"type": "text", "text": NOTHING})));
    }
    blocks
}

fn assistant_part(part: &AssistantPart, model: &str) -> Vec<Box<RawValue>> {
    let own = |origin: &Origin| {
        (origin.dialect == super::NAME && origin.model == model)
            .then(|| origin.blocks.iter().map(verbatim).collect::<Vec<_>>())
    };
    match part {
        AssistantPart::Thinking { origin, .. } => own(origin).unwrap_or_default(),
        AssistantPart::Text { text, origin } => match own(origin) {
            Some(blocks) if text.trim().is_empty() => {
                blocks.into_iter().filter(|block| type_of(block) != "text").collect()
            }
            Some(blocks) if !blocks.is_empty() => blocks,
            // Text without anything to see is refused by the provider.
            _ if text.trim().is_empty() => Vec::new(),
            _ => vec![raw(&json!({"type": "text", "text": text}))],
        },
        AssistantPart::ToolUse { call, name, input, origin } => match own(origin) {
            Some(blocks) if !blocks.is_empty() => {
                blocks.into_iter().map(|block| with_our_id(block, *call, input)).collect()
            }
            _ => vec![raw(&BTreeMap::from([
                ("type", raw("tool_use")),
                ("id", raw(&call.to_string())),
                ("name", raw(name)),
                ("input", verbatim(input)),
            ]))],
        },
    }
}

/// The call itself gets our id, and the input as the log has it; blocks beside it stay.
fn with_our_id(block: Box<RawValue>, call: EventId, input: &Json) -> Box<RawValue> {
    if type_of(&block) != "tool_use" {
        return block;
    }
    with_field(&block, "id", raw(&call.to_string()))
        .and_then(|block| with_field(&block, "input", verbatim(input)))
        .unwrap_or(block)
}
