//! Writes requests for Gemini.
//!
//! Signed parts go back byte for byte to the model that wrote them, and to no other one. Calls of this
//! dialect need no id: where one came, call and result carry ours (case O-013), and where none came
//! neither does, and results stand in the order of their calls.

use crate::attachment::{Content, UNREADABLE, result_text};
use crate::dialect::{HttpRequest, NOTHING, add_extra};
use crate::verbatim::{raw, verbatim, with_field};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use tenure_core::{AssistantPart, EventId, Json, Message, Origin, Prompt, UserPart};

/// What the provider wants in the place of a signature for calls that another model made.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The first generation of models that insists on signatures.
const SIGNED_SINCE: u32 = 3;

#[derive(Serialize)]
struct Body {
    #[serde(flatten)]
    fields: Map<String, Value>,
    contents: Vec<ContentOut>,
}

#[derive(Serialize)]
struct ContentOut {
    role: &'static str,
    parts: Vec<Box<RawValue>>,
}

/// Writes the request for a prompt.
pub(crate) fn request(base_url: &str, prompt: &Prompt, extra_body: &Map<String, Value>) -> HttpRequest {
    HttpRequest {
        url: url(base_url, &prompt.model_name),
        headers: vec![("content-type", "application/json"), ("accept", "text/event-stream")],
        key_header: ("x-goog-api-key", ""),
        body: body(prompt, extra_body),
    }
}

/// A base without any path means the usual `/v1beta`; names may be given with `models/` or another
/// collection before them.
fn url(base_url: &str, model: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    let version = if has_path { "" } else { "/v1beta" };
    let collection = if model.contains('/') { "" } else { "models/" };
    let mut name = String::new();
    for byte in model.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'@' => {
                name.push(char::from(byte));
            }
            other => {
                // Writing to a string cannot fail.
                let _ = write!(name, "%{other:02X}");
            }
        }
    }
    format!("{base}{version}/{collection}{name}:streamGenerateContent?alt=sse")
}

fn body(prompt: &Prompt, extra_body: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Map::new();
    if let Some(system) = prompt.system.as_deref().filter(|system| !system.trim().is_empty()) {
        fields.insert("systemInstruction".to_owned(), json!({"parts": [{"text": system}]}));
    }
    if !prompt.tools.is_empty() {
        let tools: Vec<Value> = prompt
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name, "description": tool.description,
                    "parametersJsonSchema": tool.input_schema.to_value(),
                })
            })
            .collect();
        fields.insert("tools".to_owned(), json!([{"functionDeclarations": tools}]));
    }
    fields.insert("generationConfig".to_owned(), json!({"maxOutputTokens": prompt.max_output_tokens}));
    add_extra(&mut fields, extra_body);
    let mut writer = Writer { prompt, calls: BTreeMap::new() };
    let contents = prompt
        .messages
        .iter()
        .map(|message| match message {
            Message::User(parts) => ContentOut { role: "user", parts: writer.user(parts) },
            Message::Assistant(parts) => ContentOut { role: "model", parts: writer.assistant(parts) },
        })
        .collect();
    serde_json::to_vec(&Body { fields, contents }).expect("maps with string keys and checked JSON can be written")
}

/// How a call was sent, which its result has to repeat.
struct SentCall<'a> {
    name: &'a str,
    has_id: bool,
}

struct Writer<'a> {
    prompt: &'a Prompt,
    calls: BTreeMap<EventId, SentCall<'a>>,
}

