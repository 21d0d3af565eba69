//! Decoders fed by hand: any cut gives the same answer, and nothing makes them panic.

use crate::given::{ALL, ANTHROPIC, OPENAI, anthropic, decode, inputs, openai};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_core::failure::Class;
use tenure_core::{AnswerStop, BlockKind, Json, Usage};
use tenure_model::{DialectName, StreamEvent};

/// A stream of one call with these arguments, in the words of Chat Completions.
fn call(arguments: &str, finish: &str) -> String {
    let piece = serde_json::json!({"choices": [{"delta": {"tool_calls": [
        {"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}]}}]});
    let end = serde_json::json!({"choices": [{"delta": {}, "finish_reason": finish}]});
    format!("data: {piece}\n\ndata: {end}\n\ndata: [DONE]\n\n")
}

/// How an answer ends.
#[derive(Clone, Copy)]
enum End {
    Tools,
    Length,
    Filter,
}

/// Two calls of one tool with these arguments and the same id, in the words of each dialect; Gemini and
/// Ollama send JSON, or, if it is none, a text that holds it.
fn calls(dialect: DialectName, name: &str, arguments: &str, end: End) -> String {
    let json: Value = serde_json::from_str(arguments).unwrap_or(Value::String(arguments.to_owned()));
    let events = |values: Vec<Value>| values.iter().map(|value| format!("data: {value}\n\n")).collect::<String>();
    match dialect {
        DialectName::Anthropic => {
            let mut values = vec![json!({"type": "message_start", "message": {}})];
            for index in 0..2 {
                let block = json!({"type": "tool_use", "id": "same", "name": name, "input": {}});
                let delta = json!({"type": "input_json_delta", "partial_json": arguments});
                values.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
                values.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
                values.push(json!({"type": "content_block_stop", "index": index}));
            }
            let stop = match end {
                End::Tools => "tool_use",
                End::Length => "max_tokens",
                End::Filter => "refusal",
            };
            values.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}}));
            values.push(json!({"type": "message_stop"}));
            events(values)
        }
        DialectName::OpenAi => {
            let call =
                |index: u8| json!({"index": index, "id": "same", "function": {"name": name, "arguments": arguments}});
            let stop = match end {
                End::Tools => "tool_calls",
                End::Length => "length",
                End::Filter => "content_filter",
            };
            let chunk = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}}]});
            events(vec![
                chunk(json!([call(0)])),
                chunk(json!([call(1)])),
                json!({"choices": [{"delta": {}, "finish_reason": stop}]}),
            ]) + "data: [DONE]\n\n"
        }
        DialectName::Responses => {
            let item = |id: u8| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": "same", "name": name, "arguments": arguments});
            let done = |id: u8| json!({"type": "response.output_item.done", "output_index": id, "item": item(id)});
            let last = match end {
                End::Tools => json!({"type": "response.completed", "response": {}}),
                End::Length => {
                    json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}})
                }
                End::Filter => {
                    json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}})
                }
            };
            events(vec![done(0), done(1), last])
        }
        DialectName::Gemini => {
            let part = json!({"functionCall": {"id": "same", "name": name, "args": json}});
            let stop = match end {
                End::Tools => "STOP",
                End::Length => "MAX_TOKENS",
                End::Filter => "SAFETY",
            };
            events(vec![json!({"candidates": [{"content": {"parts": [part, part]}, "finishReason": stop}]})])
        }
        DialectName::Ollama | DialectName::Script => {
            let call = json!({"id": "same", "function": {"name": name, "arguments": json}});
            let stop = match end {
                End::Tools => "stop",
                End::Length => "length",
                End::Filter => "content_filter",
            };
            let said = json!({"message": {"content": "", "tool_calls": [call, call]}, "done": false});
            format!("{said}\n{}\n", json!({"done": true, "done_reason": stop}))
        }
    }
}

fn answer(dialect: DialectName, stream: &str) -> tenure_core::Answer {
    decode(dialect, [stream.as_bytes()]).1.unwrap()
}

