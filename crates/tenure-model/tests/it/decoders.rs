//! Decoders fed by hand: any cut gives the same answer, and nothing makes them panic.

use proptest::prelude::*;
use tenure_core::failure::Class;
use tenure_core::{AnswerStop, BlockKind, Json};
use tenure_model::anthropic::AnthropicDecoder;
use tenure_model::openai::OpenaiDecoder;
use tenure_model::{Decoder, StreamEvent};

pub(crate) const ANTHROPIC: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":900}}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"c2ln\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"new_kind\",\"x\":1}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\",\"text\":\"H\u{e9}llo 😀\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"bash\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"command\\\":\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"ls\\\"}\"}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":7}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

pub(crate) const OPENAI: &str = concat!(
    ": OPENROUTER PROCESSING\n\n",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"He\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"llo\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"comm\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"and\\\":\\\"ls\\\"}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":80}}}\n\n",
    "data: [DONE]\n\n",
);

type End = Result<tenure_core::Answer, tenure_core::failure::Failure>;

fn decode(decoder: &mut dyn Decoder, chunks: &[&[u8]]) -> (Vec<StreamEvent>, End) {
    let mut events = Vec::new();
    for chunk in chunks {
        let decoded = decoder.feed(chunk);
        events.extend(decoded.events);
        if let Some(end) = decoded.end {
            return (events, end);
        }
    }
    (events, decoder.finish())
}

fn anthropic(text: &str) -> End {
    decode(&mut AnthropicDecoder::new("a/m"), &[text.as_bytes()]).1
}

fn openai(text: &str) -> End {
    decode(&mut OpenaiDecoder::new("o/m"), &[text.as_bytes()]).1
}

#[test]
fn an_anthropic_answer_keeps_blocks_in_order_and_verbatim() {
    let answer = anthropic(ANTHROPIC).unwrap();
    assert_eq!(answer.blocks.len(), 3);
    assert_eq!(answer.blocks[0].kind, BlockKind::Thinking { text: "hm".into() });
    let raws: Vec<&str> = answer.blocks[0].raw.iter().map(Json::as_str).collect();
    assert_eq!(raws, [r#"{"signature":"c2ln","thinking":"hm","type":"thinking"}"#, r#"{"type":"new_kind","x":1}"#]);
    assert_eq!(answer.blocks[1].kind, BlockKind::Text { text: "Héllo 😀".into() });
    let input = Ok(Json::parse(r#"{"command":"ls"}"#).unwrap());
    assert_eq!(answer.blocks[2].kind, BlockKind::ToolUse { provider_id: "toolu_1".into(), name: "bash".into(), input });
    assert_eq!((answer.usage.input, answer.usage.cache_read, answer.usage.output), (10, 900, 7));
}

#[test]
fn an_openai_answer_counts_cached_tokens_apart() {
    let answer = openai(OPENAI).unwrap();
    assert_eq!(answer.blocks[0].kind, BlockKind::Text { text: "Hello".into() });
    assert_eq!((answer.usage.input, answer.usage.cache_read, answer.usage.output), (20, 80, 5));
    assert_eq!(answer.stop, AnswerStop::ToolUse);
}

#[test]
fn o_003_a_stream_cut_inside_a_tool_call_is_incomplete() {
    let cut = ANTHROPIC.find("\\\"ls\\\"").unwrap();
    assert_eq!(anthropic(&ANTHROPIC[..cut]).unwrap_err().class, Class::Incomplete);
    let cut = OPENAI.find("and\\\"").unwrap();
    assert_eq!(openai(&OPENAI[..cut]).unwrap_err().class, Class::Incomplete);
}

#[test]
fn o_004_a_finish_reason_is_the_end_and_content_alone_is_not() {
    let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    assert_eq!(openai(chunk).unwrap_err().class, Class::Incomplete);
    let finished = format!("{chunk}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n");
    assert!(openai(&finished).is_ok());
}

#[test]
fn o_012_empty_and_null_arguments_are_an_empty_object() {
    for arguments in ["", "null"] {
        let text = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"f\",\"arguments\":\"{arguments}\"}}}}]}},\"finish_reason\":\"tool_calls\"}}]}}\n\ndata: [DONE]\n\n"
        );
        let answer = openai(&text).unwrap();
        assert!(matches!(&answer.blocks[0].kind, BlockKind::ToolUse { input: Ok(input), .. } if *input == Json::object()));
    }
}

#[test]
fn o_031_a_lone_surrogate_in_arguments_does_not_kill_the_stream() {
    let text = ANTHROPIC.replace("\\\"ls\\\"", "\\\"\\\\ud99c\\\"");
    let answer = anthropic(&text).unwrap();
    let BlockKind::ToolUse { input: Ok(input), .. } = &answer.blocks[2].kind else { panic!("{answer:?}") };
    assert_eq!(input.to_value()["command"], "\u{fffd}");
}

#[test]
fn o_090_deep_tool_arguments_are_malformed_and_nothing_more() {
    let deep = "[".repeat(10_000);
    let text = ANTHROPIC.replace("\\\"ls\\\"", &deep);
    let answer = anthropic(&text).unwrap();
    assert!(matches!(&answer.blocks[2].kind, BlockKind::ToolUse { input: Err(_), .. }));
}

#[test]
fn every_cut_gives_the_same_answer() {
    for (text, is_anthropic) in [(ANTHROPIC, true), (OPENAI, false)] {
        let make = || -> Box<dyn Decoder> {
            if is_anthropic { Box::new(AnthropicDecoder::new("a/m")) } else { Box::new(OpenaiDecoder::new("a/m")) }
        };
        let whole = decode(&mut *make(), &[text.as_bytes()]);
        for cut in 0..text.len() {
            let parts = [&text.as_bytes()[..cut], &text.as_bytes()[cut..]];
            assert_eq!(decode(&mut *make(), &parts), whole, "cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let _ = decode(&mut AnthropicDecoder::new("a/m"), &[&bytes]);
        let _ = decode(&mut OpenaiDecoder::new("o/m"), &[&bytes]);
    }

    #[test]
    fn no_mutation_of_a_real_stream_makes_a_decoder_panic(place in 0..ANTHROPIC.len(), byte in any::<u8>(), drop in 0..60usize) {
        for text in [ANTHROPIC, OPENAI] {
            let mut bytes = text.as_bytes().to_vec();
            let place = place % bytes.len();
            bytes[place] = byte;
            let end = (place + drop).min(bytes.len());
            bytes.drain(place..end);
            let _ = decode(&mut AnthropicDecoder::new("a/m"), &[&bytes]);
            let _ = decode(&mut OpenaiDecoder::new("o/m"), &[&bytes]);
        }
    }
}
