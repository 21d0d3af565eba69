//! Reads streamed Responses.
//!
//! ```text
//! response.created (output_item.added …delta* output_item.done)* response.completed|incomplete|failed
//! error: anywhere; unknown events: ignored
//! ```
//! A reasoning item and the item after it belong together (case O-024): its verbatim text is kept with
//! the block that follows, in one row of the log, so that neither goes back without the other. Items
//! that we do not know ride along in the same way.

use crate::decoder::{EventError, MAX_ANSWER_BLOCKS, OnEvent, Protocol, Sign, SseDecoder, tool_input};
use crate::model::{BlockPreview, StreamEvent};
use crate::reason::{Reason, reason};
use crate::sse::SseEvent;
use crate::text::Text;
use crate::verbatim::{is_nothing, kept};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tenure_core::failure::{Class, Failure, Reply, classify, incomplete};
use tenure_core::{Answer, AnswerBlock, AnswerStop, BlockKind, Json, Usage, clean_surrogates};

/// A reader for one answer of `model` (`provider/model`).
pub(crate) fn decoder(model: &str) -> SseDecoder<Items> {
    SseDecoder::new(Items { model: model.to_owned(), ..Items::default() })
}

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Items {
    model: String,
    items: Vec<OpenItem>,
    placed: usize,
    has_refused: bool,
    stop: Option<AnswerStop>,
    usage: Usage,
}

#[derive(Debug)]
struct OpenItem {
    /// The provider's number of the item, and its id.
    index: u64,
    id: String,
    /// Place in the answer; none for items without anything to see so far.
    place: Option<usize>,
    kind: Kind,
    /// The item as it ended, byte for byte.
    done: Option<String>,
}

#[derive(Debug)]
enum Kind {
    Message(String),
    Reasoning(String),
    Call { id: String, name: String, arguments: String },
    Other,
}

/// Items that need an answer of ours which we cannot give, because we never offered their tools.
const UNANSWERABLE: [&str; 6] =
    ["computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request", "tool_search_call"];

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(borrow, default)]
    item_id: Text<'a>,
    #[serde(borrow, default)]
    delta: Text<'a>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(default)]
    error: Value,
}

impl Protocol for Items {
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<Sign, EventError> {
        if event.data.trim().is_empty() || event.data.trim() == "[DONE]" {
            return Ok(Sign::Life);
        }
        let data = clean_surrogates(&event.data);
        let envelope: Envelope<'_> = serde_json::from_str(&data).map_err(|error| EventError::unreadable(&error))?;
        let kind = if envelope.kind.is_empty() { event.name.as_str() } else { &*envelope.kind };
        match kind {
            "error" => return Err(EventError::of_error(&data)),
            "" if !is_nothing(&envelope.error) => return Err(EventError::of_error(&data)),
            "response.output_item.added" => {
                let (item, _) = parse(envelope.item)?;
                self.open(envelope.output_index, &item, on_event)?;
            }
            "response.output_item.done" => {
                let (item, text) = parse(envelope.item)?;
                self.done(envelope.output_index, &item, text, on_event)?;
            }
            "response.output_text.delta" => self.text(&envelope, on_event)?,
            "response.refusal.delta" => {
                self.has_refused = true;
                self.text(&envelope, on_event)?;
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.thinking(&envelope, &envelope.delta, on_event)?;
            }
            // Parts of a summary are paragraphs.
            "response.reasoning_summary_part.added" => self.thinking(&envelope, "", on_event)?,
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.arguments(&envelope, on_event)?;
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let (response, _) = parse(envelope.response)?;
                self.end(kind, &response, on_event)?;
            }
            "response.created" | "response.queued" | "response.in_progress" => return Ok(Sign::Life),
            // Events of items that we do not know, and such as do not exist yet.
            kind => return Ok(Sign::of(kind.starts_with("response."))),
        }
        Ok(Sign::Progress)
    }

    fn is_complete(&self) -> bool {
        self.stop.is_some()
    }

    fn answer(&mut self, on_event: OnEvent<'_>) -> Option<Answer> {
        let stop = self.stop?;
        for index in 0..self.placed {
            on_event(StreamEvent::BlockStop { index });
        }
        let blocks = assemble(std::mem::take(&mut self.items));
        let stop = match stop {
            _ if self.has_refused => AnswerStop::Refusal,
            // What is there decides, whatever the reason says (case O-016).
            AnswerStop::EndTurn if blocks.iter().any(is_call) => AnswerStop::ToolUse,
            stop => stop,
        };
        Some(Answer {
            dialect: super::NAME.to_owned(),
            model: self.model.clone(),
            blocks,
            stop,
            usage: self.usage,
            request_id: None,
        })
    }
}

