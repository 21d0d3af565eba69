//! The table of status, event and phase, row by row.

use crate::hand::{self, Hand};
use crate::house::House;
use serde_json::{Value, json};
use tenure_core::failure::Class;
use tenure_core::*;
use tenure_store::Then;

/// A session whose turn has begun, and its worker.
async fn begun(house: &House) -> (String, Hand) {
    let session = house.session().await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim(house).await;
    hand.take_inputs().await;
    (session, hand)
}

fn parked(hand: &Hand, kind: WaitKind, calls: Vec<EventId>) -> Draft {
    let lease_time = hand.head.created_at;
    Draft::new(Body::WaitStarted { wait: Wait { kind, since: lease_time, until: None, calls } })
}

/// Status and phase of a session, and its newest events.
async fn shown(house: &House, session: &str, count: usize) -> (String, String, Vec<String>) {
    let view = house.get(&format!("/v1/sessions/{session}")).await.ok();
    let list = house.get(&format!("/v1/sessions/{session}/events?order=desc&limit={count}")).await.ok();
    let mut types: Vec<String> =
        list["data"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    types.reverse();
    let explain = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
    assert_eq!(explain["phase"], view["phase"], "one word in all places");
    let word = |field: &str| view[field].as_str().unwrap().to_owned();
    (word("status"), word("phase"), types)
}

async fn check(house: &House, session: &str, status: &str, phase: &str, newest: &[&str]) {
    let found = shown(house, session, newest.len()).await;
    let newest: Vec<String> = newest.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(found, (status.to_owned(), phase.to_owned(), newest));
}

/// Sends each request that explain names, on a session of its own kind.
async fn unblock(house: &House, session: &str) {
    let explain = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
    let ways = explain["unblock"].as_array().unwrap();
    assert!(!ways.is_empty(), "{explain}");
    for way in ways {
        assert_eq!(way["method"], "POST");
        let mut body = way["body"].clone();
        // The words of a message are left to the person.
        if let Some(text) = body.pointer_mut("/events/0/content/0/text") {
            assert_eq!(text.take(), json!(""));
            *text = json!("go on");
        }
        house.post(way["path"].as_str().unwrap(), body).await.ok();
    }
}

#[tokio::test]
async fn leased_queued_and_yielded_are_running_and_said_once_in_a_turn() {
    let house = House::new();
    let (session, mut hand) = begun(&house).await;
    check(&house, &session, "running", "working", &["user.message", "session.status_running"]).await;
    hand.commit(vec![], Then::Yield).await;
    check(&house, &session, "running", "queued", &["session.status_running"]).await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    house.say(&session, "more").await;
    hand.commit(vec![], Then::Keep).await;
    hand.take_inputs().await;
    check(&house, &session, "running", "working", &["session.status_running", "user.message"]).await;
    let span = hand.begin(1).await;
    hand.answer(&span, EventId::from_bits(hand::next()), "done").await;
    let said = house.get(&format!("/v1/sessions/{session}/events?types[]=session.status_running")).await.ok();
    assert_eq!(said["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_timer_or_a_callback_in_a_turn_is_running_and_waiting_without_idle() {
    for kind in [WaitKind::Timer, WaitKind::Callback { callback: CallbackId::from_bits(7) }] {
        let house = House::new();
        let (session, mut hand) = begun(&house).await;
        let call =
            tool(&mut hand, if kind == WaitKind::Timer { CallKind::Sleep } else { CallKind::WaitForCallback }).await;
        let wait = parked(&hand, kind, vec![call]);
        hand.commit(vec![wait], Then::Park).await;
        check(&house, &session, "running", "waiting", &["agent.tool_use", "session.wait_started"]).await;
        unblock(&house, &session).await;
    }
}

#[tokio::test]
async fn backing_off_and_waiting_for_a_condition_are_rescheduling() {
    for kind in [
        WaitKind::Backoff { class: Class::Transient, attempt: 1 },
        WaitKind::Condition { class: Class::Quota, model: "p/priced".into(), condition: None },
    ] {
        let house = House::new();
        let (session, mut hand) = begun(&house).await;
        let span = hand.begin(1).await;
        let drafts = vec![hand.end(&span, true), Draft::new(Body::StatusRescheduled), parked(&hand, kind, vec![])];
        hand.commit(drafts, Then::Park).await;
        let newest = ["span.model_request_end", "session.status_rescheduled", "session.wait_started"];
        check(&house, &session, "rescheduling", "backing_off", &newest).await;
        unblock(&house, &session).await;
    }
}

#[tokio::test]
async fn an_ended_turn_is_idle() {
    let house = House::new();
    let (session, mut hand) = begun(&house).await;
    let span = hand.begin(1).await;
    hand.answer(&span, EventId::from_bits(hand::next()), "done").await;
    check(&house, &session, "idle", "idle", &["span.model_request_end", "session.status_idle"]).await;
    assert_eq!(stop_reason(&house, &session).await, json!({"type": "end_turn"}));
    unblock(&house, &session).await;
}

#[tokio::test]
async fn an_approval_a_custom_tool_and_a_question_are_idle_and_need_somebody() {
    for kind in [CallKind::Sandbox, CallKind::Custom, CallKind::AskUser] {
        let house = House::new();
        let session = house.session().await;
        house.say(&session, "hi").await;
        let call = Hand::claim(&house).await.ask(kind).await.to_string();
        check(&house, &session, "idle", "needs_you", &["session.wait_started", "session.status_idle"]).await;
        let reason = json!({"type": "requires_action", "event_ids": [call]});
        assert_eq!(stop_reason(&house, &session).await, reason);
        unblock(&house, &session).await;
    }
}

#[tokio::test]
async fn a_reached_budget_and_exhausted_retries_are_idle_and_keep_their_inputs() {
    for (kind, stop, word) in [
        (WaitKind::Budget { which: Which::Steps }, Stop::BudgetReached, "budget_reached"),
        (WaitKind::Budget { which: Which::Tokens }, Stop::BudgetReached, "budget_reached"),
        (WaitKind::Budget { which: Which::Cost }, Stop::BudgetReached, "budget_reached"),
        (WaitKind::Budget { which: Which::Wall }, Stop::BudgetReached, "budget_reached"),
        (WaitKind::Budget { which: Which::Failures }, Stop::BudgetReached, "budget_reached"),
        (WaitKind::Budget { which: Which::IdenticalCalls }, Stop::BudgetReached, "budget_reached"),
        (WaitKind::Upstream { class: Class::Transient }, Stop::RetriesExhausted, "retries_exhausted"),
    ] {
        let house = House::new();
        let (session, mut hand) = begun(&house).await;
        let wait = parked(&hand, kind.clone(), vec![]);
        hand.commit(vec![wait, Draft::new(Body::StatusIdle { stop })], Then::Park).await;
        check(&house, &session, "idle", "needs_you", &["session.wait_started", "session.status_idle"]).await;
        assert_eq!(stop_reason(&house, &session).await, json!({"type": word}));
        let limit = async |which: Which| {
            house.get(&format!("/v1/sessions/{session}")).await.ok()["limits"][which.name()].as_f64()
        };
        if let WaitKind::Budget { which } = kind {
            let before = limit(which).await;
            unblock(&house, &session).await;
            assert!(limit(which).await > before);
        }
        house.say(&session, "kept").await;
        let list = house.get(&format!("/v1/sessions/{session}/events")).await.ok();
        assert_eq!(list["data"].as_array().unwrap().last().unwrap()["content"][0]["text"], "kept");
    }
}

#[tokio::test]
async fn paused_keeps_the_status_and_says_so() {
    let house = House::new();
    let (session, mut hand) = begun(&house).await;
    house.post(&format!("/v1/sessions/{session}/pause"), json!({})).await.ok();
    hand.commit(vec![], Then::Keep).await;
    hand.take_inputs().await;
    hand.commit(vec![], Then::Park).await;
    check(&house, &session, "running", "paused", &["session.status_running", "session.updated"]).await;
    let list = house.get(&format!("/v1/sessions/{session}/events?order=desc&limit=1")).await.ok();
    assert_eq!(list["data"][0]["update"], "paused");
    unblock(&house, &session).await;
}

#[tokio::test]
async fn done_failed_and_cancelled_are_terminated() {
    for (end, phase) in [
        (End::Done, "done"),
        (End::Failed { reason: "why".into() }, "failed"),
        (End::Cancelled { processes: "killed".into() }, "cancelled"),
    ] {
        let house = House::new();
        let (session, mut hand) = begun(&house).await;
        hand.commit(vec![Draft::new(Body::StatusTerminated { end })], Then::Park).await;
        check(&house, &session, "terminated", phase, &["session.status_running", "session.status_terminated"]).await;
    }
}

/// The model asks for a call that runs at once.
async fn tool(hand: &mut Hand, kind: CallKind) -> EventId {
    let span = hand.begin(1).await;
    let id = EventId::from_bits(hand::next());
    let body = Body::AgentToolUse {
        name: "sleep".into(),
        input: Json::object(),
        kind,
        effect: Effect::Pure,
        permission: Permission::Allow,
        malformed: None,
        origin: Origin::default(),
    };
    let end = hand.end(&span, false);
    hand.commit(vec![end, Draft { id: Some(id), step: span.step, body }], Then::Keep).await;
    id
}

async fn stop_reason(house: &House, session: &str) -> Value {
    let list = house.get(&format!("/v1/sessions/{session}/events?types[]=session.status_idle")).await.ok();
    let event = list["data"].as_array().unwrap().last().unwrap()["stop_reason"].clone();
    assert_eq!(house.get(&format!("/v1/sessions/{session}")).await.ok()["stop_reason"], event, "on the session too");
    event
}
