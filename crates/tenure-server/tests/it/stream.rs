//! Streams of events.

use crate::hand::{self, Hand};
use crate::house::{Frame, House, request};
use crate::node::{Attempt, Node};
use axum::body::Body as HttpBody;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_core::*;
use tenure_store::Then;

/// Types and ids, which is most of what a stream is.
fn outline(frames: &[Frame]) -> Vec<(&str, Option<&str>)> {
    frames.iter().map(|frame| (frame.event.as_str(), frame.id.as_deref())).collect()
}

/// The text that a client has glued together, with resets taken to heart.
fn text_of(frames: &[Frame]) -> String {
    let mut text = String::new();
    for frame in frames {
        match frame.event.as_str() {
            "event_delta" => text.push_str(frame.data["delta"]["content"]["text"].as_str().unwrap()),
            "event_start" | "session.preview_reset" => text.clear(),
            "span.model_request_end" if frame.data["is_error"] == true => text.clear(),
            "agent.message" => text = frame.data["content"][0]["text"].as_str().unwrap().to_owned(),
            _ => {}
        }
    }
    text
}

/// A session with one turn in its log.
async fn with_a_turn(house: &House) -> String {
    let session = house.session().await;
    house.say(&session, "hi").await;
    Hand::claim(house).await.turn("hello").await;
    session
}

#[tokio::test]
async fn a_list_equals_a_replayed_stream_on_both_stores() {
    for house in [House::new(), House::sqlite()] {
        let session = with_a_turn(&house).await;
        let list = house.get(&format!("/v1/sessions/{session}/events")).await.ok();
        let mut stream = house.stream(&session, "?after=0", &[]).await;
        let frames = stream.take(6).await;
        let data: Vec<Value> = frames.iter().map(|frame| frame.data.clone()).collect();
        assert_eq!(json!(data), list["data"]);
        for (seq, frame) in (1..).zip(&frames) {
            assert_eq!(
                (frame.id.as_deref(), frame.event.as_str()),
                (Some(&*format!("{seq}")), frame.data["type"].as_str().unwrap())
            );
        }
    }
}

#[tokio::test]
async fn o_055_a_cursor_gives_the_same_rows_each_time() {
    let house = House::new();
    let session = with_a_turn(&house).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(house.stream(&session, "", &[("last-event-id", "4")]).await.take(2).await);
    }
    assert_eq!(outline(&seen[0]), [("span.model_request_end", Some("5")), ("session.status_idle", Some("6"))]);
    assert!(seen.iter().all(|frames| *frames == seen[0]));
}

#[tokio::test]
async fn o_056_header_and_parameter_resume_and_without_either_it_is_live_only() {
    let house = House::new();
    let session = with_a_turn(&house).await;
    let mut by_header = house.stream(&session, "?after=1", &[("last-event-id", "3")]).await;
    let mut by_parameter = house.stream(&session, "?after=3", &[]).await;
    let mut live = house.stream(&session, "", &[]).await;
    house.say(&session, "more").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let after = by_header.until("session.status_running").await;
    assert_eq!(after.iter().filter_map(|frame| frame.id.clone()).collect::<Vec<_>>(), ["4", "5", "6", "7", "8"]);
    assert_eq!(
        by_parameter
            .until("session.status_running")
            .await
            .iter()
            .filter_map(|frame| frame.id.clone())
            .collect::<Vec<_>>(),
        ["4", "5", "6", "7", "8"]
    );
    assert_eq!(
        live.until("session.status_running").await.iter().filter_map(|frame| frame.id.clone()).collect::<Vec<_>>(),
        ["7", "8"]
    );
}

#[tokio::test]
async fn o_057_strange_cursors_are_refused_and_an_empty_one_is_none() {
    let house = House::new();
    let session = with_a_turn(&house).await;
    let path = format!("/v1/sessions/{session}/events/stream");
    let long = "1".repeat(1_000_000);
    for cursor in ["abc", "99999999999999999999", "-1", "4.1-1", "sevt_x", &long] {
        let reply = house.send(request(Method::GET, &path, HttpBody::empty(), &[("last-event-id", cursor)])).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (StatusCode::BAD_REQUEST, "invalid_cursor"),
            "{}",
            &cursor[..cursor.len().min(20)]
        );
    }
    assert_eq!(house.get(&format!("{path}?after=x")).await.code(), "invalid_cursor");
    assert_eq!(house.get(&format!("{path}?event_deltas[]=agent.tool_use")).await.code(), "invalid_query");
    let mut stream = house.stream(&session, "", &[("last-event-id", "")]).await;
    house.say(&session, "x").await;
    assert_eq!(outline(&stream.take(1).await), [("user.message", None)]);
}

