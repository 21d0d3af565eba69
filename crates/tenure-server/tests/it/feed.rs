//! Several topics on one connection.

use crate::hand::Hand;
use crate::house::{Frames, House, OTHER_KEY};
use axum::http::{Method, StatusCode};
use serde_json::Value;

/// The next frame of a topic.
async fn of_topic(frames: &mut Frames, topic: &str) -> Value {
    loop {
        let frame = frames.next().await.expect("the stream goes on");
        assert_eq!(frame.event, "topic");
        if frame.data["topic"] == topic {
            return frame.data;
        }
    }
}

#[tokio::test]
async fn two_sessions_come_on_one_connection_each_from_its_own_place() {
    let house = House::new();
    let (first, second) = (house.session().await, house.session().await);
    house.say(&first, "one").await;
    Hand::claim(&house).await.turn("answer one").await;
    let path = format!("/v1/stream?topics[]=session:{first}:2&topics[]=session:{second}&topics[]=fleet");
    let mut frames = house.frames(&path, &[]).await;
    let topic = format!("session:{first}");
    let frame = of_topic(&mut frames, &topic).await;
    assert_eq!((frame["type"].as_str(), frame["id"].as_str()), (Some("event"), Some("3")));
    // The same as the stream of the session alone.
    let mut alone = house.stream(&first, "?after=2", &[]).await;
    assert_eq!(frame["event"], alone.next().await.unwrap().data);
    house.say(&second, "two").await;
    let frame = of_topic(&mut frames, &format!("session:{second}")).await;
    assert_eq!((&frame["event"]["type"], &frame["id"]), (&Value::from("user.message"), &Value::Null));
}

#[tokio::test]
async fn the_fleet_topic_names_what_changed_and_nothing_of_others() {
    let house = House::new();
    let session = house.session().await;
    let mut frames = house.frames("/v1/stream?topics[]=fleet", &[]).await;
    let mut strange = house.frames("/v1/stream?topics[]=fleet", &[("x-api-key", OTHER_KEY)]).await;
    house.say(&session, "hi").await;
    let frame = of_topic(&mut frames, "fleet").await;
    assert_eq!(frame["type"], "changed");
    let named = frame["sessions"].as_array().unwrap();
    assert!(named.contains(&Value::from(session.as_str())) || frame["more"] == true, "{frame}");
    // Bob sees his own session first: Alice's made no frame for him.
    let body = serde_json::json!({"name": "his", "model": "p/priced"});
    let key = [("x-api-key", OTHER_KEY)];
    let agent = house.call(Method::POST, "/v1/agents", Some(body), &key).await.ok()["id"].clone();
    let body = serde_json::json!({"name": "his", "config": {"type": "cloud"}});
    let environment = house.call(Method::POST, "/v1/environments", Some(body), &key).await.ok()["id"].clone();
    let events = serde_json::json!([{"type": "user.message", "content": [{"type": "text", "text": "x"}]}]);
    let body = serde_json::json!({"agent": agent, "environment_id": environment, "initial_events": events});
    let his = house.call(Method::POST, "/v1/sessions", Some(body), &key).await.ok()["id"].clone();
    let frame = of_topic(&mut strange, "fleet").await;
    assert!(frame["sessions"].as_array().unwrap().iter().all(|id| *id == his), "{frame}");
}

#[tokio::test]
async fn a_topic_that_is_gone_does_not_end_the_others() {
    let house = House::new();
    let session = house.session().await;
    let gone = "sesn_00000000000000000000000001";
    let path = format!("/v1/stream?topics[]=session:{gone}&topics[]=session:{session}");
    let mut frames = house.frames(&path, &[]).await;
    assert_eq!(of_topic(&mut frames, &format!("session:{gone}")).await["type"], "gone");
    house.say(&session, "hi").await;
    assert_eq!(of_topic(&mut frames, &format!("session:{session}")).await["type"], "event");
    // A session of somebody else is as little there as one that never was.
    let path = format!("/v1/stream?topics[]=session:{session}");
    let mut frames = house.frames(&path, &[("x-api-key", OTHER_KEY)]).await;
    assert_eq!(of_topic(&mut frames, &format!("session:{session}")).await["type"], "gone");
    house.call(Method::POST, &format!("/v1/sessions/{session}/cancel"), None, &[]).await.ok();
}

#[tokio::test]
async fn wrong_topics_are_refused() {
    let house = House::new();
    let session = house.session().await;
    let many = vec!["topics[]=fleet"; 33].join("&");
    for query in ["", "topics[]=weather", &many] {
        let reply = house.get(&format!("/v1/stream?{query}")).await;
        assert_eq!((reply.status, reply.code()), (StatusCode::BAD_REQUEST, "invalid_query".into()), "{query}");
    }
    let reply = house.get(&format!("/v1/stream?topics[]=session:{session}:soon")).await;
    assert_eq!(reply.code(), "invalid_cursor");
    // A place that the log does not have, such as after a restore, is told (hazard Z-29).
    let mut frames = house.frames(&format!("/v1/stream?topics[]=session:{session}:999"), &[]).await;
    let frame = of_topic(&mut frames, &format!("session:{session}")).await;
    assert_eq!(frame["event"]["type"], "session.reset");
}