#[test]
fn an_anthropic_answer_keeps_blocks_in_order_and_what_it_does_not_know_verbatim() {
    let answer = anthropic(ANTHROPIC).unwrap();
    let raws: Vec<Vec<&str>> = answer.blocks.iter().map(|block| block.raw.iter().map(Json::as_str).collect()).collect();
    assert_eq!(raws[0], [r#"{"signature":"c2ln/+==","thinking":"hm","type":"thinking"}"#]);
    assert_eq!(raws[1], [r#"{"type":"redacted_thinking","data":"abc=="}"#]);
    assert_eq!(
        raws[2],
        [r#"{"type":"new_kind","big":123456789012345678901234567890}"#, r#"{"text":"Héllo 中😀","type":"text"}"#]
    );
    assert!(raws[3].is_empty(), "a plain call is written again from its parts");
    assert_eq!(answer.blocks[0].kind, BlockKind::Thinking { text: "hm".into() });
    assert_eq!(answer.blocks[2].kind, BlockKind::Text { text: "Héllo 中😀".into() });
    let input = Ok(Json::parse(r#"{"command":"ls"}"#).unwrap());
    assert_eq!(answer.blocks[3].kind, BlockKind::ToolUse { provider_id: "toolu_1".into(), name: "bash".into(), input });
    assert_eq!(answer.usage, Usage { input: 10, output: 7, cache_read: 900, cache_write: 50 });
    assert_eq!(answer.stop, AnswerStop::ToolUse);
}

#[test]
fn an_openai_answer_counts_cached_tokens_apart_and_keeps_reasoning() {
    let answer = openai(OPENAI).unwrap();
    assert_eq!(answer.blocks[0].kind, BlockKind::Thinking { text: "hm".into() });
    assert_eq!(answer.blocks[0].raw[0].as_str(), r#"{"reasoning_content":"hm"}"#);
    assert_eq!(answer.blocks[1].kind, BlockKind::Text { text: "Héllo 😀".into() });
    assert_eq!(answer.usage, Usage { input: 20, output: 5, cache_read: 80, cache_write: 0 });
    assert_eq!(answer.stop, AnswerStop::ToolUse);
    assert_eq!(inputs(&answer), [Ok(r#"{"command":"ls"}"#.to_owned())]);
}

#[test]
fn previews_name_the_places_that_the_blocks_have_in_the_answer() {
    for (dialect, text) in ALL.map(|given| (given.dialect, given.stream)) {
        let (events, answer) = decode(dialect, [text.as_bytes()]);
        let answer = answer.unwrap();
        for (place, block) in answer.blocks.iter().enumerate() {
            let text: String = events
                .iter()
                .filter_map(|event| match event {
                    StreamEvent::Text { index, text } | StreamEvent::Thinking { index, text } if *index == place => {
                        Some(text.as_str())
                    }
                    _ => None,
                })
                .collect();
            let starts =
                events.iter().filter(|event| matches!(event, StreamEvent::BlockStart { index, .. } if *index == place));
            let stops =
                events.iter().filter(|event| matches!(event, StreamEvent::BlockStop { index } if *index == place));
            assert_eq!((starts.count(), stops.count()), (1, 1), "{dialect} {place}");
            match &block.kind {
                BlockKind::Text { text: whole } | BlockKind::Thinking { text: whole } => {
                    assert_eq!(text, *whole)
                }
                BlockKind::ToolUse { .. } => assert_eq!(text, ""),
            }
        }
    }
}

#[test]
fn o_001_an_error_event_inside_a_200_stream_is_classified_by_its_type() {
    let start =
        ANTHROPIC.find("event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":4").unwrap();
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":\"req_1\"}\n\n";
    let failure = anthropic(&format!("{}{error}", &ANTHROPIC[..start])).unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Transient, "overloaded_error"));
    assert_eq!(failure.request_id.as_deref(), Some("req_1"));
    // Some gateways leave the event names out.
    let unnamed = error.trim_start_matches("event: error\n");
    assert_eq!(anthropic(&format!("{}{unnamed}", &ANTHROPIC[..start])).unwrap_err().class, Class::Transient);
    let openai_error = "data: {\"choices\":[{\"delta\":{\"content\":\"Hal\"}}]}\n\ndata: {\"error\":{\"message\":\"slow down\",\"code\":\"rate_limit_exceeded\"}}\n\n";
    assert_eq!(openai(openai_error).unwrap_err().class, Class::RateLimit);
}

#[test]
fn o_002_an_error_as_the_very_first_event_is_the_same() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let (events, end) = decode(DialectName::Anthropic, [error.as_bytes()]);
    assert_eq!((events, end.unwrap_err().class), (Vec::new(), Class::Transient));
}

#[test]
fn o_003_a_stream_cut_inside_a_tool_call_is_incomplete() {
    let cut = ANTHROPIC.find("\\\"ls\\\"").unwrap();
    assert_eq!(anthropic(&ANTHROPIC[..cut]).unwrap_err().class, Class::Incomplete);
    let cut = OPENAI.find("and\\\"").unwrap();
    assert_eq!(openai(&OPENAI[..cut]).unwrap_err().class, Class::Incomplete);
}

#[test]
fn o_003_a_message_delta_with_a_stop_reason_is_a_terminal_marker() {
    let cut = ANTHROPIC.find("event: message_stop").unwrap();
    assert_eq!(anthropic(&ANTHROPIC[..cut]), anthropic(ANTHROPIC));
}

#[test]
fn o_004_a_finish_reason_is_the_end_and_content_alone_is_not() {
    let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    assert_eq!(openai(&format!("{chunk}{chunk}")).unwrap_err().class, Class::Incomplete);
    let finished = format!("{chunk}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n");
    assert_eq!(openai(&finished).unwrap().stop, AnswerStop::EndTurn);
}

#[test]
fn o_009_line_ends_do_not_matter() {
    for given in ALL {
        let text = given.stream.replace("\r\n", "\n");
        let expected = decode(given.dialect, [given.stream.as_bytes()]);
        for end in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', end);
            assert_eq!(decode(given.dialect, [text.as_bytes()]), expected, "{} {end:?}", given.dialect);
            assert_eq!(decode(given.dialect, text.as_bytes().chunks(1)), expected, "{} {end:?}", given.dialect);
        }
    }
}

#[test]
fn o_010_a_bad_byte_is_one_replacement_character_and_the_stream_goes_on() {
    for given in ALL {
        let stream = given.stream.replace('😀', "中");
        let bytes = stream.as_bytes();
        let broken: Vec<u8> = stream.split('中').map(str::as_bytes).collect::<Vec<_>>().join(&0xff);
        let said = |bytes: &[u8]| {
            let answer = decode(given.dialect, bytes.chunks(1)).1.unwrap();
            answer.blocks.into_iter().find_map(|block| match block.kind {
                BlockKind::Text { text } => Some(text),
                BlockKind::Thinking { .. } | BlockKind::ToolUse { .. } => None,
            })
        };
        let whole = said(bytes).unwrap();
        assert!(whole.contains('中') && !whole.contains('\u{fffd}'), "{}", given.dialect);
        assert_eq!(said(&broken), Some(whole.replace('中', "\u{fffd}")), "{}", given.dialect);
    }
}

#[test]
fn o_011_a_length_stop_says_that_the_answer_was_cut_and_mends_nothing() {
    let answer = openai(&call(r#"{"path":"a.txt","content":"line1"#, "length")).unwrap();
    assert_eq!(answer.stop, AnswerStop::MaxTokens);
    assert!(inputs(&answer)[0].is_err());
    let answer = openai(&call("{}", "length")).unwrap();
    assert_eq!(answer.stop, AnswerStop::MaxTokens, "also if the arguments happen to parse");
    let answer =
        anthropic(&ANTHROPIC.replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"")).unwrap();
    assert_eq!(answer.stop, AnswerStop::MaxTokens);
}

#[test]
fn o_011_a_length_stop_is_told_in_every_dialect_also_if_the_arguments_parse() {
    for dialect in ALL.map(|given| given.dialect) {
        for arguments in [r#"{"path":"a.txt","content":"line1"#, r#"{"path":"a.txt"}"#] {
            let answer = answer(dialect, &calls(dialect, "write", arguments, End::Length));
            assert_eq!(answer.stop, AnswerStop::MaxTokens, "{dialect} {arguments}");
            let is_whole = arguments.ends_with('}');
            assert!(inputs(&answer).iter().all(|input| input.is_ok() == is_whole), "{dialect}: nothing is mended");
        }
    }
}

#[test]
fn o_012_malformed_arguments_and_none_at_all_in_every_dialect() {
    for dialect in ALL.map(|given| given.dialect) {
        let answer_to = |arguments: &str| answer(dialect, &calls(dialect, "f", arguments, End::Tools));
        let malformed = answer_to(r#"{"op": listt_files"}"#);
        let is_told = inputs(&malformed).iter().all(|input| input.as_ref().is_err_and(|told| told.contains("line 1")));
        assert!(is_told, "{dialect} {malformed:?}");
        for arguments in ["", "null", " "] {
            assert_eq!(inputs(&answer_to(arguments)), vec![Ok("{}".to_owned()); 2], "{dialect} {arguments:?}");
        }
    }
}

#[test]
fn o_013_and_o_014_equal_ids_are_two_calls_and_unknown_names_come_through_in_every_dialect() {
    for dialect in ALL.map(|given| given.dialect) {
        let answer = answer(dialect, &calls(dialect, "multi_tool_use.parallel", "{}", End::Tools));
        assert_eq!(answer.stop, AnswerStop::ToolUse, "{dialect}");
        let names: Vec<(&str, &str)> = answer
            .blocks
            .iter()
            .filter_map(|block| match &block.kind {
                BlockKind::ToolUse { name, provider_id, .. } => Some((name.as_str(), provider_id.as_str())),
                BlockKind::Text { .. } | BlockKind::Thinking { .. } => None,
            })
            .collect();
        assert_eq!(names, [("multi_tool_use.parallel", "same"); 2], "{dialect}");
    }
}

#[test]
fn o_016_an_answer_with_nothing_in_it_is_empty_in_every_dialect_whatever_it_says() {
    for (dialect, stream) in [
        (DialectName::OpenAi, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n"),
        (DialectName::OpenAi, "data: [DONE]\n\n"),
        (DialectName::Responses, "data: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n"),
        (DialectName::Gemini, "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n"),
        (
            DialectName::Gemini,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}]},\"finishReason\":\"STOP\"}]}\n\n",
        ),
        (DialectName::Ollama, "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n"),
    ] {
        let answer = answer(dialect, stream);
        assert!(answer.is_empty() && answer.stop == AnswerStop::EndTurn, "{dialect} {stream}");
    }
}

#[test]
fn a_call_in_an_answer_that_a_filter_stopped_is_not_there_to_run() {
    for dialect in ALL.map(|given| given.dialect) {
        let answer = answer(dialect, &calls(dialect, "f", "{}", End::Filter));
        assert_eq!((answer.stop, inputs(&answer).len()), (AnswerStop::Refusal, 0), "{dialect}");
    }
}

#[test]
fn o_031_lone_surrogates_are_replaced_and_pairs_stay_in_every_dialect() {
    for given in ALL {
        let stream = given.stream.replace("llo ", "llo \\ud99c \\ud83d\\ude00 ").replace("\"hm\"", "\"h\\udc00m\"");
        let answer = answer(given.dialect, &stream);
        let text: String = answer
            .blocks
            .iter()
            .map(|block| match &block.kind {
                BlockKind::Text { text } | BlockKind::Thinking { text } => text.as_str(),
                BlockKind::ToolUse { .. } => "",
            })
            .collect();
        if given.dialect != DialectName::OpenAi {
            assert!(text.contains("llo \u{fffd} 😀"), "{} {text}", given.dialect);
        }
        assert!(text.contains("h\u{fffd}m"), "{} {text}", given.dialect);
    }
}

#[test]
fn gemini_refuses_prompts_and_ends_answers_for_reasons_of_many_names() {
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"}}\n\n";
    let failure = decode(DialectName::Gemini, [blocked.as_bytes()]).1.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Refused, "PROHIBITED_CONTENT"));
    let end = |word: &str| {
        let stream = format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"x\"}}]}},\"finishReason\":\"{word}\"}}]}}\n\n"
        );
        decode(DialectName::Gemini, [stream.as_bytes()]).1
    };
    for word in ["SAFETY", "RECITATION", "BLOCKLIST", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR", "IMAGE_NEW_WORD"] {
        assert_eq!(end(word).unwrap().stop, AnswerStop::Refusal, "{word}");
    }
    assert_eq!(end("CONTINUATION").unwrap().stop, AnswerStop::Pause);
    for (word, class) in [
        ("OTHER", Class::Incomplete),
        ("A_WORD_OF_TOMORROW", Class::Incomplete),
        ("MISSING_THOUGHT_SIGNATURE", Class::BadHistory),
        ("FINISH_REASON_UNSPECIFIED", Class::Incomplete),
    ] {
        assert_eq!(end(word).unwrap_err().class, class, "{word}");
    }
}

#[test]
fn responses_fail_for_codes_that_are_tried_again_and_for_such_as_are_not() {
    let failed = |code: &str| {
        let stream = format!(
            "data: {{\"type\":\"response.failed\",\"response\":{{\"error\":{{\"code\":\"{code}\",\"message\":\"Please try again in 11s.\"}}}}}}\n\n"
        );
        decode(DialectName::Responses, [stream.as_bytes()]).1.unwrap_err()
    };
    for (code, class) in [
        ("server_error", Class::Transient),
        ("vector_store_timeout", Class::Transient),
        ("rate_limit_exceeded", Class::RateLimit),
        ("insufficient_quota", Class::Quota),
        ("invalid_prompt", Class::Request),
        ("image_content_policy_violation", Class::Refused),
        ("failed_to_download_image", Class::Request),
        ("a_code_of_tomorrow", Class::Request),
    ] {
        assert_eq!(failed(code).class, class, "{code}");
    }
    assert_eq!(failed("rate_limit_exceeded").retry_after, Some(11_000), "there are no headers inside a stream");
    let flat = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\",\"param\":null,\"sequence_number\":3}\n\n";
    assert_eq!(decode(DialectName::Responses, [flat.as_bytes()]).1.unwrap_err().class, Class::Transient);
}

#[test]
fn servers_that_send_items_nowhere_but_at_the_end_or_without_names_are_understood() {
    let item = r#"{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[]}]}"#;
    let stream = format!("event: response.completed\ndata: {{\"response\":{{\"output\":[{item}]}}}}\n\n");
    let (events, end) = decode(DialectName::Responses, [stream.as_bytes()]);
    assert_eq!(end.unwrap().blocks[0].kind, BlockKind::Text { text: "hi".into() });
    assert!(events.contains(&StreamEvent::Text { index: 0, text: "hi".into() }), "{events:?}");
    let whole = "data: {\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(openai(whole).unwrap().blocks[0].kind, BlockKind::Text { text: "hi".into() });
}

#[test]
fn gemini_keeps_signed_parts_one_by_one_and_signatures_that_come_alone() {
    let chunk =
        |parts: &str, end: &str| format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{parts}]}}{end}}}]}}\n\n");
    let stream = chunk(r#"{"text":"a"},{"text":"b"}"#, "")
        + &chunk(r#"{"text":"c","thoughtSignature":"s1"},{"text":"d"}"#, "")
        + &chunk(r#"{"text":"","thoughtSignature":"s2","big":123456789012345678901234567890}"#, "")
        + &chunk(r#"{"functionCall":{"name":"f","args":{"n":12345678901234567890123}}}"#, ",\"finishReason\":\"STOP\"");
    let answer = answer(DialectName::Gemini, &stream);
    assert_eq!(answer.blocks[0].kind, BlockKind::Text { text: "abcd".into() });
    let raws: Vec<&str> = answer.blocks[0].raw.iter().map(Json::as_str).collect();
    assert_eq!(
        raws,
        [
            r#"{"text":"ab"}"#,
            r#"{"text":"c","thoughtSignature":"s1"}"#,
            r#"{"text":"d"}"#,
            r#"{"text":"","thoughtSignature":"s2","big":123456789012345678901234567890}"#,
        ]
    );
    assert!(answer.blocks[1].raw.is_empty(), "a plain call is written again from its parts");
    assert_eq!(inputs(&answer), [Ok(r#"{"n":12345678901234567890123}"#.to_owned())]);
}

#[test]
fn usage_is_counted_in_each_dialects_way() {
    for (given, expected) in ALL.iter().zip([
        Usage { input: 10, output: 7, cache_read: 900, cache_write: 50 },
        Usage { input: 20, output: 5, cache_read: 80, cache_write: 0 },
        Usage { input: 20, output: 9, cache_read: 80, cache_write: 0 },
        Usage { input: 20, output: 9, cache_read: 80, cache_write: 0 },
        Usage { input: 100, output: 9, cache_read: 0, cache_write: 0 },
    ]) {
        assert_eq!(given.answer().usage, expected, "{}", given.dialect);
    }
}

#[test]
fn o_012_malformed_arguments_carry_the_parse_message_and_none_at_all_is_an_empty_object() {
    let answer = openai(&call(r#"{"op": listt_files"}"#, "tool_calls")).unwrap();
    assert!(inputs(&answer)[0].as_ref().unwrap_err().contains("line 1"), "{answer:?}");
    for arguments in ["", "null", " "] {
        assert_eq!(inputs(&openai(&call(arguments, "tool_calls")).unwrap()), [Ok("{}".to_owned())]);
    }
    let answer = anthropic(&ANTHROPIC.replace("{\\\"command\\\":", "").replace("\\\"ls\\\"}", "")).unwrap();
    assert_eq!(inputs(&answer), [Ok("{}".to_owned())]);
}

#[test]
fn o_013_calls_with_the_same_id_stay_apart() {
    let piece = |index: &str, id: &str, name: &str, arguments: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{{index}\"id\":\"{id}\",\"function\":{{\"name\":\"{name}\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
        )
    };
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    for stream in [
        // Two calls with one id.
        piece("\"index\":0,", "x:0", "f", "{}") + &piece("\"index\":1,", "x:0", "f", "{}"),
        // Two calls with one index.
        piece("\"index\":0,", "a", "f", "{}") + &piece("\"index\":0,", "b", "f", "{}"),
        // Two calls without any index.
        piece("", "a", "f", "{}") + &piece("", "b", "f", "{}"),
    ] {
        let answer = openai(&(stream + end)).unwrap();
        assert_eq!(inputs(&answer), [Ok("{}".to_owned()), Ok("{}".to_owned())]);
    }
}

#[test]
fn o_014_an_unknown_tool_name_comes_through_for_the_core_to_refuse() {
    let answer = openai(&call("{}", "stop").replace("\"f\"", "\"multi_tool_use.parallel\"")).unwrap();
    assert!(matches!(&answer.blocks[0].kind, BlockKind::ToolUse { name, .. } if name == "multi_tool_use.parallel"));
    assert_eq!(answer.stop, AnswerStop::ToolUse, "the call is there, whatever the reason says");
}

#[test]
fn o_016_a_stop_for_tools_without_any_tool_is_an_empty_answer() {
    let start = "data: {\"type\":\"message_start\",\"message\":{}}\n\n";
    let end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    let answer = anthropic(&format!("{start}{end}")).unwrap();
    assert!(answer.is_empty());
    assert_eq!(answer.stop, AnswerStop::EndTurn);
}

#[test]
fn o_030_nul_in_text_comes_through() {
    let answer = anthropic(&ANTHROPIC.replace("中😀", "x\\u0000y")).unwrap();
    assert_eq!(answer.blocks[2].kind, BlockKind::Text { text: "Héllo x\0y".into() });
}

#[test]
fn o_031_lone_surrogates_in_text_and_arguments_are_replaced_and_pairs_stay() {
    let answer = anthropic(&ANTHROPIC.replace("\\\"ls\\\"", "\\\"\\\\ud99c\\\"")).unwrap();
    assert_eq!(inputs(&answer), [Ok(r#"{"command":"\ufffd"}"#.to_owned())]);
    let answer = anthropic(&ANTHROPIC.replace("中😀", "\\ud99c \\ud83d\\ude00")).unwrap();
    assert_eq!(answer.blocks[2].kind, BlockKind::Text { text: "Héllo \u{fffd} 😀".into() });
    let answer = openai(&call("\"\\ud99c\"", "tool_calls")).unwrap();
    assert_eq!(inputs(&answer), [Ok("\"\\ufffd\"".to_owned())]);
}

#[test]
fn o_090_deep_tool_arguments_are_malformed_and_nothing_more() {
    let deep = "[".repeat(10_000);
    let answer = anthropic(&ANTHROPIC.replace("\\\"ls\\\"", &deep)).unwrap();
    assert!(inputs(&answer)[0].as_ref().unwrap_err().contains("deep"));
    let answer = openai(&call(&format!("{{\"x\":{deep}"), "tool_calls")).unwrap();
    assert!(inputs(&answer)[0].is_err());
    // Deep in the event itself: the attempt fails, the process lives.
    let event = format!("data: {{\"type\":\"message_start\",\"message\":{deep}\n\n");
    assert_eq!(anthropic(&event).unwrap_err().class, Class::Incomplete);
}

#[test]
fn a_refusal_and_a_content_filter_are_refusals() {
    let refused =
        "data: {\"choices\":[{\"delta\":{\"refusal\":\"No.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    assert_eq!(openai(refused).unwrap().stop, AnswerStop::Refusal);
    let filtered = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\n";
    assert_eq!(openai(filtered).unwrap().stop, AnswerStop::Refusal);
}

#[test]
fn fields_that_gateways_add_to_calls_are_kept() {
    let text = call("{}", "tool_calls")
        .replace("\"id\":\"c\"", "\"id\":\"c\",\"extra_content\":{\"google\":{\"thought_signature\":\"s\"}}");
    let answer = openai(&text).unwrap();
    assert_eq!(answer.blocks[0].raw[0].as_str(), r#"{"extra_content":{"google":{"thought_signature":"s"}}}"#);
}

#[test]
fn every_cut_gives_the_same_previews_and_the_same_answer() {
    for (dialect, text) in ALL.map(|given| (given.dialect, given.stream)) {
        let whole = decode(dialect, [text.as_bytes()]);
        for cut in 0..text.len() {
            let (before, after) = text.as_bytes().split_at(cut);
            assert_eq!(decode(dialect, [before, after]), whole, "{dialect} cut at {cut}");
        }
        assert_eq!(decode(dialect, text.as_bytes().chunks(1)), whole);
    }
}

#[test]
fn a_stream_that_ends_anywhere_before_its_marker_is_never_an_answer() {
    for (dialect, text, marker) in ALL.map(|given| (given.dialect, given.stream, given.marker)) {
        for end in 0..text.find(marker).unwrap() {
            assert_eq!(
                decode(dialect, [&text.as_bytes()[..end]]).1.unwrap_err().class,
                Class::Incomplete,
                "{dialect} {end}"
            );
        }
    }
}

#[test]
fn nothing_counts_after_the_marker_also_in_the_same_chunk() {
    let error = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    for (dialect, text) in ALL.map(|given| (given.dialect, given.stream)) {
        let whole = decode(dialect, [text.as_bytes()]);
        assert!(whole.1.is_ok());
        assert_eq!(decode(dialect, [format!("{text}{error}").as_bytes()]), whole);
    }
}

#[test]
fn an_endless_answer_ends_at_the_bound() {
    let event = format!("data: {{\"type\":\"ping\",\"x\":\"{}\"}}\n\n", "x".repeat(1 << 20));
    let chunks = std::iter::repeat_n(event.as_bytes(), 70);
    let failure = decode(DialectName::Anthropic, chunks).1.unwrap_err();
    assert_eq!(failure.class, Class::Incomplete);
    assert!(failure.message.contains("larger than"), "{}", failure.message);
}

/// The same bytes in one chunk and in chunks of these sizes.
fn chunked(dialect: DialectName, bytes: &[u8], sizes: &[usize]) {
    let whole = decode(dialect, [bytes]);
    let (mut chunks, mut rest, mut sizes) = (Vec::new(), bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        chunks.push(chunk);
        rest = after;
    }
    assert_eq!(decode(dialect, chunks), whole);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), sizes in proptest::collection::vec(1..50usize, 1..8)) {
        for dialect in ALL.map(|given| given.dialect) {
            chunked(dialect, &bytes, &sizes);
        }
    }

    #[test]
    fn no_mutation_of_a_real_stream_makes_a_decoder_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..80usize, any::<bool>()), 1..6),
        sizes in proptest::collection::vec(1..200usize, 1..8),
    ) {
        for (dialect, text) in ALL.map(|given| (given.dialect, given.stream)) {
            let mut bytes = text.as_bytes().to_vec();
            for (place, byte, len, repeats) in &changes {
                if bytes.is_empty() {
                    break;
                }
                let place = place.index(bytes.len());
                let end = (place + len).min(bytes.len());
                bytes[place] = *byte;
                if *repeats {
                    let part = bytes[place..end].to_vec();
                    bytes.splice(place..place, part);
                } else {
                    bytes.drain(place..end);
                }
            }
            chunked(dialect, &bytes, &sizes);
        }
    }

    #[test]
    fn events_of_real_streams_in_any_order_make_no_decoder_panic_and_no_answer_without_its_marker(
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let events: Vec<&str> = ALL
            .iter()
            .flat_map(|given| {
                let end = if given.dialect == DialectName::Ollama { "\n" } else { "\n\n" };
                let end = if given.dialect == DialectName::Gemini { "\r\n\r\n" } else { end };
                given.stream.split_inclusive(end)
            })
            .collect();
        let stream: String = picks.iter().map(|place| events[place.index(events.len())]).collect();
        for dialect in ALL.map(|given| given.dialect) {
            chunked(dialect, stream.as_bytes(), &[11, 3]);
            let markers = ALL.map(|given| given.marker);
            let has_marker =
                markers.iter().chain(&["message_stop", "[DONE]"]).any(|marker| stream.contains(marker));
            let is_answer = decode(dialect, [stream.as_bytes()]).1.is_ok();
            prop_assert!(!is_answer || has_marker);
        }
    }

    #[test]
    fn json_of_any_shape_in_events_makes_no_decoder_panic(
        kind in "response\\.output_item\\.added|response\\.output_item\\.done|response\\.output_text\\.delta|response\\.completed|response\\.failed|message_start|content_block_start|content_block_delta|content_block_stop|message_delta|message_stop|error",
        value in "null|1|-1|1e300|\"x\"|\\[\\]|\\{\\}|\\{\"type\":\"text\"\\}|\\{\"type\":1\\}|\\{\"usage\":\\[1\\]\\}|\\{\"tool_calls\":\\[null,\\{\"index\":-1\\}\\]\\}",
    ) {
        let stream = format!(
            "{{\"type\":\"{kind}\",\"index\":0,\"content_block\":{value},\"delta\":{value},\"message\":{value},\"usage\":{value},\"error\":{value},\"choices\":[{{\"delta\":{value},\"finish_reason\":{value}}}],\"item\":{value},\"response\":{value},\"candidates\":[{{\"content\":{{\"parts\":[{value}]}},\"finishReason\":{value}}}],\"done\":{value}}}\n\n"
        );
        for dialect in ALL.map(|given| given.dialect) {
            chunked(dialect, stream.as_bytes(), &[7]);
            chunked(dialect, format!("data: {stream}").as_bytes(), &[7]);
        }
    }
}
