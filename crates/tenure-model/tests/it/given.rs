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

/// Reasoning, a text and a call, as Responses stream them.
pub(crate) const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\"output\":[]}}\n\n",
    "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":1,\"response\":{\"id\":\"resp_1\"}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":2,\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]}}\n\n",
    "event: response.reasoning_summary_part.added\ndata: {\"type\":\"response.reasoning_summary_part.added\",\"item_id\":\"rs_1\",\"output_index\":0,\"summary_index\":0,\"part\":{\"type\":\"summary_text\",\"text\":\"\"}}\n\n",
    "event: response.reasoning_summary_text.delta\ndata: {\"type\":\"response.reasoning_summary_text.delta\",\"item_id\":\"rs_1\",\"output_index\":0,\"summary_index\":0,\"delta\":\"hm\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"encrypted_content\":\"c2ln/+==\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}],\"big\":123456789012345678901234567890}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":1,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"in_progress\",\"role\":\"assistant\",\"content\":[]}}\n\n",
    "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"item_id\":\"msg_1\",\"output_index\":1,\"content_index\":0,\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"output_index\":1,\"content_index\":0,\"delta\":\"H\u{e9}llo \",\"obfuscation\":\"xyz\"}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"output_index\":1,\"content_index\":0,\"delta\":\"中😀\"}\n\n",
    "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"item_id\":\"msg_1\",\"output_index\":1,\"content_index\":0,\"text\":\"H\u{e9}llo 中😀\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"H\u{e9}llo 中😀\",\"annotations\":[]}]}}\n\n",
    ": keep-alive\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":2,\"item\":{\"id\":\"fc_1\",\"type\":\"function_call\",\"status\":\"in_progress\",\"arguments\":\"\",\"call_id\":\"call_1\",\"name\":\"bash\"}}\n\n",
    "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc_1\",\"output_index\":2,\"delta\":\"{\\\"command\\\":\"}\n\n",
    "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc_1\",\"output_index\":2,\"delta\":\"\\\"ls\\\"}\"}\n\n",
    "event: response.function_call_arguments.done\ndata: {\"type\":\"response.function_call_arguments.done\",\"item_id\":\"fc_1\",\"output_index\":2,\"arguments\":\"{\\\"command\\\":\\\"ls\\\"}\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"id\":\"fc_1\",\"type\":\"function_call\",\"status\":\"completed\",\"arguments\":\"{\\\"command\\\":\\\"ls\\\"}\",\"call_id\":\"call_1\",\"name\":\"bash\"}}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":80},\"output_tokens\":9,\"output_tokens_details\":{\"reasoning_tokens\":4},\"total_tokens\":109}}}\n\n",
);

/// A thought, a text and a signed call, as Gemini streams them: with CRLF.
pub(crate) const GEMINI: &str = concat!(
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hm\",\"thought\":true}]},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":100}}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"H\u{e9}llo \"}]},\"index\":0}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"中😀\"},{\"functionCall\":{\"name\":\"bash\",\"args\":{\"command\":\"ls\"}},\"thoughtSignature\":\"c2ln/+==\"}]},\"index\":0}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"\"}]},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":80,\"candidatesTokenCount\":5,\"thoughtsTokenCount\":4,\"totalTokenCount\":109}}\r\n\r\n",
);

/// Reasoning, a text and a call, as Ollama streams them.
pub(crate) const OLLAMA: &str = concat!(
    "{\"model\":\"m\",\"created_at\":\"2026-11-30T00:00:00Z\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n",
    "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"H\u{e9}llo \"},\"done\":false}\n",
    "\n",
    "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"中😀\"},\"done\":false}\n",
    "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"bash\",\"arguments\":{\"command\":\"ls\"}}}]},\"done\":false}\n",
    "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done_reason\":\"stop\",\"done\":true,\"total_duration\":5,\"prompt_eval_count\":100,\"eval_count\":9}\n",
);

/// A dialect with a whole answer in it, and the words of its terminal marker.
pub(crate) struct Given {
    pub(crate) dialect: DialectName,
    pub(crate) stream: &'static str,
    pub(crate) marker: &'static str,
}

/// All dialects that speak HTTP.
pub(crate) const ALL: [Given; 5] = [
    Given { dialect: DialectName::Anthropic, stream: ANTHROPIC, marker: "\"stop_reason\"" },
    Given { dialect: DialectName::OpenAi, stream: OPENAI, marker: "\"finish_reason\"" },
    Given { dialect: DialectName::Responses, stream: RESPONSES, marker: "\"type\":\"response.completed\"" },
    Given { dialect: DialectName::Gemini, stream: GEMINI, marker: "\"finishReason\"" },
    Given { dialect: DialectName::Ollama, stream: OLLAMA, marker: "\"done\":true" },
];

impl Given {
    /// The stream up to the middle of its call.
    pub(crate) fn cut_in_call(&self) -> &'static str {
        let cut = self.stream.find("ls\\\"").or_else(|| self.stream.find("\"ls\"")).unwrap();
        &self.stream[..cut]
    }

    /// The whole events before that.
    pub(crate) fn before_call(&self) -> &'static str {
        let text = self.cut_in_call();
        let end = match self.dialect {
            DialectName::Gemini => "\r\n\r\n",
            DialectName::Ollama => "\n",
            DialectName::Anthropic | DialectName::OpenAi | DialectName::Responses | DialectName::Script => "\n\n",
        };
        &text[..text.rfind(end).unwrap() + end.len()]
    }

    /// The stream as a reply.
    pub(crate) fn content_type(&self) -> &'static str {
        if self.dialect == DialectName::Ollama { "application/x-ndjson" } else { "text/event-stream" }
    }

    /// The whole answer.
    pub(crate) fn answer(&self) -> Answer {
        decode(self.dialect, [self.stream.as_bytes()]).1.unwrap()
    }
}

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
        cache_key: String::new(),
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
