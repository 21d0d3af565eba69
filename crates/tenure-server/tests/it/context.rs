//! What a model saw at a step.

use crate::hand::Hand;
use crate::house::{House, SECRET};
use serde_json::json;
use tenure_core::*;
use tenure_store::Then;

#[tokio::test]
async fn the_context_of_a_row_is_that_of_the_call_before_it_and_of_the_newest_call_without_one() {
    let house = House::new();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}/context");
    assert_eq!(house.get(&path).await.code(), "context_not_found", "no model was called yet");
    house.say(&session, "one").await;
    let mut hand = Hand::claim(&house).await;
    hand.turn("first").await;
    house.say(&session, "two").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let second = hand.begin(1).await;
    let seen = house.get(&path).await.ok();
    assert_eq!((&seen["seq"], &seen["event_id"]), (&json!(second.seq), &json!(second.id.to_string())));
    assert_eq!(
        (&seen["purpose"], &seen["model"], &seen["is_exact"]),
        (&json!("answer"), &json!("p/priced"), &json!(true))
    );
    let rows: Vec<u64> = (1..second.seq).collect();
    assert_eq!(seen["request"]["rows"], json!(rows), "all rows before it, and none after");
    assert_eq!(seen["request"]["last_seq"], json!(second.seq - 1));
    let text = seen.to_string();
    assert!(!text.contains(SECRET) && text.contains("[redacted]"), "{text}");
    // Each row of the first turn leads to the call of that turn.
    let first = house.get(&format!("{path}?seq={}", second.seq - 1)).await.ok();
    assert!(first["seq"].as_u64().unwrap() < second.seq && first["step"] == json!(1), "{first}");
    let begun = first["seq"].as_u64().unwrap();
    assert_eq!(house.get(&format!("{path}?seq={begun}")).await.ok(), first);
    assert_eq!(house.get(&format!("{path}?seq={}", begun - 1)).await.code(), "context_not_found");
    assert_eq!(house.get(&format!("{path}?seq={}", u64::MAX)).await.ok(), seen, "beyond the log: the newest");
    assert_eq!(house.get(&format!("{path}?seq=0")).await.code(), "invalid_query");
}

#[tokio::test]
async fn rows_that_a_compaction_left_out_are_not_in_the_context() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "one").await;
    let mut hand = Hand::claim(&house).await;
    hand.turn("first").await;
    house.say(&session, "two").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let keep_from = hand.head.last_seq;
    let summary = Some(Summary { text: "so far".into(), ..Summary::default() });
    let compacted = Compacted { from: 1, keep_from, summary, ..Compacted::default() };
    hand.commit(vec![Draft::new(Body::ContextCompacted { compacted })], Then::Keep).await;
    let begun = hand.begin(1).await;
    let seen = house.get(&format!("/v1/sessions/{session}/context")).await.ok();
    let rows: Vec<u64> = (keep_from..begun.seq).collect();
    assert_eq!((&seen["from_seq"], &seen["request"]["rows"]), (&json!(keep_from), &json!(rows)));
}

#[tokio::test]
async fn a_model_that_is_gone_from_the_configuration_leaves_a_reason_without_secrets() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "one").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let sent = Sent::default();
    let start = Body::SpanStart { model: "gone".into(), attempt: 1, instead_of: None, sent };
    hand.commit(vec![Draft::of_step(1, start)], Then::Keep).await;
    let seen = house.get(&format!("/v1/sessions/{session}/context")).await.ok();
    assert_eq!((&seen["request"], &seen["dialect"], &seen["is_exact"]), (&json!(null), &json!(null), &json!(false)));
    assert_eq!(seen["reason"], "nobody knows [redacted]");
}