fn is_call(block: &AnswerBlock) -> bool {
    matches!(block.kind, BlockKind::ToolUse { .. })
}

fn parse(value: Option<&RawValue>) -> Result<(Value, &str), EventError> {
    let text = value.map_or("null", RawValue::get);
    let value = serde_json::from_str(text).map_err(|error| EventError::unreadable(&error))?;
    Ok((value, text))
}

impl Items {
    /// The open item of an event: by its number, by its id, else the newest.
    fn find(&mut self, index: Option<u64>, id: &str) -> Option<&mut OpenItem> {
        let found = |item: &&mut OpenItem| match index {
            Some(index) => item.index == index,
            None => id.is_empty() || item.id == id,
        };
        self.items.iter_mut().rev().find(found)
    }

    /// Opens an item, or gives it back if it is open.
    fn open(
        &mut self,
        index: Option<u64>,
        item: &Value,
        on_event: OnEvent<'_>,
    ) -> Result<Option<&mut OpenItem>, EventError> {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let next = self.items.iter().map(|item| item.index.saturating_add(1)).max().unwrap_or(0);
        let is_open = self.find(index, &text("id")).is_some() && (index.is_some() || !text("id").is_empty());
        if !is_open {
            if self.items.len() >= MAX_ANSWER_BLOCKS {
                return Err(EventError::too_many_blocks());
            }
            let (kind, preview) = match &*text("type") {
                "message" => (Kind::Message(String::new()), None),
                "reasoning" => (Kind::Reasoning(String::new()), None),
                "function_call" | "custom_tool_call" => {
                    let (id, name) = (text("call_id"), text("name"));
                    let preview = BlockPreview::ToolUse { name: name.clone() };
                    (Kind::Call { id, name, arguments: String::new() }, Some(preview))
                }
                _ => (Kind::Other, None),
            };
            let place = preview.map(|kind| self.place(kind, on_event));
            self.items.push(OpenItem { index: index.unwrap_or(next), id: text("id"), place, kind, done: None });
        }
        Ok(self.find(index, &text("id")))
    }

    fn place(&mut self, kind: BlockPreview, on_event: OnEvent<'_>) -> usize {
        let index = self.placed;
        self.placed += 1;
        on_event(StreamEvent::BlockStart { index, kind });
        index
    }

    /// Takes an item as it ended: it is the truth, and what its pieces left out is shown now.
    fn done(&mut self, index: Option<u64>, item: &Value, text: &str, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let Some(open) = self.open(index, item, &mut *on_event)? else { return Ok(()) };
        open.done = Some(text.to_owned());
        let index = open.index;
        let rest = |so_far: &str, whole: &str| whole.strip_prefix(so_far).unwrap_or_default().to_owned();
        match &mut open.kind {
            Kind::Message(so_far) => {
                let whole = content_text(&item["content"]);
                let (missing, has_refused) = (rest(so_far, &whole), has_refusal(&item["content"]));
                self.has_refused |= has_refused;
                self.add_text(index, &missing, on_event);
                self.replace(index, |kind| match kind {
                    Kind::Message(text) => *text = whole,
                    Kind::Reasoning(_) | Kind::Call { .. } | Kind::Other => {}
                });
            }
            Kind::Reasoning(so_far) => {
                let whole = reasoning_text(item);
                let missing = if so_far.is_empty() { whole } else { String::new() };
                self.add_thinking(index, &missing, on_event);
            }
            Kind::Call { id, name, arguments } => {
                let text = |name: &str| item[name].as_str().map(str::to_owned);
                let whole = text("arguments").or_else(|| text("input")).unwrap_or_default();
                let json = rest(arguments, &whole);
                *id = text("call_id").unwrap_or_else(|| std::mem::take(id));
                *name = text("name").unwrap_or_else(|| std::mem::take(name));
                *arguments = whole;
                if let (Some(index), false) = (open.place, json.is_empty()) {
                    on_event(StreamEvent::InputDelta { index, json });
                }
            }
            Kind::Other => {}
        }
        Ok(())
    }

    fn replace(&mut self, index: u64, change: impl FnOnce(&mut Kind)) {
        if let Some(item) = self.find(Some(index), "") {
            change(&mut item.kind);
        }
    }