#[tokio::test]
async fn z_48_a_reader_is_told_that_a_message_has_a_hole_and_sees_nothing_more_of_it_but_its_row() {
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    let span = hand.begin(1).await;
    let mut stream = house.stream(&session, "?event_deltas[]=agent.message", &[]).await;
    let mut attempt = Attempt::of(&hand, 1);
    node.tell(&attempt.start());
    node.tell(&attempt.delta("Hello"));
    stream.take(2).await;
    // Lost on the way: " wor".
    attempt.base.n += 4;
    node.tell(&attempt.delta("ld"));
    assert_eq!(stream.take(1).await[0].event, "session.preview_reset");
    node.tell(&attempt.delta("!"));
    hand.answer(&span, attempt.block, "Hello world!").await;
    let frames = stream.until("session.status_idle").await;
    assert!(frames.iter().all(|frame| frame.event != "event_delta"), "never glued");
    assert_eq!(text_of(&frames), "Hello world!");
}

#[tokio::test]
async fn z_29_a_cursor_beyond_the_log_gets_a_reset_and_the_whole_log() {
    let house = House::new();
    let session = with_a_turn(&house).await;
    let whole = house.stream(&session, "?after=0", &[]).await.take(6).await;
    for (query, header) in [("", "7"), ("?after=7", ""), ("?event_deltas[]=agent.message", "9.2-1.17")] {
        let headers: &[(&str, &str)] = if header.is_empty() { &[] } else { &[("last-event-id", header)] };
        let mut stream = house.stream(&session, query, headers).await;
        assert_eq!(stream.headers["tenure-stream-from"], "0");
        let reset = stream.next().await.unwrap();
        assert_eq!((reset.event.as_str(), reset.id.as_deref()), ("session.reset", Some("0")));
        let fields = ["type", "session_id", "first_seq", "last_seq"].map(|field| reset.data[field].clone());
        assert_eq!(fields, [json!("session.reset"), json!(session), json!(1), json!(6)]);
        assert_eq!(stream.take(6).await, whole);
    }
    // Cut right after the reset, it comes back with the id of that.
    assert_eq!(house.stream(&session, "", &[("last-event-id", "0")]).await.take(6).await, whole);
}

#[tokio::test]
async fn o_058_headers_keep_proxies_from_collecting_and_the_first_bytes_come_at_once() {
    let house = House::new();
    let session = house.session().await;
    let mut stream = house.stream(&session, "", &[]).await;
    assert_eq!(stream.at_once().as_deref(), Some(": tenure\n\n"), "also if nothing happens in the session");
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(stream.headers[name], value);
    }
}

#[tokio::test]
async fn z_27_a_queued_input_is_shown_once_without_an_id_and_again_when_it_is_processed() {
    let house = House::new();
    let session = house.session().await;
    let mut stream = house.stream(&session, "?after=0", &[]).await;
    let sent = house.say(&session, "hi").await["data"][0].clone();
    let queued = stream.take(1).await.remove(0);
    assert_eq!((queued.id, queued.data.clone()), (None, sent));
    house.say(&session, "again").await;
    assert_eq!(stream.take(1).await[0].data["content"][0]["text"], "again", "the first one is not shown again");
    Hand::claim(&house).await.take_inputs().await;
    let rows = stream.take(3).await;
    assert_eq!(
        outline(&rows),
        [("user.message", Some("1")), ("session.status_running", Some("2")), ("user.message", Some("3"))]
    );
    assert_eq!(rows[0].data["id"], queued.data["id"]);
}

