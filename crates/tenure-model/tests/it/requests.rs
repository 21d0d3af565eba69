//! What providers are sent, judged by rules that were written down from their documents and not from
//! our code.

use crate::given::{prompt, said};
use crate::random_log::log;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tenure_core::{
    AssistantPart, Block, EventId, Json, MediaKind, Message, Origin, Prompt, UserPart, transcript, validate,
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

/// No reasoning of another model is in the request.
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
        .filter(|block| block["type"] == "thinking")
        .cloned()
        .collect();
    if sent == kept { Ok(()) } else { Err(format!("sent {sent:?}, kept {kept:?}")) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p4_every_prefix_of_every_log_is_a_valid_request_in_every_dialect(script in proptest::collection::vec(any::<(u8, u8)>(), 0..40)) {
        let events = log(&script);
        for end in 0..=events.len() {
            let prompt = prompt(transcript(&events[..end]));
            prop_assert_eq!(validate::validate(&prompt.messages), Ok(()));
            let anthropic = body(DialectName::Anthropic, &prompt);
            prop_assert_eq!(judge_anthropic(&anthropic), Ok(()), "{}", anthropic);
            prop_assert_eq!(judge_thinking(&prompt, &anthropic), Ok(()));
            let openai = body(DialectName::OpenAi, &prompt);
            prop_assert_eq!(judge_openai(&openai), Ok(()), "{}", openai);
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
}

#[test]
fn fields_of_the_operator_are_added_to_every_body() {
    let extra = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let Value::Object(extra) = extra else { unreachable!() };
    for dialect in [DialectName::Anthropic, DialectName::OpenAi] {
        let request = request(dialect, "http://h", &prompt(vec![said("a")]), &extra).unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["thinking"]["budget_tokens"], 1024);
    }
}
