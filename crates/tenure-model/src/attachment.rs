//! What users and tools attach, taken apart for the dialects that have their own words for it.
//!
//! Blocks are kept in the words of the API (`image`, `document`, `search_result`), which are those of
//! `anthropic`; every other dialect translates.

use serde_json::Value;
use tenure_core::{Block, EventId, MediaKind};

/// Says in a result's text what other dialects have a field for.
pub(crate) const FAILED: &str = "[the call failed]\n";

/// Stands in a result for content that follows in the next user message.
pub(crate) const FOLLOWS: &str = "[the attachment follows in the next message]";

/// Stands for an attachment that a model cannot be shown.
pub(crate) const UNREADABLE: &str = "[an attachment that this model cannot read]";

/// A block, as far as a dialect has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is documented; its fields are what the API calls so")]
pub(crate) enum Content {
    /// Text, also for what can be said in text.
    Text(String),
    /// An image in base64.
    Image { media_type: String, data: String },
    /// An image somewhere.
    ImageUrl(String),
    /// A file in base64.
    File { name: String, media_type: String, data: String },
}

impl Content {
    /// The form of a block.
    pub(crate) fn of(block: &Block) -> Self {
        match block {
            Block::Text(text) => Self::Text(text.clone()),
            Block::Media { kind, json } => media(*kind, &json.to_value()),
        }
    }

    /// `data:` address of what is in base64.
    pub(crate) fn data_url(media_type: &str, data: &str) -> String {
        format!("data:{media_type};base64,{data}")
    }
}

/// The result of a call for dialects whose results are text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultText {
    /// Its text, with a note for what follows.
    pub(crate) text: String,
    /// What text cannot hold, each with a line that names its call before it.
    pub(crate) attachments: Vec<Content>,
}

/// Splits a result.
pub(crate) fn result_text(call: EventId, blocks: &[Block]) -> ResultText {
    let (mut texts, mut attachments) = (Vec::new(), Vec::new());
    for block in blocks {
        match Content::of(block) {
            Content::Text(text) => texts.push(text),
            other @ (Content::Image { .. } | Content::ImageUrl(_) | Content::File { .. }) => {
                texts.push(FOLLOWS.to_owned());
                attachments.push(Content::Text(format!("Attachment of the result of {call}:")));
                attachments.push(other);
            }
        }
    }
    ResultText { text: texts.join("\n\n"), attachments }
}

fn media(kind: MediaKind, value: &Value) -> Content {
    let source = &value["source"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match (kind, source["type"].as_str().unwrap_or_default()) {
        (MediaKind::Image, "base64") => {
            Content::Image { media_type: text(&source["media_type"]), data: text(&source["data"]) }
        }
        (MediaKind::Image, "url") => Content::ImageUrl(text(&source["url"])),
        (MediaKind::Document, "base64") => Content::File {
            name: value["title"].as_str().unwrap_or("document.pdf").to_owned(),
            media_type: text(&source["media_type"]),
            data: text(&source["data"]),
        },
        (MediaKind::Document, "text") => Content::Text(text(&source["data"])),
        (MediaKind::SearchResult, _) => Content::Text(search_result(value)),
        (MediaKind::Image | MediaKind::Document, _) => Content::Text(UNREADABLE.to_owned()),
    }
}

fn search_result(value: &Value) -> String {
    let texts = value["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let head = [value["title"].as_str().unwrap_or_default(), value["source"].as_str().unwrap_or_default()];
    head.into_iter().chain(texts).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}