#[tokio::test]
async fn previews_are_shown_between_the_span_and_the_message_to_those_who_opted_in() {
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    let mut opted = house.stream(&session, "?after=0&event_deltas[]=agent.message", &[]).await;
    let mut plain = house.stream(&session, "?after=0", &[]).await;
    hand.take_inputs().await;
    let span = hand.begin(1).await;
    let mut attempt = Attempt::of(&hand, 1);
    let epoch = hand.lease.epoch;
    for frame in [attempt.start(), attempt.delta("Hel"), attempt.delta("lo")] {
        node.tell(&frame);
    }
    let before = opted.until("event_delta").await;
    opted.until("event_delta").await;
    hand.answer(&span, attempt.block, "Hello").await;
    node.tell(&attempt.end());
    let after = opted.until("session.status_idle").await;
    let place = |n| format!("3.{epoch}-1.{n}");
    assert_eq!(
        outline(&before[before.len() - 3..]),
        [("span.model_request_start", Some("3")), ("event_start", Some(&*place(1))), ("event_delta", Some(&*place(4)))]
    );
    assert_eq!(
        before[before.len() - 2].data,
        json!({"type": "event_start", "event": {"id": attempt.block.to_string(), "type": "agent.message"}, "attempt": 1})
    );
    assert_eq!(
        outline(&after),
        [("agent.message", Some("4")), ("span.model_request_end", Some("5")), ("session.status_idle", Some("6"))]
    );
    assert_eq!(after[0].data["id"], attempt.block.to_string());
    let all = plain.until("session.status_idle").await;
    assert!(all.iter().all(|frame| !frame.event.starts_with("event_")));
}

#[tokio::test]
async fn reasoning_is_announced_and_its_text_is_not_previewed() {
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    hand.begin(1).await;
    let mut stream = house.stream(&session, "?event_deltas[]=agent.message&event_deltas[]=agent.thinking", &[]).await;
    let mut attempt = Attempt::of(&hand, 1);
    node.tell(&attempt.start_as("agent.thinking"));
    node.tell(&attempt.delta("let me think"));
    let thought = attempt.block;
    attempt.block = EventId::from_bits(hand::next());
    node.tell(&attempt.start());
    node.tell(&attempt.delta("Hello"));
    let frames = stream.take(3).await;
    assert_eq!(
        frames.iter().map(|frame| frame.event.as_str()).collect::<Vec<_>>(),
        ["event_start", "event_start", "event_delta"]
    );
    assert_eq!(frames[0].data["event"], json!({"id": thought.to_string(), "type": "agent.thinking"}));
    assert_eq!(text_of(&frames), "Hello");
}

#[tokio::test]
async fn a_reader_that_comes_late_or_comes_back_gets_the_rest_of_the_open_message() {
    let house = House::new();
    let session = house.session().await;
    let mut node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    hand.begin(1).await;
    let query = "?event_deltas[]=agent.message";
    let mut first = house.stream(&session, query, &[]).await;
    let mut attempt = Attempt::of(&hand, 1);
    let start = attempt.start();
    let hel = attempt.delta("Hél");
    node.tell(&start);
    node.tell(&hel);
    let seen = first.take(2).await;
    let id = seen[1].id.clone().unwrap();
    node.tell(&attempt.delta("lo"));
    first.take(1).await;
    let late = house.stream(&session, query, &[]).await.take(2).await;
    assert_eq!(text_of(&late), "Héllo");
    let back = house.stream(&session, query, &[("last-event-id", &id)]).await.take(1).await;
    assert_eq!((back[0].event.as_str(), &back[0].data["delta"]["content"]["text"]), ("event_delta", &json!("lo")));
    // The node is called again and tells everything again: nobody sees anything twice.
    node.break_link().await;
    node.tell(&start);
    node.tell(&hel);
    attempt.base.n = hel.n;
    node.tell(&attempt.delta("lo"));
    node.tell(&attempt.delta("!"));
    assert_eq!(first.take(1).await[0].data["delta"]["content"]["text"], "!");
}

#[tokio::test]
async fn o_061_the_text_of_a_failed_attempt_does_not_stay() {
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    let query = "?after=0&event_deltas[]=agent.message";
    let mut stream = house.stream(&session, query, &[]).await;
    let span = hand.begin(1).await;
    let mut attempt = Attempt::of(&hand, 1);
    node.tell(&attempt.start());
    node.tell(&attempt.delta("Hello wor"));
    let mut frames = stream.until("event_delta").await;
    let between = frames.last().unwrap().id.clone().unwrap();
    let failed = hand.end(&span, true);
    hand.commit(vec![failed], Then::Keep).await;
    node.tell(&attempt.end());
    frames.extend(stream.until("span.model_request_end").await);
    // Words of the failed attempt that come when its end is known already.
    node.tell(&attempt.delta("ld?"));
    let span = hand.begin(2).await;
    let mut attempt = Attempt::of(&hand, 2);
    node.tell(&attempt.start());
    node.tell(&attempt.delta("Hello world"));
    frames.extend(stream.until("event_delta").await);
    assert_eq!(text_of(&frames), "Hello world");
    let mut back = house.stream(&session, query, &[("last-event-id", &between)]).await;
    let seen = frames.iter().position(|frame| frame.id.as_deref() == Some(&*between)).unwrap() + 1;
    let mut again = frames[..seen].to_vec();
    again.extend(back.until("event_delta").await);
    assert_eq!(text_of(&again), "Hello world");
    hand.answer(&span, attempt.block, "Hello world").await;
    frames.extend(stream.until("session.status_idle").await);
    again.extend(back.until("session.status_idle").await);
    assert_eq!((text_of(&frames), text_of(&again)), ("Hello world".into(), "Hello world".into()));
    // The row that ends the attempt is what takes its text back; nothing of it comes afterwards.
    let expected = [
        "event_start",
        "event_delta",
        "span.model_request_end",
        "span.model_request_start",
        "event_start",
        "event_delta",
        "agent.message",
        "span.model_request_end",
        "session.status_idle",
    ];
    for frames in [&frames, &again] {
        let types: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
        assert_eq!(types[types.len() - expected.len()..], expected, "{types:?}");
    }
}

