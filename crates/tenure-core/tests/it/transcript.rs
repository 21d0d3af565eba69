//! From rows to messages: what a model reads of a log.

use tenure_core::*;

fn event(seq: u64, step: u64, body: Body) -> Event {
    Event { id: EventId::from_bits(u128::from(seq)), seq, at: Timestamp(0), step, body }
}

fn user(text: &str) -> Body {
    Body::UserMessage { content: vec![Block::Text(text.into())] }
}

fn call() -> Body {
    Body::AgentToolUse {
        name: "bash".into(),
        input: Json::object(),
        kind: CallKind::Sandbox,
        effect: Effect::Once,
        permission: Permission::Allow,
        malformed: None,
        origin: Origin::default(),
    }
}

fn result(call: u64, text: &str, outcome: Outcome) -> Body {
    Body::AgentToolResult {
        tool_use_id: EventId::from_bits(u128::from(call)),
        content: vec![Block::Text(text.into())],
        outcome,
    }
}

/// Messages in short: `user: …` and `model: …`, results as `#call=text`, failed ones with `!`.
fn shown(events: &[Event]) -> Vec<String> {
    let block = |block: &Block| match block {
        Block::Text(text) => text.clone(),
        Block::Media { .. } => "media".into(),
    };
    let user = |part: &UserPart| match part {
        UserPart::Block(inner) => block(inner),
        UserPart::Result { call, content, is_error } => {
            let mark = if *is_error { "!" } else { "" };
            format!("#{}={mark}{}", call.bits(), content.iter().map(block).collect::<Vec<_>>().join("+"))
        }
    };
    let model = |part: &AssistantPart| match part {
        AssistantPart::Text { text, .. } | AssistantPart::Thinking { text, .. } => text.clone(),
        AssistantPart::ToolUse { call, .. } => format!("#{}", call.bits()),
    };
    transcript(events)
        .iter()
        .map(|message| match message {
            Message::User(parts) => format!("user: {}", parts.iter().map(user).collect::<Vec<_>>().join(", ")),
            Message::Assistant(parts) => format!("model: {}", parts.iter().map(model).collect::<Vec<_>>().join(", ")),
        })
        .collect()
}

#[test]
fn results_come_in_the_order_of_the_calls_and_before_what_was_said_meanwhile() {
    let log = [
        event(1, 0, user("go")),
        event(2, 1, call()),
        event(3, 1, call()),
        event(4, 0, user("wait")),
        event(5, 3, result(3, "second", Outcome::Done)),
        event(6, 2, result(2, "first", Outcome::Failed)),
    ];
    assert_eq!(shown(&log), ["user: go", "model: #2, #3", "user: #2=!first, #3=second, wait"]);
}

#[test]
fn a_call_without_a_result_has_one_that_says_so_and_the_first_result_wins() {
    let log = [
        event(1, 0, user("go")),
        event(2, 1, call()),
        event(3, 1, result(2, "one", Outcome::Done)),
        event(4, 1, result(2, "two", Outcome::Done)),
    ];
    assert_eq!(shown(&log[..2]), ["user: go", "model: #2", "user: #2=!This call has no result: it was not run."]);
    assert_eq!(shown(&log), ["user: go", "model: #2", "user: #2=one"]);
}

#[test]
fn a_range_that_begins_with_an_answer_begins_with_a_user_message_all_the_same() {
    let log = [
        event(2, 1, call()),
        event(3, 1, result(2, "x", Outcome::Done)),
        event(4, 1, result(9, "stray", Outcome::Done)),
    ];
    assert_eq!(shown(&log), ["user: (continued)", "model: #2", "user: #2=x"]);
}

#[test]
fn an_unknown_outcome_reads_as_a_failure() {
    let log =
        [event(1, 0, user("go")), event(2, 1, call()), event(3, 1, result(2, "may have happened", Outcome::Unknown))];
    assert_eq!(shown(&log)[2], "user: #2=!may have happened");
}

#[test]
fn empty_content_is_never_sent() {
    let log = [event(1, 0, user("  ")), event(2, 1, call()), event(3, 1, result(2, "", Outcome::Done))];
    assert_eq!(shown(&log), ["user: (empty)", "model: #2", "user: #2=(empty)"]);
}
