//! Whole turns.

use crate::house::{House, check, said};
use tenure_core::*;

const TWO: &str = r#"
[[turn]]
do = [{ say = "first" }]
[[turn]]
do = [{ say = "second" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_and_the_session_goes_idle() {
    let mut house = House::new(TWO).await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "hi").await;
    house.until(session, Phase::Idle).await;
    house.say(session, "again").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["first", "second"]);
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_001_a_failing_upstream_is_tried_again_and_nothing_of_the_failed_attempt_stays() {
    let scenario = r#"
[[turn]]
do = [{ say = "hello world" }]
attempts = [
  { do = [{ say = "hello wor" }, { error = "overloaded_error" }] },
  { status = 529, type = "overloaded_error" },
  { do = [{ say = "hel" }, { cut = "end" }] },
]
"#;
    let mut house = House::new(scenario).await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "hi").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["hello world"]);
    let failed = log.iter().filter(|event| matches!(event.body, Body::SpanEnd { is_error: true, .. })).count();
    assert_eq!(failed, 3);
    check(&log);
    worker.stop().await;
}

const WAITS: &str = r#"
[[turn]]
do = [{ call = "sleep", input = { seconds = 0.3 } }]
[[turn]]
do = [{ call = "create_callback", input = { label = "ci" } }]
[[turn]]
do = [{ say = "waiting" }, { call = "form", input = { a = 1 } }]
[[turn]]
do = [{ call = "ask_user", input = { question = "ok?" } }]
[[turn]]
do = [{ say = "done" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_wait_parks_for_real_and_is_ended_by_its_answer() {
    let mut house = House::new(WAITS).await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "go").await;
    let view = house.until(session, Phase::NeedsYou).await;
    assert_eq!(view.node, None, "nobody holds a session that waits");
    let form = view.session.calls[0].id;
    // A worker that comes later goes on: nothing is kept in memory (case O-050).
    worker.stop().await;
    let worker = house.worker().await;
    let answer =
        InputBody::CustomResult { tool_use_id: form, content: vec![Block::Text("yes".into())], is_error: false };
    house.send(session, answer.clone()).await;
    let asks = async {
        loop {
            let view = house.until(session, Phase::NeedsYou).await;
            if view.session.calls.iter().any(|call| call.name == "ask_user") {
                return;
            }
        }
    };
    asks.await;
    // The answer again, after a lost reply: the first one counts.
    assert!(matches!(house.send(session, answer).await, tenure_store::Receipt::Logged(_)));
    house.say(session, "fine").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["waiting", "done"]);
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_stops_a_model_that_says_nothing_and_a_message_goes_on() {
    let scenario = r#"
[[turn]]
when = { user_contains = "go on" }
do = [{ say = "here" }]
[[turn]]
do = [{ say = "well" }, { stall = "forever" }]
"#;
    let mut house = House::new(scenario).await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "stall").await;
    loop {
        let log = house.log(session).await;
        if log.iter().any(|event| matches!(event.body, Body::SpanStart { .. })) {
            break;
        }
        tokio::task::yield_now().await;
    }
    house.send(session, InputBody::Interrupt).await;
    house.until(session, Phase::Idle).await;
    house.say(session, "go on").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["here"]);
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_15_cancel_ends_a_session_whatever_it_does() {
    let scenario = "[[turn]]\ndo = [{ say = \"well\" }, { stall = \"forever\" }]\n";
    let mut house = House::new(scenario).await;
    let worker = house.worker().await;
    let [running, idle] = [house.session().await, house.session().await];
    house.say(running, "go").await;
    house.send(idle, InputBody::Cancel).await;
    house.until(idle, Phase::Cancelled).await;
    house.send(running, InputBody::Cancel).await;
    house.until(running, Phase::Cancelled).await;
    check(&house.log(running).await);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_13_a_worker_that_is_asked_to_stop_lets_go_and_the_next_one_finishes() {
    let scenario = r#"
[[turn]]
do = [{ say = "one two three four", pieces = 4, delay_ms = 400 }]
"#;
    let mut house = House::new(scenario).await;
    let first = house.worker().await;
    let session = house.session().await;
    house.say(session, "go").await;
    loop {
        if !house.log(session).await.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(first.stop().await, tenure_engine::Ended::Stopped);
    let second = house.worker().await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["one two three four"]);
    check(&log);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_028_two_messages_at_once_are_both_kept_in_order_and_run_once() {
    let mut house = House::new("[[turn]]\nlabel = \"a\"\nnext = \"a\"\ndo = [{ say = \"ok\" }]\n").await;
    let worker = house.worker().await;
    for _ in 0..20 {
        let session = house.session().await;
        let deliver = |id: u128, text: &str| {
            let inputs = vec![(EventId::from_bits(id), InputBody::Message { content: vec![Block::Text(text.into())] })];
            tenure_store::Delivery { tenant: house.tenant.clone(), session, inputs, notes: None, idempotency: None }
        };
        let (one, two) = (deliver(session.bits() + 1, "one"), deliver(session.bits() + 2, "two"));
        use tenure_store::Store as _;
        let (first, second) = tokio::join!(house.store.deliver(one), house.store.deliver(two));
        first.unwrap();
        second.unwrap();
        house.until(session, Phase::Idle).await;
        let log = house.log(session).await;
        let inputs = log.iter().filter(|event| matches!(event.body, Body::UserMessage { .. })).count();
        assert_eq!(inputs, 2);
        check(&log);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_021_an_unknown_model_parks_with_a_reason() {
    let mut house = House::new("[[turn]]\ndo = [{ say = \"x\" }]\n").await;
    std::fs::remove_file(house.scenario_file()).unwrap();
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "hi").await;
    let view = house.until(session, Phase::BackingOff).await;
    assert!(explain(&view.session).text.contains("cannot be used"));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_029_a_message_at_the_end_of_a_turn_is_answered_whenever_it_comes() {
    let mut house = House::new("[[turn]]\nlabel = \"a\"\nnext = \"a\"\ndo = [{ say = \"ok\" }]\n").await;
    let worker = house.worker().await;
    for _ in 0..20 {
        let session = house.session().await;
        house.say(session, "one").await;
        // The answer is there; the session is about to be idle, or is.
        house.until_log(session, |log| said(log) == ["ok"]).await;
        house.say(session, "two").await;
        let log = house.until_log(session, |log| said(log) == ["ok", "ok"]).await;
        check(&log);
        let view = house.until(session, Phase::Idle).await;
        assert_eq!(view.inbox_len, 0);
    }
    worker.stop().await;
}
