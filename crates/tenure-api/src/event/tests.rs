use super::*;
use crate::fields::Fields;
use tenure_core::{EventId, InputBody, Origin, Timestamp};

fn row(body: Body) -> Value {
    let event = Event { id: EventId::from_bits(5), seq: 3, at: Timestamp(1_796_005_870_120), step: 2, body };
    let wire = WireEvent::of(&event);
    let value = serde_json::to_value(&wire).expect("plain");
    assert_eq!(value["type"], wire.type_name());
    assert_eq!(serde_json::from_value::<WireEvent>(value.clone()).expect("read back"), wire);
    value
}

#[test]
fn the_private_form_of_a_block_is_never_shown() {
    let origin = Origin {
        dialect: "anthropic".into(),
        model: "a/secret-model".into(),
        blocks: vec![Json::parse(r#"{"signature":"sig"}"#).expect("json")],
    };
    let shown = [
        row(Body::AgentMessage { text: "hi\u{0}".into(), origin: origin.clone() }),
        row(Body::AgentThinking { text: "hm".into(), origin: origin.clone() }),
        row(Body::AgentCustomToolUse {
            name: "ask_user".into(),
            input: Json::object(),
            kind: tenure_core::CallKind::AskUser,
            origin,
        }),
    ];
    for value in &shown {
        assert!(!value.to_string().contains("sig") && !value.to_string().contains("secret-model"), "{value}");
    }
    assert_eq!(
        shown[0],
        json!({
            "id": "sevt_00000000000000000000000005", "type": "agent.message", "content": [{"type": "text", "text": "hi\u{0}"}],
            "seq": 3, "step": 2, "processed_at": "2026-11-30T02:31:10.120Z",
        })
    );
}

#[test]
fn a_queued_input_has_neither_seq_nor_time() {
    let input = Input { id: EventId::from_bits(1), at: Timestamp(0), body: InputBody::Interrupt };
    let value = serde_json::to_value(WireEvent::queued(&input)).expect("plain");
    assert_eq!(
        value,
        json!({"id": "sevt_00000000000000000000000001", "type": "user.interrupt", "seq": null, "processed_at": null})
    );
}

#[test]
fn errors_have_the_types_that_clients_know() {
    let error = |class, retrying| {
        row(Body::Error { class, message: "m".into(), retrying, request_id: None, limit: None })["error"].clone()
    };
    assert_eq!(
        error(Class::Transient, true),
        json!({"type": "model_overloaded_error", "message": "m", "retry_status": {"type": "retrying"}})
    );
    assert_eq!(
        error(Class::Quota, false),
        json!({"type": "billing_error", "message": "m", "retry_status": {"type": "exhausted"}})
    );
}

fn read(value: Value) -> Result<Vec<InputBody>, (crate::error::Code, String)> {
    let fields = Fields::root(&value).map_err(|problem| (problem.code, problem.message))?;
    read_events(&fields, "events").map_err(|problem| (problem.code, problem.message))
}

#[test]
fn events_of_clients_are_read() {
    let call = EventId::from_bits(9).to_string();
    let events = read(json!({"events": [
        {"type": "user.message", "content": [{"type": "text", "text": "hi"}], "later_field": 1},
        {"type": "user.tool_confirmation", "tool_use_id": call, "result": "deny", "deny_message": "no"},
        {"type": "user.custom_tool_result", "custom_tool_use_id": call},
        {"type": "user.interrupt"},
    ]}));
    let tool_use_id = EventId::from_bits(9);
    assert_eq!(
        events,
        Ok(vec![
            InputBody::Message { content: vec![Block::Text("hi".into())] },
            InputBody::Confirmation { tool_use_id, decision: Decision::Deny { message: Some("no".into()) } },
            InputBody::CustomResult { tool_use_id, content: vec![], is_error: false },
            InputBody::Interrupt,
        ])
    );
}

#[test]
fn a_mistake_is_named_with_its_place() {
    use crate::error::Code;
    for (events, code, place) in [
        (json!([{"type": "user.message"}]), Code::MissingField, "events[0].content"),
        (json!([{"type": "user.message", "content": []}]), Code::InvalidField, "events[0].content"),
        (
            json!([{"type": "user.interrupt"}, {"type": "user.message", "content": [{"type": "text"}]}]),
            Code::MissingField,
            "events[1].content[0].text",
        ),
        (
            json!([{"type": "user.message", "content": [{"type": "redacted"}]}]),
            Code::UnsupportedContent,
            "events[0].content[0].type",
        ),
        (json!([{"type": "agent.message"}]), Code::UnsupportedEvent, "events[0].type"),
        (json!([{"type": "user.define_outcome"}]), Code::UnsupportedEvent, "events[0].type"),
        (
            json!([{"type": "user.tool_confirmation", "result": "allow", "tool_use_id": "x"}]),
            Code::UnknownToolUse,
            "events[0].tool_use_id",
        ),
        (json!([{"type": "user.tool_confirmation", "result": "maybe"}]), Code::InvalidField, "events[0].result"),
        (json!([]), Code::InvalidField, "events"),
        (json!("x"), Code::InvalidField, "events"),
        (json!([1]), Code::InvalidField, "events[0]"),
    ] {
        let (given, message) = read(json!({"events": events})).expect_err("wrong");
        assert_eq!(given, code, "{message}");
        assert!(message.starts_with(&format!("{place}:")), "{message}");
    }
}
