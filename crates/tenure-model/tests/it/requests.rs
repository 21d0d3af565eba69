//! What providers are sent, judged by rules that were written down from their documents and not from
//! our code.

use crate::given::{ALL, GEMINI, OLLAMA, RESPONSES, decode, prompt, said};
use crate::random_log::log;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tenure_core::{
    AssistantPart, Block, BlockKind, EventId, Json, MediaKind, Message, Origin, Prompt, UserPart, transcript, validate,
};
use tenure_model::{DialectName, request};

fn body(dialect: DialectName, prompt: &Prompt) -> Value {
    let request = request(dialect, "http://localhost:1", prompt, &serde_json::Map::new()).unwrap();
    serde_json::from_slice(&request.body).unwrap()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn visible(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// The rules of Messages.
fn judge_anthropic(body: &Value) -> Result<(), String> {
    let (mut open, mut known) = (Vec::new(), BTreeSet::new());
    for (index, message) in items(&body["messages"]).iter().enumerate() {
        let role = if index % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != role {
            return Err(format!("message {index} is not of {role}"));
        }
        let content = items(&message["content"]);
        if content.is_empty() {
            return Err(format!("message {index} is empty"));
        }
        let results: Vec<&str> = content.iter().map_while(|block| block["tool_use_id"].as_str()).collect();
        if role == "user" && results != open {
            return Err(format!("message {index} answers {results:?} and not {open:?}"));
        }
        open.clear();
        for (place, block) in content.iter().enumerate() {
            match (role, block["type"].as_str().unwrap_or_default()) {
                (_, "text") if visible(&block["text"]) => {}
                ("assistant", "thinking") if block["signature"].is_string() => {}
                ("assistant", "redacted_thinking") => {}
                ("assistant", "tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default();
                    if !block["input"].is_object() || id.is_empty() || id.len() > 64 || !known.insert(id) {
                        return Err(format!("message {index} has a bad call {block}"));
                    }
                    open.push(id);
                }
                ("user", "tool_result")
                    if place < results.len() && items(&block["content"]).iter().all(|part| visible(&part["text"])) => {}
                _ => return Err(format!("message {index} has a bad block {block}")),
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last calls have no results".to_owned()) }
}

/// The rules of Chat Completions.
fn judge_openai(body: &Value) -> Result<(), String> {
    let (mut open, mut known): (Vec<&str>, BTreeSet<&str>) = (Vec::new(), BTreeSet::new());
    for (index, message) in items(&body["messages"]).iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if open.is_empty() || open.remove(0) != id || !visible(&message["content"]) {
                return Err(format!("message {index} is a bad result {message}"));
            }
            continue;
        }
        if !open.is_empty() {
            return Err(format!("message {index} comes before the results of {open:?}"));
        }
        let calls = items(&message["tool_calls"]);
        let has_content = visible(&message["content"]) || !items(&message["content"]).is_empty();
        if !has_content && calls.is_empty() {
            return Err(format!("message {index} is empty"));
        }
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default();
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object());
            if role != "assistant" || id.is_empty() || !known.insert(id) || !is_object {
                return Err(format!("message {index} has a bad call {call}"));
            }
            open.push(id);
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last calls have no results".to_owned()) }
}

/// The rules of Responses: calls and outputs pair, a reasoning item and the item after it stay together
/// (case O-024), ids come once.
fn judge_responses(body: &Value) -> Result<(), String> {
    let (mut open, mut known, mut ids) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut reasoning: Option<&str> = None;
    for (index, item) in items(&body["input"]).iter().enumerate() {
        let bad = |what: &str| Err(format!("item {index} {what}: {item}"));
        let id = item["id"].as_str();
        if id.is_some_and(|id| !ids.insert(id)) {
            return bad("comes twice");
        }
        let number = |id: &str| id.rsplit('_').next().unwrap_or_default().to_owned();
        let kind = item["type"].as_str().unwrap_or_default();
        if kind != "reasoning" {
            // All items with ids were written after a reasoning item of the same number.
            let expected = id.map(number);
            if reasoning.take().map(number) != expected {
                return bad("is without its reasoning, or stands after another one's");
            }
        }
        match (kind, item["role"].as_str()) {
            ("reasoning", None) if reasoning.is_none() && item["encrypted_content"].is_string() => reasoning = id,
            // An answer may speak after its calls; their outputs still come before the user's side.
            ("message", Some("assistant")) => {
                if !items(&item["content"]).iter().all(|part| part["type"] == "output_text" && visible(&part["text"])) {
                    return bad("says nothing");
                }
            }
            ("message", Some("user")) if open.is_empty() => {
                if !items(&item["content"]).iter().all(|part| part["type"] == "input_text" && visible(&part["text"])) {
                    return bad("says nothing");
                }
            }
            ("function_call", None) => {
                let call = item["call_id"].as_str().unwrap_or_default();
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object());
                if call.is_empty() || call.len() > 64 || !known.insert(call) || !is_object {
                    return bad("is a bad call");
                }
                open.insert(call);
            }
            ("function_call_output", None) => {
                if !open.remove(item["call_id"].as_str().unwrap_or_default()) || !visible(&item["output"]) {
                    return bad("is a bad output");
                }
            }
            _ => return bad("stands in a wrong place or is unknown"),
        }
    }
    match (reasoning, open.is_empty()) {
        (None, true) => Ok(()),
        (Some(id), _) => Err(format!("nothing follows {id}")),
        (None, false) => Err(format!("no output for {open:?}")),
    }
}

/// The rules of Gemini: contents alternate, the results of a turn's calls come right after it, in order.
fn judge_gemini(body: &Value) -> Result<(), String> {
    let mut open: Vec<&Value> = Vec::new();
    for (index, content) in items(&body["contents"]).iter().enumerate() {
        let bad = |what: &str| Err(format!("content {index} {what}: {content}"));
        let role = if index % 2 == 0 { "user" } else { "model" };
        let parts = items(&content["parts"]);
        if content["role"] != role || parts.is_empty() {
            return bad("is of the wrong role, or empty");
        }
        let results: Vec<&Value> =
            parts.iter().map(|part| &part["functionResponse"]).take_while(|result| result.is_object()).collect();
        let is_answer = results.len() == open.len()
            && results.iter().zip(&open).all(|(result, call)| {
                result["name"] == call["name"] && result["id"] == call["id"] && result["response"].is_object()
            });
        if role == "user" && !is_answer {
            return bad("does not answer the calls before it");
        }
        open.clear();
        for part in &parts[results.len()..] {
            let has_signature = part["thoughtSignature"].is_string();
            match (role, part["functionCall"].is_object(), part["text"].as_str()) {
                ("model", true, None) if part["functionCall"]["args"].is_object() => open.push(&part["functionCall"]),
                ("model", false, Some(text)) if !text.trim().is_empty() || has_signature => {}
                // What the model itself wrote before a signature may be blank.
                ("model", false, Some(_)) if parts.iter().any(|part| part["thoughtSignature"].is_string()) => {}
                ("user", false, Some(text)) if !text.trim().is_empty() => {}
                _ => return bad("has a bad part"),
            }
        }
        let mut ids = BTreeSet::new();
        if open.iter().filter_map(|call| call["id"].as_str()).any(|id| !ids.insert(id)) {
            return bad("has an id twice");
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last calls have no results".to_owned()) }
}

/// The rules of Ollama: the results of a message's calls come right after it, in order, by name.
fn judge_ollama(body: &Value) -> Result<(), String> {
    let mut open: Vec<&Value> = Vec::new();
    for (index, message) in items(&body["messages"]).iter().enumerate() {
        let bad = |what: &str| Err(format!("message {index} {what}: {message}"));
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            if open.is_empty() || open.remove(0)["name"] != message["tool_name"] || !visible(&message["content"]) {
                return bad("is a bad result");
            }
            continue;
        }
        let calls = items(&message["tool_calls"]);
        if !open.is_empty() || !["system", "user", "assistant"].contains(&role) {
            return bad("stands in a wrong place");
        }
        if !visible(&message["content"]) && calls.is_empty() {
            return bad("says nothing");
        }
        open.extend(calls.iter().map(|call| &call["function"]));
        if open.iter().any(|call| !visible(&call["name"]) || !call["arguments"].is_object()) {
            return bad("has a bad call");
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last calls have no results".to_owned()) }
}

/// Nothing that another model signed is in the request.
fn judge_signatures(dialect: DialectName, body: &Value) -> Result<(), String> {
    let own = format!("{dialect}:p/m:");
    let text = body.to_string();
    match text.split("sig:").skip(1).find(|rest| !rest.starts_with(&own)) {
        None => Ok(()),
        Some(rest) => Err(format!("a signature of {:?}", rest.chars().take(30).collect::<String>())),
    }
}

/// All reasoning of this model is in the request of its own dialect, byte for byte and in order.
fn judge_thinking(prompt: &Prompt, body: &Value) -> Result<(), String> {
    let is_ours = |origin: &Origin| origin.model == prompt.model && origin.dialect == "anthropic";
    let kept: Vec<Value> = prompt
        .messages
        .iter()
        .flat_map(|message| match message {
            Message::Assistant(parts) => parts.as_slice(),
            Message::User(_) => &[],
        })
        .filter_map(|part| match part {
            AssistantPart::Thinking { origin, .. } if is_ours(origin) => Some(origin.blocks.iter().map(Json::to_value)),
            _ => None,
        })
        .flatten()
        .collect();
    let sent: Vec<Value> = items(&body["messages"])
        .iter()
        .flat_map(|message| items(&message["content"]))
        .filter(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking")
        .cloned()
        .collect();
    if sent == kept { Ok(()) } else { Err(format!("sent {sent:?}, kept {kept:?}")) }
}

fn judge(dialect: DialectName, prompt: &Prompt) -> Result<(), String> {
    let body = body(dialect, prompt);
    judge_signatures(dialect, &body)?;
    match dialect {
        DialectName::Anthropic => judge_anthropic(&body).and_then(|()| judge_thinking(prompt, &body)),
        DialectName::OpenAi => judge_openai(&body),
        DialectName::Responses => judge_responses(&body),
        DialectName::Gemini => judge_gemini(&body),
        DialectName::Ollama => judge_ollama(&body),
        DialectName::Script => Ok(()),
    }
    .map_err(|why| format!("{dialect}: {why} in {body}"))
}

/// The parts of a request in the order in which providers read them, without the marks of caching.
fn cached_parts(dialect: DialectName, messages: Vec<Message>) -> (Vec<String>, usize) {
    fn unmark(value: &mut Value) -> usize {
        match value {
            Value::Object(fields) => {
                let own = usize::from(fields.remove("cache_control").is_some());
                own + fields.values_mut().map(unmark).sum::<usize>()
            }
            Value::Array(items) => items.iter_mut().map(unmark).sum(),
            _ => 0,
        }
    }
    let mut body = body(dialect, &prompt(messages));
    let marks = unmark(&mut body);
    let list = ["messages", "input", "contents"].into_iter().find(|name| body[*name].is_array()).unwrap();
    let mut parts = vec![body["tools"].to_string(), body["system"].to_string(), body["instructions"].to_string()];
    parts.extend(items(&body[list]).iter().map(Value::to_string));
    (parts, marks)
}

#[test]
fn each_request_begins_with_the_one_before_it_so_that_caches_know_it_also_after_a_compaction() {
    let call = |id: u128| {
        let call = EventId::from_bits(id << 20);
        let input = Json::parse(r#"{"command":"ls"}"#).unwrap();
        let origin = Origin::default();
        let part = AssistantPart::ToolUse { call, name: "bash".into(), input, origin };
        let content = vec![Block::Text(format!("result {id}"))];
        [Message::Assistant(vec![part]), Message::User(vec![UserPart::Result { call, content, is_error: false }])]
    };
    for given in ALL {
        let dialect = given.dialect;
        for first in ["go", "[This conversation was long.]"] {
            let mut messages = vec![said(first)];
            let (mut before, _) = cached_parts(dialect, messages.clone());
            for id in 1..8 {
                messages.extend(call(id));
                let (parts, marks) = cached_parts(dialect, messages.clone());
                assert_eq!(parts[..before.len()], before[..], "{dialect} after {id} calls");
                assert!(marks <= 4, "Anthropic takes four marks at most, not {marks}");
                assert_eq!(marks > 0, dialect == DialectName::Anthropic, "{dialect}");
                before = parts;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p4_every_prefix_of_every_log_is_a_valid_request_in_every_dialect(script in proptest::collection::vec(any::<(u8, u8)>(), 0..40)) {
        let events = log(&script);
        for end in 0..=events.len() {
            let prompt = prompt(transcript(&events[..end]));
            prop_assert_eq!(validate::validate(&prompt.messages), Ok(()));
            for given in ALL {
                prop_assert_eq!(judge(given.dialect, &prompt), Ok(()));
            }
        }
    }
}

fn origin(dialect: &str, model: &str, blocks: &[&str]) -> Origin {
    Origin {
        dialect: dialect.into(),
        model: model.into(),
        blocks: blocks.iter().map(|block| Json::parse(block).unwrap()).collect(),
    }
}

fn call(id: u128, origin: Origin) -> AssistantPart {
    AssistantPart::ToolUse {
        call: EventId::from_bits(id),
        name: "bash".into(),
        input: Json::parse(r#"{"n":12345678901234567890123}"#).unwrap(),
        origin,
    }
}

fn result(id: u128, content: Vec<Block>) -> UserPart {
    UserPart::Result { call: EventId::from_bits(id), content, is_error: false }
}

#[test]
fn o_013_ids_that_are_sent_are_ours_in_call_and_result() {
    let used = origin(
        "anthropic",
        "p/m",
        &[r#"{"type":"tool_use","id":"run:0","name":"bash","input":{},"caller":{"type":"direct"}}"#],
    );
    let prompt = prompt(vec![
        said("a"),
        Message::Assistant(vec![call(1, used.clone()), call(2, used)]),
        Message::User(vec![result(1, vec![Block::Text("x".into())]), result(2, vec![Block::Text("y".into())])]),
    ]);
    let ids = [1, 2].map(|id| EventId::from_bits(id).to_string());
    let anthropic = body(DialectName::Anthropic, &prompt);
    let (calls, results) = (&anthropic["messages"][1]["content"], &anthropic["messages"][2]["content"]);
    assert_eq!([&calls[0]["id"], &calls[1]["id"]], [&json!(ids[0]), &json!(ids[1])]);
    assert_eq!([&results[0]["tool_use_id"], &results[1]["tool_use_id"]], [&json!(ids[0]), &json!(ids[1])]);
    assert_eq!(calls[0]["caller"], json!({"type": "direct"}), "what we do not know goes back");
    let openai = body(DialectName::OpenAi, &prompt);
    assert_eq!(openai["messages"][2]["tool_calls"][1]["id"], json!(ids[1]));
    assert_eq!(openai["messages"][4]["tool_call_id"], json!(ids[1]));
}

#[test]
fn verbatim_blocks_go_back_byte_for_byte() {
    let thinking = r#"{"type":"thinking","thinking":"hm \u00e9","signature":"c2ln"}"#;
    let unknown = r#"{"type":"new_kind","big":123456789012345678901234567890}"#;
    let part =
        AssistantPart::Thinking { text: "hm é".into(), origin: origin("anthropic", "p/m", &[thinking, unknown]) };
    let prompt = prompt(vec![
        said("a"),
        Message::Assistant(vec![part, call(1, Origin::default())]),
        Message::User(vec![result(1, vec![Block::Text("x".into())])]),
    ]);
    let request = request(DialectName::Anthropic, "http://h", &prompt, &serde_json::Map::new()).unwrap();
    let text = String::from_utf8(request.body).unwrap();
    assert!(
        text.contains(thinking) && text.contains(unknown) && text.contains(r#"{"n":12345678901234567890123}"#),
        "{text}"
    );
    let other = Prompt { model: "p/other".into(), ..prompt };
    let text = body(DialectName::Anthropic, &other).to_string();
    assert!(!text.contains("c2ln") && !text.contains("new_kind"), "reasoning of another model is left out");
}

#[test]
fn anthropic_caches_the_system_text_and_the_ends_of_the_newest_user_messages() {
    let prompt = prompt(vec![
        said("1"),
        Message::Assistant(vec![AssistantPart::Text { text: "ok".into(), origin: Origin::default() }]),
        said("2"),
        Message::Assistant(vec![AssistantPart::Text { text: "ok".into(), origin: Origin::default() }]),
        said("3"),
    ]);
    let body = body(DialectName::Anthropic, &prompt);
    assert!(body["system"][0]["cache_control"].is_object());
    let marked: Vec<bool> =
        items(&body["messages"]).iter().map(|message| message["content"][0]["cache_control"].is_object()).collect();
    assert_eq!(marked, [false, false, true, false, true]);
    assert_eq!(
        (body["max_tokens"].clone(), body["stream"].clone(), body["model"].clone()),
        (json!(100), json!(true), json!("m"))
    );
    assert_eq!(body["tools"][0]["input_schema"]["type"], "object");
}

#[test]
fn openai_gets_results_as_messages_of_their_own_and_attachments_after_them() {
    let image =
        Json::parse(r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#).unwrap();
    let media = Block::Media { kind: MediaKind::Image, json: image };
    let prompt = prompt(vec![
        said("a"),
        Message::Assistant(vec![call(1, Origin::default())]),
        Message::User(vec![
            result(1, vec![Block::Text("done".into()), media]),
            UserPart::Block(Block::Text("and?".into())),
        ]),
    ]);
    let body = body(DialectName::OpenAi, &prompt);
    let roles: Vec<&str> = items(&body["messages"]).iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(body["messages"][4]["content"][1]["image_url"]["url"], "data:image/png;base64,AAAA");
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["messages"][2]["content"], Value::Null);
}

#[test]
fn openai_reasoning_goes_back_to_its_model_alone() {
    let part = |text: &str| AssistantPart::Thinking {
        text: text.into(),
        origin: origin("openai", "p/m", &[r#"{"reasoning_content":"hm"}"#]),
    };
    let messages = vec![
        said("a"),
        Message::Assistant(vec![part("hm"), call(1, Origin::default())]),
        Message::User(vec![result(1, vec![Block::Text("x".into())])]),
    ];
    let same = body(DialectName::OpenAi, &prompt(messages.clone()));
    assert_eq!(same["messages"][2]["reasoning_content"], "hm");
    let other = body(DialectName::OpenAi, &Prompt { model: "p/other".into(), ..prompt(messages) });
    assert_eq!(other["messages"][2]["reasoning_content"], Value::Null);
}

#[test]
fn addresses_are_completed_in_each_dialects_way() {
    let url =
        |dialect, base: &str| request(dialect, base, &prompt(vec![said("a")]), &serde_json::Map::new()).unwrap().url;
    assert_eq!(url(DialectName::Anthropic, "https://api.anthropic.com"), "https://api.anthropic.com/v1/messages");
    assert_eq!(url(DialectName::Anthropic, "http://h/proxy/v1/"), "http://h/proxy/v1/messages");
    assert_eq!(url(DialectName::OpenAi, "http://h:11434"), "http://h:11434/v1/chat/completions");
    assert_eq!(url(DialectName::OpenAi, "https://h/api/v1/"), "https://h/api/v1/chat/completions");
    assert_eq!(url(DialectName::Responses, "http://h:1"), "http://h:1/v1/responses");
    assert_eq!(url(DialectName::Responses, "https://h/v1/"), "https://h/v1/responses");
    let gemini = "https://generativelanguage.googleapis.com/v1beta";
    assert_eq!(url(DialectName::Gemini, gemini), format!("{gemini}/models/m:streamGenerateContent?alt=sse"));
    assert_eq!(url(DialectName::Gemini, "http://h"), "http://h/v1beta/models/m:streamGenerateContent?alt=sse");
    for base in ["http://h:11434", "http://h:11434/", "http://h:11434/api", "http://h:11434/v1/"] {
        assert_eq!(url(DialectName::Ollama, base), "http://h:11434/api/chat", "{base}");
    }
    let named = |name: &str| {
        let prompt = Prompt { model_name: name.into(), ..prompt(vec![said("a")]) };
        request(DialectName::Gemini, "http://h/v1", &prompt, &serde_json::Map::new()).unwrap().url
    };
    assert_eq!(named("tunedModels/x"), "http://h/v1/tunedModels/x:streamGenerateContent?alt=sse");
    assert_eq!(named("a b?c#d"), "http://h/v1/models/a%20b%3Fc%23d:streamGenerateContent?alt=sse");
}

/// The messages of a session whose model answered with this stream, and whose calls are done.
fn after(dialect: DialectName, stream: &str) -> Vec<Message> {
    let answer = decode(dialect, [stream.as_bytes()]).1.unwrap();
    let (mut parts, mut results) = (Vec::new(), Vec::new());
    for (number, block) in (1..).zip(answer.blocks) {
        let origin = Origin { dialect: answer.dialect.clone(), model: answer.model.clone(), blocks: block.raw };
        parts.push(match block.kind {
            BlockKind::Text { text } => AssistantPart::Text { text, origin },
            BlockKind::Thinking { text } => AssistantPart::Thinking { text, origin },
            BlockKind::ToolUse { name, input, .. } => {
                results.push(result(number, vec![Block::Text("done".into())]));
                AssistantPart::ToolUse { call: EventId::from_bits(number), name, input: input.unwrap(), origin }
            }
        });
    }
    results.push(UserPart::Block(Block::Text("go on".into())));
    vec![said("a"), Message::Assistant(parts), Message::User(results)]
}

#[test]
fn o_024_a_reasoning_item_goes_back_with_the_item_after_it_or_not_at_all() {
    let stream = RESPONSES;
    let body = body(DialectName::Responses, &prompt(after(DialectName::Responses, stream)));
    assert_eq!(judge_responses(&body), Ok(()));
    let kinds: Vec<&str> = items(&body["input"]).iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["message", "reasoning", "message", "function_call", "function_call_output", "message"]);
    assert_eq!((&body["input"][1]["id"], &body["input"][2]["id"]), (&json!("rs_1"), &json!("msg_1")));
    assert_eq!((&body["store"], &body["previous_response_id"]), (&json!(false), &Value::Null), "the history is whole");
    // Without its content the provider would look for it in its own store, where it is not.
    let bare = stream.replace("\"encrypted_content\":\"c2ln/+==\",", "");
    let body = self::body(DialectName::Responses, &prompt(after(DialectName::Responses, &bare)));
    let kinds: Vec<&str> = items(&body["input"]).iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["message", "message", "function_call", "function_call_output", "message"]);
    assert_eq!(body["input"][1]["id"], Value::Null);
    // A crash right after the call: the history has an output for it all the same.
    let mut messages = after(DialectName::Responses, stream);
    messages.pop();
    let Some(Message::Assistant(parts)) = messages.pop() else { panic!("an answer") };
    messages.push(Message::Assistant(parts));
    assert!(validate::validate(&messages).is_err(), "which the check before every request insists on");
}

#[test]
fn o_024_an_item_whose_id_was_sent_already_goes_back_in_our_own_words() {
    let answer = after(DialectName::Responses, RESPONSES).remove(1);
    let Message::Assistant(mut parts) = answer else { panic!("an answer") };
    parts.retain(|part| !matches!(part, AssistantPart::ToolUse { .. }));
    let again = Message::Assistant(parts.clone());
    let body =
        body(DialectName::Responses, &prompt(vec![said("a"), Message::Assistant(parts), said("b"), again, said("c")]));
    assert_eq!(judge_responses(&body), Ok(()));
    let ids: Vec<&str> = items(&body["input"]).iter().filter_map(|item| item["id"].as_str()).collect();
    assert_eq!(ids, ["rs_1", "msg_1"], "the provider refuses an id that comes twice");
}

#[test]
fn o_024_reasoning_carries_its_content_where_the_model_reasons() {
    let include = |name: &str, extra: Value| {
        let Value::Object(extra) = extra else { unreachable!() };
        let prompt = Prompt { model_name: name.into(), ..prompt(vec![said("a")]) };
        let request = request(DialectName::Responses, "http://h", &prompt, &extra).unwrap();
        serde_json::from_slice::<Value>(&request.body).unwrap()["include"].clone()
    };
    let encrypted = json!(["reasoning.encrypted_content"]);
    for name in ["o3", "o4-mini", "gpt-5", "gpt-5.2-pro", "gpt-6-mini", "codex-mini", "openai/gpt-5"] {
        assert_eq!(include(name, json!({})), encrypted, "{name}");
    }
    for name in ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "omni", "llama"] {
        assert_eq!(include(name, json!({})), Value::Null, "{name}");
    }
    assert_eq!(include("llama", json!({"reasoning": {"effort": "low"}})), encrypted);
    assert_eq!(include("o3", json!({"include": []})), json!([]), "the operator's own word wins");
}

#[test]
fn numbers_and_unknown_fields_of_a_providers_own_items_go_back_as_they_came() {
    let request = request(
        DialectName::Responses,
        "http://h",
        &prompt(after(DialectName::Responses, RESPONSES)),
        &serde_json::Map::new(),
    )
    .unwrap();
    let text = String::from_utf8(request.body).unwrap();
    assert!(text.contains("123456789012345678901234567890"), "{text}");
}

#[test]
fn gemini_signatures_go_back_on_their_part_and_to_their_model_alone() {
    let messages = after(DialectName::Gemini, GEMINI);
    let own = body(DialectName::Gemini, &prompt(messages.clone()));
    let parts = items(&own["contents"][1]["parts"]);
    assert_eq!(parts[0], json!({"text": "Héllo 中😀"}));
    assert_eq!(parts[1]["thoughtSignature"], "c2ln/+==");
    assert_eq!(parts[1]["functionCall"], json!({"name": "bash", "args": {"command": "ls"}}), "no id came, none goes");
    let result = json!({"name": "bash", "response": {"output": "done"}});
    assert_eq!(own["contents"][2]["parts"][0]["functionResponse"], result);
    let other = Prompt { model: "p/other".into(), ..prompt(messages.clone()) };
    assert_eq!(body(DialectName::Gemini, &other)["contents"][1]["parts"][1]["thoughtSignature"], Value::Null);
    // The newest models insist on one, and have a word for calls that another model made.
    let newest = Prompt { model_name: "gemini-3-pro".into(), ..other };
    let part = &body(DialectName::Gemini, &newest)["contents"][1]["parts"][1];
    assert_eq!(part["thoughtSignature"], "skip_thought_signature_validator");
    assert_eq!(own["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]["type"], "object");
    assert_eq!(own["generationConfig"]["maxOutputTokens"], 100);
}

#[test]
fn o_013_gemini_ids_are_ours_where_an_id_came() {
    let stream = GEMINI.replace("\"functionCall\":{", "\"functionCall\":{\"id\":\"run:0\",");
    let body = body(DialectName::Gemini, &prompt(after(DialectName::Gemini, &stream)));
    let id = json!(EventId::from_bits(3).to_string());
    assert_eq!(body["contents"][1]["parts"][1]["functionCall"]["id"], id);
    assert_eq!(body["contents"][2]["parts"][0]["functionResponse"]["id"], id);
}

#[test]
fn ollama_gets_results_by_name_images_apart_and_its_own_reasoning() {
    let image =
        Json::parse(r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#).unwrap();
    let mut messages = after(DialectName::Ollama, OLLAMA);
    if let Some(Message::User(parts)) = messages.last_mut() {
        parts.push(UserPart::Block(Block::Media { kind: MediaKind::Image, json: image }));
    }
    let own = body(DialectName::Ollama, &prompt(messages.clone()));
    assert_eq!(judge_ollama(&own), Ok(()));
    assert_eq!(own["messages"][2]["thinking"], "hm");
    assert_eq!(own["messages"][2]["tool_calls"][0]["function"]["arguments"], json!({"command": "ls"}));
    assert_eq!((&own["messages"][3]["tool_name"], &own["messages"][4]["images"]), (&json!("bash"), &json!(["AAAA"])));
    assert_eq!(own["options"]["num_predict"], 100);
    let other = body(DialectName::Ollama, &Prompt { model: "p/other".into(), ..prompt(messages) });
    assert_eq!(other["messages"][2]["thinking"], Value::Null);
}

#[test]
fn objects_of_the_operator_join_ours() {
    let Value::Object(extra) = json!({"options": {"num_ctx": 32_768}}) else { unreachable!() };
    let request = request(DialectName::Ollama, "http://h", &prompt(vec![said("a")]), &extra).unwrap();
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["options"], json!({"num_ctx": 32_768, "num_predict": 100}));
}

#[test]
fn a_conversation_is_named_to_openai_itself_and_to_no_server_that_may_refuse_the_field() {
    let prompt = Prompt { cache_key: "sesn_1".into(), ..prompt(vec![said("a")]) };
    for dialect in [DialectName::OpenAi, DialectName::Responses] {
        let key = |base_url: &str| {
            let request = request(dialect, base_url, &prompt, &serde_json::Map::new()).unwrap();
            serde_json::from_slice::<Value>(&request.body).unwrap()["prompt_cache_key"].clone()
        };
        assert_eq!(key("https://api.openai.com/v1"), "sesn_1", "{dialect}");
        assert_eq!(key("http://localhost:1234/v1"), Value::Null, "{dialect}");
    }
}

#[test]
fn an_answer_of_any_dialect_is_history_for_every_other_one() {
    for wrote in ALL {
        let prompt = prompt(after(wrote.dialect, &wrote.stream.replace("new_kind", "redacted_thinking")));
        for asked in ALL {
            assert_eq!(judge(asked.dialect, &prompt), Ok(()), "{} after {}", asked.dialect, wrote.dialect);
            let text = body(asked.dialect, &prompt).to_string();
            assert!(text.contains("Héllo") && text.contains("done"), "{text}");
            let has_signature = text.contains("c2ln/+==") || text.contains("reasoning_content");
            let keeps = asked.dialect == wrote.dialect && wrote.dialect != DialectName::Ollama;
            assert_eq!(has_signature, keeps, "{} after {}", asked.dialect, wrote.dialect);
        }
    }
}

#[test]
fn fields_of_the_operator_are_added_to_every_body() {
    let extra = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let Value::Object(extra) = extra else { unreachable!() };
    for dialect in ALL.map(|given| given.dialect) {
        let request = request(dialect, "http://h", &prompt(vec![said("a")]), &extra).unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["thinking"]["budget_tokens"], 1024);
    }
}
