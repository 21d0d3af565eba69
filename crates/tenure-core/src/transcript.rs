//! From a range of the log to what a model is sent.
//!
//! A pure function of the rows, for every prefix of every log (promise P4): each call is followed by
//! exactly one result, in the order of the calls; what users said meanwhile comes after the results.
//! Each dialect writes the messages in its own words.

use crate::event::{Block, Body, Event, MediaKind, Origin, Outcome, Summary};
use crate::failure::Class;
use crate::id::EventId;
use crate::json::Json;
use alloc::string::String;
use alloc::vec::Vec;

/// One model request, in no provider's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// `provider/model`, to know which reasoning may go back.
    pub model: String,
    /// The name of the model as the provider knows it.
    pub model_name: String,
    /// Instructions.
    pub system: Option<String>,
    /// The conversation; starts with a user message and alternates.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<ToolSpec>,
    /// Most output tokens.
    pub max_output_tokens: u32,
    /// Names the conversation towards providers that keep what they read by such a name; empty for
    /// none.
    pub cache_key: String,
}

/// A tool as the model is told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON schema of its input.
    pub input_schema: Json,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From the user's side: results first, then what was said.
    User(Vec<UserPart>),
    /// From the model.
    Assistant(Vec<AssistantPart>),
}

/// A part of a user message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserPart {
    /// The result of a call of the assistant message before.
    Result {
        /// The call.
        call: EventId,
        /// What it gave; never empty.
        content: Vec<Block>,
        /// Whether it failed.
        is_error: bool,
    },
    /// Something said.
    Block(Block),
}

/// A part of a model's message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the events of the same names")]
pub enum AssistantPart {
    Text { text: String, origin: Origin },
    Thinking { text: String, origin: Origin },
    ToolUse { call: EventId, name: String, input: Json, origin: Origin },
}

/// What the model reads for a call that has no result in this range.
const NO_RESULT: &str = "This call has no result: it was not run.";

/// What stands for content that is empty, which some providers refuse.
const EMPTY: &str = "(empty)";

/// What stands before a summary, for the model.
const SUMMARY: &str =
    "[This conversation was long. Its beginning is summarised here; the files and the full log are kept.]";

/// What stands before instructions of the operator that a summary keeps.
const INSTRUCTIONS: &str = "[Instructions of the operator, as they were given:]";

/// What stands before the message of the user that a summary keeps.
const REQUEST: &str = "[The newest message of the user, as it was given:]";

/// Builds the conversation from rows in order.
///
/// Rows that a compaction among them left out are not shown, whether or not they are given.
pub fn transcript<'a, I>(events: I) -> Vec<Message>
where
    I: IntoIterator<Item = &'a Event, IntoIter: Clone>,
{
    let events = events.into_iter();
    let view = View::of(events.clone());
    let said = view.summary.map(summary_parts).unwrap_or_default();
    let mut builder = Builder { view, said, ..Builder::default() };
    for event in events.filter(|event| event.seq >= view.keep_from) {
        builder.push(event);
    }
    builder.finish()
}

fn summary_parts(summary: &Summary) -> Vec<UserPart> {
    let text = |text: &str| UserPart::Block(Block::Text(String::from(text)));
    let mut parts = alloc::vec![text(SUMMARY), UserPart::Block(visible(Block::Text(summary.text.clone())))];
    for (title, blocks) in [(INSTRUCTIONS, &summary.instructions), (REQUEST, &summary.request)] {
        if !blocks.is_empty() {
            parts.push(text(title));
            parts.extend(blocks.iter().cloned().map(visible).map(UserPart::Block));
        }
    }
    parts
}

/// How the rows of a range are shown, as later rows of it say.
#[derive(Clone, Copy, Default)]
struct View<'a> {
    /// The first row that is shown.
    keep_from: u64,
    /// What stands for the rows before it.
    summary: Option<&'a Summary>,
    /// Media of rows before this one are named only.
    media_from: u64,
    /// Verbatim blocks of rows before this one are not sent back: a provider refused the history with them.
    verbatim_from: u64,
}

impl<'a> View<'a> {
    fn of(events: impl Iterator<Item = &'a Event>) -> Self {
        let mut view = Self::default();
        for event in events {
            match &event.body {
                Body::ContextCompacted { compacted } => {
                    view.keep_from = view.keep_from.max(compacted.keep_from);
                    view.media_from = view.media_from.max(compacted.media_from);
                    view.summary = compacted.summary.as_ref().or(view.summary);
                }
                Body::Error { class: Class::BadHistory, retrying: true, .. } => view.verbatim_from = event.seq,
                _ => {}
            }
        }
        view
    }
}

#[derive(Default)]
struct Builder<'a> {
    view: View<'a>,
    messages: Vec<Message>,
    /// The answer being collected, and its step.
    assistant: Vec<AssistantPart>,
    assistant_step: u64,
    /// Calls of the newest answer, with their results as far as they came.
    calls: Vec<(EventId, Option<UserPart>)>,
    /// What was said since the newest answer.
    said: Vec<UserPart>,
}

