//! Events sent and listed.

use crate::hand::Hand;
use crate::house::{House, SECRET, message, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_core::{CallKind, EventId};

fn texts(list: &Value) -> Vec<String> {
    let messages = list["data"].as_array().unwrap().iter().filter(|event| event["type"] == "user.message");
    messages.map(|event| event["content"][0]["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_queued_event_has_its_id_at_once_and_its_seq_when_it_is_processed() {
    for house in [House::new(), House::sqlite()] {
        let session = house.session().await;
        let sent = house.say(&session, "hi").await;
        let path = format!("/v1/sessions/{session}/events");
        assert_eq!((&sent["data"][0]["seq"], &sent["data"][0]["processed_at"]), (&json!(null), &json!(null)));
        assert_eq!(house.get(&path).await.ok()["data"], sent["data"]);
        Hand::claim(&house).await.turn("hello").await;
        let list = house.get(&path).await.ok();
        let rows: Vec<(u64, &str)> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| (event["seq"].as_u64().unwrap(), event["type"].as_str().unwrap()))
            .collect();
        let types = [
            "user.message",
            "session.status_running",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
            "session.status_idle",
        ];
        assert_eq!(rows, (1..).zip(types).collect::<Vec<_>>());
        assert_eq!(list["data"][0]["id"], sent["data"][0]["id"]);
        assert_eq!(list["data"][5]["stop_reason"], json!({"type": "end_turn"}));
        assert_eq!(
            list["data"][4]["model_usage"],
            json!({"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0})
        );
    }
}

#[tokio::test]
async fn a_list_is_filtered_turned_round_and_walked() {
    let house = House::new();
    let session = house.session().await;
    for text in ["one", "two", "three"] {
        house.say(&session, text).await;
    }
    Hand::claim(&house).await.turn("done").await;
    let path = format!("/v1/sessions/{session}/events");
    let list = house.get(&format!("{path}?types[]=user.message&types[]=agent.message")).await.ok();
    assert_eq!(list["data"].as_array().unwrap().len(), 4);
    let back = house.get(&format!("{path}?order=desc&limit=1")).await.ok();
    assert_eq!(back["data"][0]["type"], "session.status_idle");
    assert!(back["next_page"].is_string());
    let (mut seen, mut page) = (Vec::new(), String::new());
    loop {
        let reply = house.get(&format!("{path}?limit=3{page}")).await.ok();
        seen.extend(reply["data"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()));
        match reply["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (1..=8).collect::<Vec<_>>());
    assert_eq!(house.get(&format!("{path}?created_at[gt]=2100-01-01T00:00:00Z")).await.ok()["data"], json!([]));
    assert_eq!(house.get(&format!("{path}?created_at[gt]=soon")).await.code(), "invalid_query");
}

#[tokio::test]
async fn a_batch_is_taken_as_a_whole_or_not_at_all() {
    let house = House::new();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}/events");
    let unknown = EventId::from_bits(77).to_string();
    let body = json!({"events": [
        {"type": "user.message", "content": [{"type": "text", "text": "hi"}]},
        {"type": "user.tool_confirmation", "tool_use_id": unknown, "result": "allow"},
    ]});
    assert_eq!(house.post(&path, body).await.code(), "unknown_tool_use");
    assert_eq!(house.get(&path).await.ok()["data"], json!([]));
}

#[tokio::test]
async fn an_answer_is_taken_once_and_a_repeat_gets_the_first_one() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "deploy").await;
    let call = Hand::claim(&house).await.ask(CallKind::Sandbox).await.to_string();
    let path = format!("/v1/sessions/{session}/events");
    let answer =
        |result: &str| json!({"events": [{"type": "user.tool_confirmation", "tool_use_id": call, "result": result}]});
    let first = house.post(&path, answer("allow")).await.ok();
    let second = house.post(&path, answer("deny")).await.ok();
    assert_eq!((&second["data"][0]["id"], &second["data"][0]["result"]), (&first["data"][0]["id"], &json!("allow")));
    let wrong = json!({"events": [{"type": "user.custom_tool_result", "custom_tool_use_id": call}]});
    assert_eq!(
        house.post(&path, wrong).await.status,
        StatusCode::OK,
        "the call is answered, so the first answer counts"
    );
}

#[tokio::test]
async fn the_wrong_kind_of_answer_is_refused() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "fill the form").await;
    let call = Hand::claim(&house).await.ask(CallKind::Custom).await.to_string();
    let body = json!({"events": [{"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}]});
    assert_eq!(house.post(&format!("/v1/sessions/{session}/events"), body).await.code(), "not_answerable");
}

#[tokio::test]
async fn o_028_two_messages_at_once_are_both_kept_and_the_same_key_counts_once() {
    let house = House::sqlite();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}/events");
    let many = (0..20).map(|place| house.post(&path, message(&format!("m{place}"))).boxed());
    let same =
        (0..5).map(|_| house.call(Method::POST, &path, Some(message("same")), &[("idempotency-key", "k")]).boxed());
    let replies = futures_util::future::join_all(many.chain(same)).await;
    let ids: std::collections::BTreeSet<String> =
        replies.iter().map(|reply| reply.ok()["data"][0]["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 21);
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let listed = texts(&house.get(&path).await.ok());
    assert_eq!(listed.len(), 21);
    assert_eq!(listed.iter().filter(|text| *text == "same").count(), 1);
}

use futures_util::FutureExt;

#[tokio::test]
async fn o_030_text_with_nul_comes_back_exactly() {
    for house in [House::new(), House::sqlite()] {
        let session = house.session().await;
        house.say(&session, "a\u{0}b").await;
        Hand::claim(&house).await.turn("x\u{0}y").await;
        let list = house.get(&format!("/v1/sessions/{session}/events")).await.ok();
        assert_eq!(list["data"][0]["content"][0]["text"], "a\u{0}b");
        assert_eq!(list["data"][3]["content"][0]["text"], "x\u{0}y");
    }
}

#[tokio::test]
async fn o_031_a_lone_surrogate_is_replaced_and_a_pair_stays() {
    let house = House::new();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}/events");
    let body = r#"{"events":[{"type":"user.message","content":[{"type":"text","text":"a\ud83db \ud83d\ude00"}]}]}"#;
    house.send(request(Method::POST, &path, Body::from(body), &[])).await.ok();
    assert_eq!(texts(&house.get(&path).await.ok()), ["a\u{fffd}b \u{1f600}"]);
}

#[tokio::test]
async fn o_090_deep_and_broken_bodies_are_refused_with_their_place() {
    let house = House::new();
    let path = format!("/v1/sessions/{}/events", house.session().await);
    for (body, code) in [
        (format!("{{\"x\":{}", "[".repeat(10_000)).into_bytes(), "json_too_deep"),
        (format!("{}1{}", "[".repeat(65), "]".repeat(65)).into_bytes(), "json_too_deep"),
        (b"{\"events\":".to_vec(), "invalid_json"),
        (b"nonsense".to_vec(), "invalid_json"),
        (vec![b'"', 0xff, b'"'], "invalid_json"),
        (b"[]".to_vec(), "invalid_field"),
        (b"{}".to_vec(), "missing_field"),
    ] {
        let reply = house.send(request(Method::POST, &path, Body::from(body), &[])).await;
        assert_eq!((reply.status, reply.code().as_str()), (StatusCode::BAD_REQUEST, code));
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_whether_its_length_is_said_or_not() {
    let house = House::new();
    let path = format!("/v1/sessions/{}/events", house.session().await);
    let said = request(Method::POST, &path, Body::from("{}"), &[("content-length", "33554433")]);
    let reply = house.send(said).await;
    assert_eq!((reply.status, reply.code().as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"));
    let chunk = bytes::Bytes::from(vec![b' '; 1024 * 1024]);
    let chunks = futures_util::stream::iter((0..33).map(move |_| Ok::<_, std::convert::Infallible>(chunk.clone())));
    let reply = house.send(request(Method::POST, &path, Body::from_stream(chunks), &[])).await;
    assert_eq!(reply.code(), "request_too_large");
}

#[tokio::test]
async fn z_54_an_inbox_is_bounded_and_keeps_room_for_answers_and_cancel() {
    let house = House::new();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}/events");
    let events: Vec<Value> = (0..250).map(|_| message("x")["events"][0].clone()).collect();
    for _ in 0..4 {
        house.post(&path, json!({"events": events})).await.ok();
    }
    let full = house.post(&path, message("one more")).await;
    assert_eq!((full.status, full.code().as_str()), (StatusCode::TOO_MANY_REQUESTS, "inbox_full"));
    assert!(full.header("retry-after").is_some());
    house.post(&path, json!({"events": [{"type": "user.interrupt"}]})).await.ok();
    house.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.ok();
    assert_eq!(house.post(&path, message("late")).await.code(), "session_ended");
}

#[tokio::test]
async fn secrets_of_the_server_are_masked_before_they_are_stored() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, &format!("my key is {SECRET}")).await;
    assert_eq!(texts(&house.get(&format!("/v1/sessions/{session}/events")).await.ok()), ["my key is [redacted]"]);
}

#[tokio::test]
async fn z_25_an_answer_that_came_after_the_timeout_is_told_what_counts() {
    for house in [House::new(), House::sqlite()] {
        let session = house.session().await;
        house.say(&session, "deploy").await;
        let call = Hand::claim(&house).await.ask(CallKind::Sandbox).await;
        // The worker's timeout comes first.
        house.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.ok();
        let mut hand = Hand::claim(&house).await;
        let denied = tenure_core::Body::AgentToolResult {
            tool_use_id: call,
            content: vec![tenure_core::Block::Text("nobody allowed it in time".into())],
            outcome: tenure_core::Outcome::Denied,
        };
        hand.commit(vec![tenure_core::Draft::new(denied)], tenure_store::Then::Keep).await;
        let path = format!("/v1/sessions/{session}/events");
        let allow =
            json!({"events": [{"type": "user.tool_confirmation", "tool_use_id": call.to_string(), "result": "allow"}]});
        let reply = house.post(&path, allow).await.ok();
        let counts = &reply["data"][0];
        assert_eq!((&counts["type"], &counts["outcome"]), (&json!("agent.tool_result"), &json!("denied")));
        assert!(counts["seq"].is_number(), "it is the stored event");
    }
}

#[tokio::test]
async fn a_change_of_title_or_metadata_is_an_event_for_lists_and_streams() {
    let house = House::new();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}");
    let mut stream = house.stream(&session, "?after=0", &[]).await;
    let update = json!({"title": "new", "metadata": {"a": "1", "b": "2"}});
    let updated = house.post(&path, update).await.ok();
    assert_eq!((&updated["title"], &updated["metadata"]["a"]), (&json!("new"), &json!("1")), "at once");
    house.post(&path, json!({"metadata": {"a": null}})).await.ok();
    house.post(&path, json!({"metadata": {"b": null}})).await.ok();
    house.post(&path, json!({"title": "new", "metadata": {"b": null}})).await.ok();
    Hand::claim(&house).await.take_inputs().await;
    let list = house.get(&format!("{path}/events")).await.ok()["data"].as_array().unwrap().clone();
    let told: Vec<Value> =
        list.iter().map(|event| json!([event["type"], event["update"], event["title"], event["metadata"]])).collect();
    let expected = [
        json!(["session.updated", "title", "new", null]),
        json!(["session.updated", "metadata", null, {"a": "1", "b": "2"}]),
        json!(["session.updated", "metadata", null, {"b": "2"}]),
        json!(["session.updated", "metadata", null, null]),
    ];
    assert_eq!(told, expected, "what changes nothing is not told");
    let frames: Vec<Value> = stream.take(4).await.into_iter().map(|frame| frame.data).collect();
    assert_eq!(frames, list);
}
