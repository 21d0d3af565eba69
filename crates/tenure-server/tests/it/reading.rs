//! Explain, timeline, approvals, nodes, health.

use crate::hand::{self, Hand};
use crate::house::{House, OTHER_KEY, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_core::{Body as EventBody, CallKind, Draft, Estimate, Sent};
use tenure_store::Then;

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

/// Kind, name and whether it is open, of each span.
fn kinds(page: &Value) -> Vec<(&str, &str, bool)> {
    let spans = page["data"].as_array().unwrap().iter();
    spans.map(|span| (span["kind"].as_str().unwrap(), span["name"].as_str().unwrap(), span["end"].is_null())).collect()
}

#[tokio::test]
async fn the_timeline_has_leases_turns_calls_of_models_and_tools_and_waits() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "deploy").await;
    let mut hand = Hand::claim(&house).await;
    hand.ask(CallKind::Sandbox).await;
    let path = format!("/v1/sessions/{session}/timeline");
    let spans = house.get(&path).await.ok();
    let node = hand.lease.node.to_string();
    let expected = [
        ("lease", node.as_str(), false),
        ("turn", "turn", true),
        ("attempt", "p/priced", false),
        ("tool", "bash", true),
        ("wait", "action", true),
    ];
    assert_eq!(kinds(&spans), expected);
    let first = house.get(&format!("{path}?limit=3")).await.ok();
    let second = house.get(&format!("{path}?limit=100&page={}", first["next_page"].as_str().unwrap())).await.ok();
    assert_eq!(second["next_page"], Value::Null);
    let both: Vec<_> = [&first, &second].iter().flat_map(|page| page["data"].as_array().unwrap().clone()).collect();
    assert_eq!(json!(both), spans["data"], "two pages show what one shows");
}

#[tokio::test]
async fn the_timeline_tells_who_held_the_session_and_how_it_let_go() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "hi").await;
    let first = Hand::claim(&house).await;
    house.store.release(&first.lease).await.unwrap();
    let mut second = Hand::claim(&house).await;
    house.memory.as_ref().unwrap().advance(2_000);
    second.turn("hello").await;
    house.say(&session, "more").await;
    let third = Hand::claim(&house).await;
    let path = format!("/v1/sessions/{session}/timeline");
    let told = house.get(&path).await.ok();
    let leases: Vec<&Value> = told["data"].as_array().unwrap().iter().filter(|span| span["kind"] == "lease").collect();
    let facts = |span: &&Value| {
        ["name", "epoch", "from_seq", "to_seq", "duration_ms", "outcome"].map(|field| span[field].clone())
    };
    let log = third.head.last_seq;
    let expected = [
        [json!(first.lease.node.to_string()), json!(1), json!(1), json!(0), json!(0), json!("released")],
        [json!(second.lease.node.to_string()), json!(3), json!(1), json!(log), json!(2_000), json!("parked")],
        [json!(third.lease.node.to_string()), json!(4), json!(log + 1), json!(null), json!(null), json!(null)],
    ];
    assert_eq!(leases.iter().map(facts).collect::<Vec<_>>(), expected);
    // Page by page each of them once, the open one at the end.
    let (mut paged, mut page) = (Vec::new(), String::new());
    loop {
        let reply = house.get(&format!("{path}?limit=2{page}")).await.ok();
        paged.extend(reply["data"].as_array().unwrap().clone());
        match reply["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => break,
        }
    }
    assert_eq!(json!(paged), told["data"]);
}

#[tokio::test]
async fn a_timeline_of_very_many_spans_is_shown_in_bins_that_can_be_looked_into() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let path = format!("/v1/sessions/{session}/timeline");
    const CALLS: u64 = 20_010;
    for _ in 0..CALLS / 30 {
        let mut drafts = Vec::new();
        for step in 1..=30 {
            let start = Draft {
                id: Some(tenure_core::EventId::from_bits(hand::next())),
                step,
                body: EventBody::SpanStart {
                    model: "p/priced".into(),
                    attempt: 1,
                    instead_of: None,
                    sent: Sent::default(),
                },
            };
            let span = start.id.unwrap();
            let is_error = step == 1;
            let end = EventBody::SpanEnd {
                span,
                model: "p/priced".into(),
                is_error,
                usage: Default::default(),
                cost_usd_micros: None,
                assumed: Estimate::default(),
            };
            drafts.extend([start, Draft::of_step(step, end)]);
        }
        hand.commit(drafts, Then::Keep).await;
    }
    let last_seq = hand.head.last_seq;
    let binned = house.get(&path).await.ok();
    let bins = binned["data"].as_array().unwrap();
    assert!(bins.len() > 100 && bins.len() <= 512 && binned["next_page"].is_null(), "{}", bins.len());
    assert!(bins.iter().all(|bin| bin["kind"] == "bin"));
    let sum = |kind: &str, field: &str| -> u64 {
        bins.iter().filter_map(|bin| bin["spans"][kind].pointer(field).and_then(Value::as_u64)).sum()
    };
    assert_eq!(sum("attempt", "/count"), CALLS);
    assert_eq!(sum("attempt", "/outcomes/failed"), CALLS / 30);
    assert_eq!([sum("turn", "/count"), sum("lease", "/count")], [1, 1]);
    let seq = |bin: &Value, field: &str| bin[field].as_u64().unwrap();
    assert_eq!([seq(&bins[0], "from_seq"), seq(bins.last().unwrap(), "to_seq")], [1, last_seq]);
    assert!(bins.windows(2).all(|pair| seq(&pair[0], "to_seq") + 1 == seq(&pair[1], "from_seq")), "no row is left out");
    let width = |bin: &Value| seq(bin, "to_seq") - seq(bin, "from_seq");
    assert!(bins[..bins.len() - 1].iter().all(|bin| width(bin) == width(&bins[0])), "all have the same width");
    // One bin looked into shows what it counted.
    let bin = &bins[7];
    let range = format!("?from_seq={}&to_seq={}", bin["from_seq"], bin["to_seq"]);
    let inside = house.get(&format!("{path}{range}")).await.ok();
    let inside = inside["data"].as_array().unwrap();
    assert_eq!(inside.len() as u64, bin["spans"]["attempt"]["count"].as_u64().unwrap());
    assert!(inside.iter().all(|span| span["kind"] == "attempt" && span["end"].is_string()));
    // Asked for one by one, they come in pages.
    let page = house.get(&format!("{path}?view=spans&limit=100")).await.ok();
    assert!(page["next_page"].is_string() && page["data"][0]["kind"] == "lease");
    assert_eq!(house.get(&format!("{path}?view=pie")).await.code(), "invalid_query");
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
