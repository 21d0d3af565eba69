//! From a range of the log to what a model is sent.
//!
//! A pure function of the rows, for every prefix of every log (promise P4): each call is followed by
//! exactly one result, in the order of the calls; what users said meanwhile comes after the results.
//! Each dialect writes the messages in its own words.

use crate::event::{Block, Body, Event, Origin, Outcome};
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

/// Builds the conversation from rows in order.
pub fn transcript(events: &[Event]) -> Vec<Message> {
    let mut builder = Builder::default();
    for event in events {
        builder.push(event);
    }
    builder.finish()
}

#[derive(Default)]
struct Builder {
    messages: Vec<Message>,
    /// The answer being collected, and its step.
    assistant: Vec<AssistantPart>,
    assistant_step: u64,
    /// Calls of the newest answer, with their results as far as they came.
    calls: Vec<(EventId, Option<UserPart>)>,
    /// What was said since the newest answer.
    said: Vec<UserPart>,
}

impl Builder {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::UserMessage { content } | Body::SystemMessage { content } => {
                self.said.extend(content.iter().cloned().map(visible).map(UserPart::Block));
            }
            Body::AgentMessage { text, origin } => {
                self.part(event.step, AssistantPart::Text { text: text.clone(), origin: origin.clone() });
            }
            Body::AgentThinking { text, origin } => {
                self.part(event.step, AssistantPart::Thinking { text: text.clone(), origin: origin.clone() });
            }
            Body::AgentToolUse { name, input, origin, .. } | Body::AgentCustomToolUse { name, input, origin, .. } => {
                let input = if input.is_object() { input.clone() } else { Json::object() };
                let part = AssistantPart::ToolUse { call: event.id, name: name.clone(), input, origin: origin.clone() };
                self.part(event.step, part);
                self.calls.push((event.id, None));
            }
            Body::AgentToolResult { tool_use_id, content, outcome } => self.result(*tool_use_id, content, *outcome),
            Body::UserCustomToolResult { tool_use_id, content, is_error } => {
                let outcome = if *is_error { Outcome::Failed } else { Outcome::Done };
                self.result(*tool_use_id, content, outcome);
            }
            Body::EnvironmentReset { reason } => {
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
            | Body::EnvironmentStarted { .. }
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

    fn result(&mut self, call: EventId, content: &[Block], outcome: Outcome) {
        let mut content: Vec<Block> = content.iter().cloned().map(visible).collect();
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