impl Builder<'_> {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::UserMessage { content } | Body::SystemMessage { content } => {
                let blocks = self.blocks(event.seq, content);
                self.said.extend(blocks.into_iter().map(UserPart::Block));
            }
            Body::AgentMessage { text, origin } => {
                let origin = self.origin(event.seq, origin);
                self.part(event.step, AssistantPart::Text { text: text.clone(), origin });
            }
            // Reasoning that may not go back verbatim does not go back at all.
            Body::AgentThinking { .. } if event.seq < self.view.verbatim_from => {}
            Body::AgentThinking { text, origin } => {
                self.part(event.step, AssistantPart::Thinking { text: text.clone(), origin: origin.clone() });
            }
            Body::AgentToolUse { name, input, origin, .. } | Body::AgentCustomToolUse { name, input, origin, .. } => {
                let input = if input.is_object() { input.clone() } else { Json::object() };
                let origin = self.origin(event.seq, origin);
                let part = AssistantPart::ToolUse { call: event.id, name: name.clone(), input, origin };
                self.part(event.step, part);
                self.calls.push((event.id, None));
            }
            Body::AgentToolResult { tool_use_id, content, outcome } => {
                self.result(event.seq, *tool_use_id, content, *outcome);
            }
            Body::UserCustomToolResult { tool_use_id, content, is_error } => {
                let outcome = if *is_error { Outcome::Failed } else { Outcome::Done };
                self.result(event.seq, *tool_use_id, content, outcome);
            }
            // The model did not see its own answer, so it is told what was wrong with it (case O-017).
            Body::Error { class: Class::Malformed, message, retrying: true, .. } => {
                let text = alloc::format!("[your last answer was dropped] {message}");
                self.said.push(UserPart::Block(Block::Text(text)));
            }
            Body::EnvironmentReset { reason, .. } => {
                self.said.push(UserPart::Block(Block::Text(alloc::format!("[environment reset] {reason}"))));
            }
            Body::UserInterrupt
            | Body::UserToolConfirmation { .. }
            | Body::ToolStarted { .. }
            | Body::StatusRunning
            | Body::StatusIdle { .. }
            | Body::StatusRescheduled
            | Body::StatusTerminated { .. }
            | Body::Error { .. }
            | Body::SpanStart { .. }
            | Body::SpanEnd { .. }
            | Body::Condition { .. }
            | Body::WaitStarted { .. }
            | Body::WaitResolved { .. }
            | Body::CallbackCreated { .. }
            | Body::CallbackReceived { .. }
            | Body::BudgetUpdated { .. }
            | Body::ContextCompacted { .. }
            | Body::EnvironmentStarted { .. }
            | Body::Forked { .. }
            | Body::SnapshotCreated { .. }
            | Body::UsageSnapshot { .. }
            | Body::Updated { .. } => {}
        }
    }

    fn part(&mut self, step: u64, part: AssistantPart) {
        if step != self.assistant_step || self.assistant.is_empty() {
            self.close_user();
            self.assistant_step = step;
        }
        self.assistant.push(part);
    }

    /// Content of a row, with media that are left out by name.
    fn blocks(&self, seq: u64, content: &[Block]) -> Vec<Block> {
        let is_named = seq < self.view.media_from;
        let shown = |block: &Block| match block {
            Block::Media { kind, json } if is_named => Block::Text(named(*kind, json, seq)),
            block => visible(block.clone()),
        };
        content.iter().map(shown).collect()
    }

    fn origin(&self, seq: u64, origin: &Origin) -> Origin {
        if seq < self.view.verbatim_from { Origin::default() } else { origin.clone() }
    }

    fn result(&mut self, seq: u64, call: EventId, content: &[Block], outcome: Outcome) {
        let mut content = self.blocks(seq, content);
        if content.is_empty() {
            content.push(Block::Text(String::from(EMPTY)));
        }
        // The first result wins; one for a call outside the range is left out.
        if let Some((_, slot @ None)) = self.calls.iter_mut().find(|(id, _)| *id == call) {
            *slot = Some(UserPart::Result { call, content, is_error: outcome.is_error() });
        }
    }

    /// Ends the open answer and the user's side after it.
    fn close_user(&mut self) {
        self.close_assistant();
        let mut parts: Vec<UserPart> = core::mem::take(&mut self.calls)
            .into_iter()
            .map(|(call, result)| {
                result.unwrap_or_else(|| UserPart::Result {
                    call,
                    content: alloc::vec![Block::Text(String::from(NO_RESULT))],
                    is_error: true,
                })
            })
            .collect();
        parts.append(&mut self.said);
        if parts.is_empty() {
            return;
        }
        match self.messages.last_mut() {
            Some(Message::User(last)) => last.append(&mut parts),
            Some(Message::Assistant(_)) | None => self.messages.push(Message::User(parts)),
        }
    }

    fn close_assistant(&mut self) {
        let parts = core::mem::take(&mut self.assistant);
        if parts.is_empty() {
            return;
        }
        if self.messages.is_empty() {
            // A range may begin with an answer; a conversation may not.
            self.messages.push(Message::User(alloc::vec![UserPart::Block(Block::Text(String::from("(continued)")))]));
        }
        match self.messages.last_mut() {
            Some(Message::Assistant(last)) => last.extend(parts),
            Some(Message::User(_)) | None => self.messages.push(Message::Assistant(parts)),
        }
    }

    fn finish(mut self) -> Vec<Message> {
        self.close_user();
        self.messages
    }
}

/// Text that is empty or white space alone is refused by some providers.
fn visible(block: Block) -> Block {
    match block {
        Block::Text(text) if text.trim().is_empty() => Block::Text(String::from(EMPTY)),
        Block::Text(_) | Block::Media { .. } => block,
    }
}

/// What the model reads in the place of an image or document that is left out.
fn named(kind: MediaKind, json: &Json, seq: u64) -> String {
    let what = match kind {
        MediaKind::Image => "image",
        MediaKind::Document => "document",
        MediaKind::SearchResult => "search result",
    };
    let kib = json.as_str().len().div_ceil(1_024);
    alloc::format!(
        "[{what} of {kib} KiB left out, because the request became too large; it is kept as event {seq} of this session]"
    )
}
