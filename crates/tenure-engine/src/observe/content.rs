//! What was said, as the JSON that the GenAI conventions describe; only made if it was asked for.

use serde_json::{Value, json};
use tenure_core::{Answer, AssistantPart, Block, BlockKind, Json, Message, UserPart};
use tenure_telemetry::MAX_ATTRIBUTE_BYTES;

/// `gen_ai.system_instructions`
pub(super) fn instructions(system: &str) -> String {
    let text = |text: &str| json!([{"type": "text", "content": text}]).to_string();
    let whole = text(system);
    if whole.len() <= MAX_ATTRIBUTE_BYTES { whole } else { text("(left out: too long)") }
}

/// `gen_ai.input.messages`: the newest messages that fit, so that what stands there is whole JSON.
pub(super) fn input(messages: &[Message]) -> String {
    let mut left = MAX_ATTRIBUTE_BYTES - "[]".len();
    let mut kept: Vec<String> = Vec::new();
    for message in messages.iter().rev() {
        let text = said(message).to_string();
        match left.checked_sub(text.len() + ",".len()) {
            Some(rest) => left = rest,
            None => break,
        }
        kept.push(text);
    }
    kept.reverse();
    format!("[{}]", kept.join(","))
}

/// `gen_ai.output.messages`
pub(super) fn output(answer: &Answer) -> String {
    let part = |kind: &BlockKind| match kind {
        BlockKind::Text { text } => json!({"type": "text", "content": text}),
        BlockKind::Thinking { text } => json!({"type": "reasoning", "content": text}),
        BlockKind::ToolUse { provider_id, name, input } => {
            let arguments = input.as_ref().map_or(Value::Null, Json::to_value);
            json!({"type": "tool_call", "id": provider_id, "name": name, "arguments": arguments})
        }
    };
    let parts: Vec<Value> = answer.blocks.iter().map(|block| part(&block.kind)).collect();
    let message = |parts: &[Value]| {
        json!([{"role": "assistant", "parts": parts, "finish_reason": super::stop_word(answer.stop)}]).to_string()
    };
    let whole = message(&parts);
    if whole.len() <= MAX_ATTRIBUTE_BYTES { whole } else { message(&[]) }
}

/// The result of a tool, as text.
pub(super) fn blocks(content: &[Block]) -> String {
    let text = |block: &Block| match block {
        Block::Text(text) => text.clone(),
        Block::Media { .. } => "(media)".to_owned(),
    };
    content.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn said(message: &Message) -> Value {
    let user = |part: &UserPart| match part {
        UserPart::Result { call, content, .. } => {
            json!({"type": "tool_call_response", "id": call.to_string(), "response": blocks(content)})
        }
        UserPart::Block(block) => json!({"type": "text", "content": blocks(std::slice::from_ref(block))}),
    };
    let assistant = |part: &AssistantPart| match part {
        AssistantPart::Text { text, .. } => json!({"type": "text", "content": text}),
        AssistantPart::Thinking { text, .. } => json!({"type": "reasoning", "content": text}),
        AssistantPart::ToolUse { call, name, input, .. } => {
            json!({"type": "tool_call", "id": call.to_string(), "name": name, "arguments": input.to_value()})
        }
    };
    match message {
        Message::User(parts) => json!({"role": "user", "parts": parts.iter().map(user).collect::<Vec<_>>()}),
        Message::Assistant(parts) => {
            json!({"role": "assistant", "parts": parts.iter().map(assistant).collect::<Vec<_>>()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_conversation_keeps_its_newest_messages_and_stays_json() {
        let message = |text: String| Message::User(vec![UserPart::Block(Block::Text(text))]);
        let messages: Vec<Message> =
            (0..100).map(|number| message(format!("{number} {}", "x".repeat(1_000)))).collect();
        let text = input(&messages);
        assert!(text.len() <= MAX_ATTRIBUTE_BYTES);
        let kept = Json::parse(&text).expect("whole JSON").to_value();
        let kept = kept.as_array().expect("a list");
        assert!((20..100).contains(&kept.len()), "{}", kept.len());
        let last = kept.last().expect("there are some")["parts"][0]["content"].as_str().expect("a text");
        assert!(last.starts_with("99 "), "{last}");
    }
}