impl<'a> Writer<'a> {
    fn user(&self, parts: &[UserPart]) -> Vec<Box<RawValue>> {
        let (mut out, mut content) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                UserPart::Result { call, content: blocks, is_error } => {
                    let mut result = result_text(*call, blocks);
                    content.append(&mut result.attachments);
                    let field = if *is_error { "error" } else { "output" };
                    let sent = self.calls.get(call);
                    let mut response = json!({
                        "name": sent.map_or("unknown", |sent| sent.name), "response": {field: result.text},
                    });
                    if sent.is_some_and(|sent| sent.has_id) {
                        response["id"] = json!(call.to_string());
                    }
                    out.push(raw(&json!({"functionResponse": response})));
                }
                UserPart::Block(block) => content.push(Content::of(block)),
            }
        }
        out.extend(content.iter().map(|content| raw(&part(content))));
        out
    }

    fn assistant(&mut self, parts: &'a [AssistantPart]) -> Vec<Box<RawValue>> {
        let mut out = Vec::new();
        for part in parts {
            match part {
                AssistantPart::Thinking { origin, .. } => out.extend(self.own(origin)),
                AssistantPart::Text { text, origin } => match self.own(origin) {
                    own if !own.is_empty() => out.extend(own),
                    _ if text.trim().is_empty() => {}
                    _ => out.push(raw(&json!({"text": text}))),
                },
                AssistantPart::ToolUse { call, name, input, origin } => {
                    let own = self.own(origin);
                    let has_id = own.iter().any(|part| has_id(part));
                    self.calls.insert(*call, SentCall { name, has_id });
                    if own.iter().filter(|part| is_call(part)).count() == 1 {
                        out.extend(own.into_iter().map(|part| with_our_id(part, *call, name, input)));
                    } else {
                        out.push(self.plain_call(name, input, origin));
                    }
                }
            }
        }
        if out.is_empty() {
            out.push(raw(&json!({"text": NOTHING})));
        }
        out
    }

    /// Parts that this very model wrote.
    fn own(&self, origin: &Origin) -> Vec<Box<RawValue>> {
        let is_own = origin.dialect == super::NAME && origin.model == self.prompt.model;
        if is_own { origin.blocks.iter().map(verbatim).collect() } else { Vec::new() }
    }

    fn plain_call(&self, name: &str, input: &Json, origin: &Origin) -> Box<RawValue> {
        let call = raw(&BTreeMap::from([("name", raw(name)), ("args", verbatim(input))]));
        let is_own = origin.dialect == super::NAME && origin.model == self.prompt.model;
        let mut part = BTreeMap::from([("functionCall", call)]);
        if !is_own && generation(&self.prompt.model_name).is_some_and(|generation| generation >= SIGNED_SINCE) {
            part.insert("thoughtSignature", raw(FOREIGN_SIGNATURE));
        }
        raw(&part)
    }
}

/// `3` of `gemini-3-pro` and `gemini-3.1-flash`.
fn generation(model: &str) -> Option<u32> {
    let rest = model.rsplit('/').next()?.strip_prefix("gemini-")?;
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn is_call(part: &RawValue) -> bool {
    serde_json::from_str::<Value>(part.get()).is_ok_and(|part| part["functionCall"].is_object())
}

fn has_id(part: &RawValue) -> bool {
    serde_json::from_str::<Value>(part.get())
        .is_ok_and(|part| part["functionCall"]["id"].as_str().is_some_and(|id| !id.is_empty()))
}

/// The call itself gets our id if it had one, and the input as the log has it; its signature stays.
fn with_our_id(part: Box<RawValue>, id: EventId, name: &str, input: &Json) -> Box<RawValue> {
    if !is_call(&part) {
        return part;
    }
    let mut call = BTreeMap::from([("name", raw(name)), ("args", verbatim(input))]);
    if has_id(&part) {
        call.insert("id", raw(&id.to_string()));
    }
    with_field(&part, "functionCall", raw(&call)).unwrap_or(part)
}

fn part(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({"text": text}),
        Content::Image { media_type, data } | Content::File { media_type, data, .. } => {
            json!({"inlineData": {"mimeType": media_type, "data": data}})
        }
        // The provider reads addresses of its own storage only.
        Content::ImageUrl(url) => json!({"text": format!("{UNREADABLE} ({url})")}),
    }
}