    /// The item that a piece belongs to; one of this kind begins if none is open.
    fn item_of(&mut self, envelope: &Envelope<'_>, kind: &str, on_event: OnEvent<'_>) -> Result<u64, EventError> {
        if let Some(item) = self.find(envelope.output_index, &envelope.item_id) {
            return Ok(item.index);
        }
        let item = json!({"type": kind, "id": &*envelope.item_id});
        Ok(self.open(envelope.output_index, &item, on_event)?.map_or(0, |item| item.index))
    }

    fn text(&mut self, envelope: &Envelope<'_>, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let index = self.item_of(envelope, "message", &mut *on_event)?;
        self.add_text(index, &envelope.delta, on_event);
        Ok(())
    }

    fn add_text(&mut self, index: u64, piece: &str, on_event: OnEvent<'_>) {
        let next_place = self.placed;
        let Some(OpenItem { kind: Kind::Message(text), place, .. }) = self.find(Some(index), "") else { return };
        if piece.is_empty() {
            return;
        }
        text.push_str(piece);
        let is_new = place.is_none();
        let index = *place.get_or_insert(next_place);
        if is_new {
            self.place(BlockPreview::Text, &mut *on_event);
        }
        on_event(StreamEvent::Text { index, text: piece.to_owned() });
    }

    fn thinking(&mut self, envelope: &Envelope<'_>, piece: &str, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let index = self.item_of(envelope, "reasoning", &mut *on_event)?;
        let is_next_part = piece.is_empty()
            && matches!(self.find(Some(index), ""), Some(OpenItem { kind: Kind::Reasoning(text), .. }) if !text.is_empty());
        self.add_thinking(index, if is_next_part { "\n\n" } else { piece }, on_event);
        Ok(())
    }

    fn add_thinking(&mut self, index: u64, piece: &str, on_event: OnEvent<'_>) {
        let next_place = self.placed;
        let Some(OpenItem { kind: Kind::Reasoning(text), place, .. }) = self.find(Some(index), "") else { return };
        if piece.is_empty() {
            return;
        }
        text.push_str(piece);
        let is_new = place.is_none();
        let index = *place.get_or_insert(next_place);
        if is_new {
            self.place(BlockPreview::Thinking, &mut *on_event);
        }
        on_event(StreamEvent::Thinking { index, text: piece.to_owned() });
    }

    fn arguments(&mut self, envelope: &Envelope<'_>, on_event: OnEvent<'_>) -> Result<(), EventError> {
        let index = self.item_of(envelope, "function_call", &mut *on_event)?;
        let json = envelope.delta.to_string();
        if let Some(OpenItem { kind: Kind::Call { arguments, .. }, place, .. }) = self.find(Some(index), "") {
            arguments.push_str(&json);
            if let (Some(index), false) = (*place, json.is_empty()) {
                on_event(StreamEvent::InputDelta { index, json });
            }
        }
        Ok(())
    }

    /// Takes the terminal event.
    fn end(&mut self, kind: &str, response: &Value, on_event: OnEvent<'_>) -> Result<(), EventError> {
        self.count(&response["usage"]);
        match kind {
            "response.failed" => return Err(EventError::Failed(failed(response))),
            "response.cancelled" => return Err(EventError::Failed(incomplete("the provider cancelled the answer"))),
            _ => {}
        }
        // Some servers send the items nowhere but here.
        for (index, item) in response["output"].as_array().into_iter().flatten().enumerate() {
            let index = u64::try_from(index).ok();
            if self.find(index, "").is_none_or(|open| open.done.is_none()) {
                self.done(index, item, &item.to_string(), &mut *on_event)?;
            }
        }
        let why = response["incomplete_details"]["reason"].as_str().unwrap_or_default();
        self.stop = Some(match (kind, reason(why)) {
            ("response.completed", _) => AnswerStop::EndTurn,
            (_, Reason::Refused) => AnswerStop::Refusal,
            (_, Reason::ContextWindow) => AnswerStop::ContextWindow,
            // Whatever else ended it early: the last call may not be whole, and none is run.
            _ => AnswerStop::MaxTokens,
        });
        Ok(())
    }

    fn count(&mut self, usage: &Value) {
        if !usage.is_object() {
            return;
        }
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let details = &usage["input_tokens_details"];
        let (read, write) = (number(&details["cached_tokens"]), number(&details["cache_write_tokens"]));
        self.usage = Usage {
            // The provider counts cached tokens as part of the input; ours are apart.
            input: number(&usage["input_tokens"]).saturating_sub(read).saturating_sub(write),
            output: number(&usage["output_tokens"]),
            cache_read: read,
            cache_write: write,
        };
    }
}

