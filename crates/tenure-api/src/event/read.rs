//! Events that clients send: read, bounded, and refused with the place of the mistake.

use crate::error::Code;
use crate::fields::{Fields, Problem, text};
use serde_json::Value;
use tenure_core::{Block, Decision, EventId, InputBody, Json, MediaKind, Usage};

/// Most events in one request.
pub const MAX_EVENTS: usize = 256;

/// Most blocks in one event.
const MAX_BLOCKS: usize = 256;

/// Longest text of a block, in characters; the body's limit is met first.
const MAX_TEXT: usize = 32 * 1024 * 1024;

/// Longest reason of a denial, in characters.
const MAX_DENY_MESSAGE: usize = 10_000;

/// Reads `events` of a request.
///
/// # Errors
/// The first event that is wrong or not served.
pub fn read_events(fields: &Fields<'_>, name: &str) -> Result<Vec<InputBody>, Problem> {
    fields.required(name)?;
    let list = fields.list(name, MAX_EVENTS)?.unwrap_or_default();
    if list.is_empty() {
        return Err(Problem::invalid(&fields.path(name), "must hold at least one event"));
    }
    list.into_iter().map(|(path, value)| read_event(&Fields::at(value, &path)?)).collect()
}

/// Reads a field as the content of a message.
///
/// # Errors
/// When it is empty or not served.
pub fn read_message(fields: &Fields<'_>, name: &str) -> Result<Vec<Block>, Problem> {
    let content = read_content(fields, name)?;
    let is_blank = |block: &Block| matches!(block, Block::Text(text) if text.trim().is_empty());
    if content.iter().all(is_blank) {
        return Err(Problem::invalid(&fields.path(name), "must say something"));
    }
    Ok(content)
}

fn read_event(event: &Fields<'_>) -> Result<InputBody, Problem> {
    event.refuse("session_thread_id", "threads are not served yet")?;
    match event.kind()? {
        "user.message" => {
            event.required("content")?;
            Ok(InputBody::Message { content: read_message(event, "content")? })
        }
        "system.message" => {
            event.required("content")?;
            let content = read_message(event, "content")?;
            if content.iter().any(|block| matches!(block, Block::Media { .. })) {
                return Err(Problem::new(
                    Code::UnsupportedContent,
                    format!("{}: a system message is text only", event.path("content")),
                ));
            }
            Ok(InputBody::System { content })
        }
        "user.interrupt" => Ok(InputBody::Interrupt),
        "user.tool_confirmation" => {
            let decision = match event.required_text("result", 16)?.as_str() {
                "allow" => Decision::Allow,
                "deny" => Decision::Deny { message: event.text("deny_message", MAX_DENY_MESSAGE)? },
                other => {
                    return Err(Problem::invalid(
                        &event.path("result"),
                        format_args!("{other:?} is neither allow nor deny"),
                    ));
                }
            };
            Ok(InputBody::Confirmation { tool_use_id: call(event, "tool_use_id")?, decision })
        }
        "user.custom_tool_result" => Ok(InputBody::CustomResult {
            tool_use_id: call(event, "custom_tool_use_id")?,
            content: read_content(event, "content")?,
            is_error: event.flag("is_error")?.unwrap_or(false),
        }),
        kind @ ("user.tool_result" | "user.define_outcome") => {
            Err(Problem::new(Code::UnsupportedEvent, format!("{}: {kind} is not served yet", event.path("type"))))
        }
        kind => Err(Problem::new(
            Code::UnsupportedEvent,
            format!("{}: {kind:?} is no event that clients send", event.path("type")),
        )),
    }
}

fn call(event: &Fields<'_>, name: &str) -> Result<EventId, Problem> {
    let text = event.required_text(name, 128)?;
    text.parse().map_err(|_| {
        Problem::new(Code::UnknownToolUse, format!("{}: there is no call {text:?} in this session", event.path(name)))
    })
}

pub(crate) fn read_content(fields: &Fields<'_>, name: &str) -> Result<Vec<Block>, Problem> {
    // Plain text is taken too: it is what people type by hand.
    if let Some(Value::String(text)) = fields.get(name) {
        return Ok(vec![Block::Text(text.clone())]);
    }
    let list = fields.list(name, MAX_BLOCKS)?.unwrap_or_default();
    list.into_iter().map(|(path, value)| read_block(value, &path)).collect()
}

/// Reads the use of a model call.
pub(crate) fn read_usage(fields: &Fields<'_>) -> Result<Usage, Problem> {
    let count = |name: &str| fields.number(name).map(Option::unwrap_or_default);
    Ok(Usage {
        input: count("input_tokens")?,
        output: count("output_tokens")?,
        cache_read: count("cache_read_input_tokens")?,
        cache_write: count("cache_creation_input_tokens")?,
    })
}

fn read_block(value: &Value, path: &str) -> Result<Block, Problem> {
    let block = Fields::at(value, path)?;
    let kind = match block.kind()? {
        "text" => {
            return Ok(Block::Text(text(block.required("text")?, &block.path("text"), MAX_TEXT)?));
        }
        "image" => MediaKind::Image,
        "document" => MediaKind::Document,
        "search_result" => MediaKind::SearchResult,
        other => {
            return Err(Problem::new(
                Code::UnsupportedContent,
                format!("{}: blocks of type {other:?} are not taken", block.path("type")),
            ));
        }
    };
    if kind != MediaKind::SearchResult {
        let source = block.required("source")?;
        let source = Fields::at(source, &block.path("source"))?;
        if source.kind()? == "file" {
            return Err(Problem::new(
                Code::UnsupportedContent,
                format!("{}: files by id are not served yet", source.path("type")),
            ));
        }
    }
    Ok(Block::Media { kind, json: Json::from_value(value) })
}