#[tokio::test]
async fn z_26_z_48_a_cursor_inside_another_attempt_is_visibly_reset_and_never_glued() {
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    hand.begin(1).await;
    let mut attempt = Attempt::of(&hand, 1);
    let mut first = house.stream(&session, "?event_deltas[]=agent.message", &[]).await;
    node.tell(&attempt.start());
    node.tell(&attempt.delta("new text"));
    first.take(2).await;
    // The same place of another lease: what that reader has is not the begin of this message.
    let (epoch, seq) = (hand.lease.epoch + 7, hand.head.last_seq);
    let cursor = format!("{seq}.{epoch}-1.4");
    let frames =
        house.stream(&session, "?event_deltas[]=agent.message", &[("last-event-id", &cursor)]).await.take(3).await;
    assert_eq!(
        frames.iter().map(|frame| frame.event.as_str()).collect::<Vec<_>>(),
        ["session.preview_reset", "event_start", "event_delta"]
    );
    assert_eq!(text_of(&frames), "new text");
}

#[tokio::test]
async fn a_preview_waits_for_its_rows_and_never_comes_after_its_message() {
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    let mut stream = house.stream(&session, "?after=0&event_deltas[]=agent.message", &[]).await;
    // The node is quicker than the store: the span's row is not there yet.
    let mut attempt = Attempt::of(&hand, 1);
    attempt.base.after_seq += 1;
    node.tell(&attempt.start());
    node.tell(&attempt.delta("Hel"));
    let span = hand.begin(1).await;
    let frames = stream.until("event_delta").await;
    let types: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
    assert_eq!(&types[types.len() - 3..], ["span.model_request_start", "event_start", "event_delta"]);
    hand.answer(&span, attempt.block, "Hello").await;
    stream.until("session.status_idle").await;
    // A delta that was on its way when the message was committed is not shown any more.
    node.tell(&attempt.delta("lo"));
    house.say(&session, "x").await;
    assert_eq!(stream.take(1).await[0].event, "user.message");
}

#[tokio::test]
async fn o_062_a_stream_ends_with_its_session_and_says_why() {
    let house = House::new();
    let session = with_a_turn(&house).await;
    let mut stream = house.stream(&session, "", &[]).await;
    house.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.ok();
    let mut hand = Hand::claim(&house).await;
    let end = Body::StatusTerminated { end: End::Cancelled { processes: "killed".into() } };
    hand.commit(vec![Draft::new(end)], Then::Park).await;
    let frames = stream.until("session.status_terminated").await;
    assert_eq!(frames.last().unwrap().data["end"], json!({"type": "cancelled", "processes": "killed"}));
    assert_eq!(stream.next().await, None);
    let mut again = house.stream(&session, "", &[]).await;
    assert_eq!(again.next().await, None, "nothing can come any more");
}

#[tokio::test]
async fn a_stream_ends_when_the_session_is_deleted_or_the_server_stops() {
    let house = House::new();
    let (one, two) = (house.session().await, house.session().await);
    let (mut first, mut second) = (house.stream(&one, "", &[]).await, house.stream(&two, "", &[]).await);
    house.delete(&format!("/v1/sessions/{one}")).await.ok();
    assert_eq!(first.take(1).await[0].event, "session.deleted");
    assert_eq!(first.next().await, None);
    house.stop.cancel();
    assert_eq!(second.next().await, None);
}
