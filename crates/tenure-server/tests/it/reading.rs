//! Explain, timeline, approvals, nodes, health.

use crate::hand::{self, Hand};
use crate::house::{House, OTHER_KEY, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;
use tenure_core::CallKind;

#[tokio::test]
async fn why_is_answered_in_every_state() {
    let house = House::new();
    let session = house.session().await;
    let path = format!("/v1/sessions/{session}/explain");
    let explain = || async { house.get(&path).await.ok() };
    assert_eq!(explain().await["text"], "Nothing was asked of it yet.");
    house.say(&session, "hi").await;
    let alone = explain().await;
    assert_eq!((&alone["phase"], &alone["text"]), (&json!("queued"), &json!("Runnable, but no worker is running.")));
    let node = hand::node(&house, "127.0.0.1:1").await;
    assert_eq!(explain().await["text"], "Runnable: it is next in line.");
    let mut hand = Hand::claim_as(&house, node).await;
    let working = explain().await;
    assert_eq!(
        (&working["phase"], &working["holds_worker"], &working["node"]),
        (&json!("working"), &json!(true), &json!(node.to_string()))
    );
    let call = hand.ask(CallKind::Sandbox).await;
    let needs = explain().await;
    assert_eq!(
        (&needs["phase"], &needs["kind"], &needs["text"]),
        (&json!("needs_you"), &json!("action"), &json!("Needs an answer to: bash."))
    );
    assert_eq!(needs["unblock"][0]["path"], format!("/v1/sessions/{session}/events"));
    assert_eq!(needs["unblock"][0]["body"]["events"][0]["tool_use_id"], call.to_string());
    let unblock = needs["unblock"][0].clone();
    house.post(unblock["path"].as_str().unwrap(), unblock["body"].clone()).await.ok();
    assert_eq!(explain().await["phase"], "queued");
}

#[tokio::test]
async fn approvals_show_what_is_asked_across_sessions_and_not_those_of_others() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "deploy").await;
    let call = Hand::claim(&house).await.ask(CallKind::Sandbox).await;
    let list = house.get("/v1/approvals").await.ok();
    let approval = &list["data"][0];
    assert_eq!(approval["session_id"], session);
    assert_eq!(approval["tool_use_id"], call.to_string());
    assert_eq!(
        (&approval["kind"], &approval["name"], &approval["input"]),
        (&json!("approval"), &json!("bash"), &json!({"command": "make deploy"}))
    );
    assert!(approval["since"].is_string());
    let theirs = house.call(Method::GET, "/v1/approvals", None, &[("x-api-key", OTHER_KEY)]).await.ok();
    assert_eq!(theirs["data"], json!([]));
    // Also while the session is at work: another call of it may run, and the answer is taken all the same.
    house.say(&session, "and hurry").await;
    assert_eq!(house.get("/v1/approvals").await.ok()["data"][0]["tool_use_id"], call.to_string());
    let _leased = Hand::claim(&house).await;
    assert_eq!(house.get("/v1/approvals").await.ok()["data"][0]["tool_use_id"], call.to_string());
}

#[tokio::test]
async fn the_timeline_has_turns_calls_of_models_and_tools_and_waits() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "deploy").await;
    let mut hand = Hand::claim(&house).await;
    hand.ask(CallKind::Sandbox).await;
    let path = format!("/v1/sessions/{session}/timeline");
    let spans = house.get(&path).await.ok();
    let kinds: Vec<(&str, &str, bool)> = spans["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| (span["kind"].as_str().unwrap(), span["name"].as_str().unwrap(), span["end"].is_null()))
        .collect();
    assert_eq!(
        kinds,
        [("turn", "turn", true), ("attempt", "p/priced", false), ("tool", "bash", true), ("wait", "action", true)]
    );
    let first = house.get(&format!("{path}?limit=3")).await.ok();
    let second = house.get(&format!("{path}?limit=100&page={}", first["next_page"].as_str().unwrap())).await.ok();
    let both: Vec<_> = [&first, &second].iter().flat_map(|page| page["data"].as_array().unwrap().clone()).collect();
    assert_eq!(both.len(), 4);
    assert_eq!(both[1]["outcome"], "done", "an end beyond the page is found");
}

#[tokio::test]
async fn health_needs_no_key_and_nodes_do() {
    let house = House::new();
    let open =
        |path| house.send(request(Method::GET, path, Body::empty(), &[("x-api-key", ""), ("host", "10.0.0.7:80")]));
    assert_eq!(open("/healthz").await.ok(), json!({"status": "ok"}));
    assert_eq!(open("/readyz").await.ok(), json!({"status": "ready"}));
    hand::node(&house, "127.0.0.1:1").await;
    assert_eq!(house.get("/v1/nodes").await.ok()["data"][0]["is_dead"], false);
    house.stop.cancel();
    assert_eq!(open("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
}
