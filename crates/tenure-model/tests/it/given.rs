//! Streams and prompts that the tests share.

use tenure_core::failure::Failure;
use tenure_core::{Answer, Block, BlockKind, Message, Prompt, SessionId, ToolSpec, UserPart};
use tenure_model::{CallContext, DialectName, StreamEvent, decoder};

pub(crate) const ANTHROPIC: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":900,\"cache_creation_input_tokens\":50,\"output_tokens\":1}}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"c2ln/+==\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"abc==\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"new_kind\",\"big\":123456789012345678901234567890}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"H\u{e9}llo \"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"中😀\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
    "event: new_event\ndata: {\"type\":\"new_event\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":4,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"bash\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"command\\\":\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"ls\\\"}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":4}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":7}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

pub(crate) const OPENAI: &str = concat!(
    ": OPENROUTER PROCESSING\n\n",
    "data:\n\n",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"H\u{e9}l\"}}],\"obfuscation\":\"xx\"}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"lo 😀\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"comm\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"and\\\":\\\"ls\\\"}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":80}}}\n\n",
    "data: [DONE]\n\n",
);

pub(crate) type End = Result<Answer, Failure>;

/// Decodes these chunks; the events, and how it ended.
pub(crate) fn decode<'a>(dialect: DialectName, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<StreamEvent>, End) {
    let mut decoder = decoder(dialect, "p/m").unwrap();
    let mut events = Vec::new();
    for chunk in chunks {
        if let Err(failure) = decoder.push(chunk, &mut |event| events.push(event)) {
            return (events, Err(failure));
        }
    }
    let end = decoder.finish(&mut |event| events.push(event));
    (events, end)
}

pub(crate) fn anthropic(text: &str) -> End {
    decode(DialectName::Anthropic, [text.as_bytes()]).1
}

pub(crate) fn openai(text: &str) -> End {
    decode(DialectName::OpenAi, [text.as_bytes()]).1
}

/// The inputs of the calls of an answer.
pub(crate) fn inputs(answer: &Answer) -> Vec<Result<String, String>> {
    let input = |kind: &BlockKind| match kind {
        BlockKind::ToolUse { input, .. } => Some(input.clone().map(|json| json.as_str().to_owned())),
        BlockKind::Text { .. } | BlockKind::Thinking { .. } => None,
    };
    answer.blocks.iter().filter_map(|block| input(&block.kind)).collect()
}

pub(crate) fn prompt(messages: Vec<Message>) -> Prompt {
    Prompt {
        model: "p/m".into(),
        model_name: "m".into(),
        system: Some("Be brief.".into()),
        messages,
        tools: vec![ToolSpec {
            name: "bash".into(),
            description: "Runs a command.".into(),
            input_schema: tenure_core::Json::parse(r#"{"type":"object","properties":{"command":{"type":"string"}}}"#)
                .unwrap(),
        }],
        max_output_tokens: 100,
    }
}

pub(crate) fn said(text: &str) -> Message {
    Message::User(vec![UserPart::Block(Block::Text(text.into()))])
}

pub(crate) fn context(attempt: u32) -> CallContext {
    CallContext { session: SessionId::from_bits(1), step: 1, attempt }
}