/// What a failed response says. Its codes are closed: only those of servers and limits are tried again.
fn failed(response: &Value) -> Failure {
    let body = json!({"error": response["error"]}).to_string();
    let mut failure = classify(&Reply { status: 200, body: &body, headers: &[] });
    if failure.class == Class::Transient && !failure.kind.is_empty() && !says_transient(&failure) {
        failure.class = Class::Request;
    }
    failure
}

/// Whether the class comes from the code and not from its absence.
fn says_transient(failure: &Failure) -> bool {
    let body = json!({"error": {"code": failure.kind, "message": failure.message}}).to_string();
    classify(&Reply { status: 400, body: &body, headers: &[] }).class == Class::Transient
}

fn parts(content: &Value) -> impl Iterator<Item = &Value> {
    content.as_array().into_iter().flatten()
}

fn content_text(content: &Value) -> String {
    parts(content).filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str())).collect()
}

fn has_refusal(content: &Value) -> bool {
    parts(content).any(|part| part["type"] == "refusal")
}

fn reasoning_text(item: &Value) -> String {
    let texts = |name: &str| parts(&item[name]).filter_map(|part| part["text"].as_str()).collect::<Vec<_>>();
    let summary = texts("summary");
    if summary.is_empty() { texts("content").concat() } else { summary.join("\n\n") }
}

/// Brings the items into the order of their places. Reasoning and unknown items join the next block
/// that goes back; what nothing follows goes back nowhere.
fn assemble(mut items: Vec<OpenItem>) -> Vec<AnswerBlock> {
    items.sort_by_key(|item| item.index);
    let mut done: Vec<(usize, AnswerBlock)> = Vec::new();
    let mut strays: Vec<Json> = Vec::new();
    for item in items {
        let own = item.done.as_deref().map(kept);
        let says_more = item.says_more();
        let (place, kind) = match (item.kind, item.place) {
            (Kind::Reasoning(text), place) => {
                strays.extend(own);
                if let Some(place) = place {
                    done.push((place, AnswerBlock { id: None, kind: BlockKind::Thinking { text }, raw: Vec::new() }));
                }
                continue;
            }
            (Kind::Other, _) => {
                let is_answerable = |own: &Json| {
                    let value = own.to_value();
                    let kind = value["type"].as_str().unwrap_or_default();
                    !kind.is_empty() && !UNANSWERABLE.contains(&kind)
                };
                strays.extend(own.filter(is_answerable));
                continue;
            }
            (Kind::Message(_), None) | (Kind::Call { .. }, None) => continue,
            (Kind::Message(text), Some(place)) => (place, BlockKind::Text { text }),
            (Kind::Call { id, name, arguments }, Some(place)) => {
                (place, BlockKind::ToolUse { provider_id: id, name, input: tool_input(&arguments) })
            }
        };
        let raw = match own {
            Some(own) if says_more || !strays.is_empty() => {
                let mut raw = std::mem::take(&mut strays);
                raw.push(own);
                raw
            }
            _ => {
                strays.clear();
                Vec::new()
            }
        };
        done.push((place, AnswerBlock { id: None, kind, raw }));
    }
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, block)| block).collect()
}

impl OpenItem {
    /// Whether the item says more than what our own form of it keeps.
    fn says_more(&self) -> bool {
        let Some(fields) = self.done.as_deref().and_then(|done| serde_json::from_str::<Map<String, Value>>(done).ok())
        else {
            return false;
        };
        if fields.get("type").and_then(Value::as_str) == Some("custom_tool_call") {
            return false;
        }
        let has_others = |fields: &Map<String, Value>, known: &[&str]| {
            fields.iter().any(|(name, value)| !known.contains(&name.as_str()) && !is_nothing(value))
        };
        match self.kind {
            Kind::Message(_) => {
                has_others(&fields, &["type", "id", "role", "status", "content"])
                    || fields.get("content").into_iter().flat_map(parts).filter_map(Value::as_object).any(|part| {
                        part.get("type").and_then(Value::as_str) != Some("output_text")
                            || has_others(part, &["type", "text", "annotations", "logprobs"])
                            || part.get("annotations").is_some_and(|value| !is_nothing(value))
                    })
            }
            Kind::Call { .. } => has_others(&fields, &["type", "id", "call_id", "name", "arguments", "status"]),
            Kind::Reasoning(_) | Kind::Other => false,
        }
    }
}
