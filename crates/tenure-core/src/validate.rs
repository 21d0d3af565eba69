//! Judges whether messages are a valid model request (promise P4), before every request.

use crate::event::Block;
use crate::id::EventId;
use crate::transcript::{AssistantPart, Message, UserPart};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Why messages are no valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which message, from 0.
    pub message: usize,
    /// Which rule it breaks.
    pub rule: &'static str,
}

/// Checks roles, pairing, order and uniqueness of calls and results, and that nothing is empty.
///
/// # Errors
/// The first rule that is broken.
pub fn validate(messages: &[Message]) -> Result<(), Problem> {
    let (mut open, mut known): (Vec<EventId>, BTreeSet<EventId>) = (Vec::new(), BTreeSet::new());
    for (index, message) in messages.iter().enumerate() {
        let problem = |rule| Err(Problem { message: index, rule });
        let is_user = matches!(message, Message::User(_));
        if is_user != index.is_multiple_of(2) {
            return problem("messages begin with the user and alternate");
        }
        match message {
            Message::User(parts) => {
                let results = parts.iter().take_while(|part| matches!(part, UserPart::Result { .. })).count();
                let answered: Vec<EventId> = parts.iter().filter_map(result_of).collect();
                if parts.is_empty() {
                    return problem("a message has content");
                }
                if answered.len() != results {
                    return problem("results come first");
                }
                if answered != open {
                    return problem(
                        "every call has exactly one result, in the next message, in the order of the calls",
                    );
                }
                if parts.iter().any(is_empty) {
                    return problem("content is not empty");
                }
                open.clear();
            }
            Message::Assistant(parts) => {
                if parts.is_empty() {
                    return problem("a message has content");
                }
                for part in parts {
                    if let AssistantPart::ToolUse { call, .. } = part {
                        if !known.insert(*call) {
                            return problem("ids of calls are unique");
                        }
                        open.push(*call);
                    }
                }
            }
        }
    }
    if !open.is_empty() {
        return Err(Problem { message: messages.len(), rule: "the last calls have results" });
    }
    Ok(())
}

fn result_of(part: &UserPart) -> Option<EventId> {
    match part {
        UserPart::Result { call, .. } => Some(*call),
        UserPart::Block(_) => None,
    }
}

fn is_empty(part: &UserPart) -> bool {
    let is_blank = |block: &Block| matches!(block, Block::Text(text) if text.trim().is_empty());
    match part {
        UserPart::Result { content, .. } => content.is_empty() || content.iter().any(is_blank),
        UserPart::Block(block) => is_blank(block),
    }
}
