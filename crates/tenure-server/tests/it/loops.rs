//! External loops: leases over HTTP, with the same fence, waits and budgets as the built-in loop (design 4.9).

use crate::hand::Hand;
use crate::house::{House, KEY, OTHER_KEY};
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_core::{Body as EventBody, End};
use tenure_store::Then;

const QUEUE: &str = "/v1/queues/reviews";

async fn session(house: &House) -> String {
    session_with(house, json!({})).await
}

async fn session_with(house: &House, limits: Value) -> String {
    let agent = json!({"name": "reviewer", "loop": {"type": "external", "queue": "reviews"}});
    let agent = house.post("/v1/agents", agent).await.ok();
    assert_eq!(agent["loop"], json!({"type": "external", "queue": "reviews"}));
    let body = json!({"agent": agent["id"], "environment_id": house.environment().await, "limits": limits});
    house.post("/v1/sessions", body).await.ok()["id"].as_str().unwrap().to_owned()
}

async fn take(house: &House) -> Vec<Value> {
    let taken =
        house.post(&format!("{QUEUE}/leases"), json!({"worker": "w", "max": 10, "lease_ms": 30_000})).await.ok();
    taken["data"].as_array().unwrap().clone()
}

/// Takes the only lease there is.
async fn hold(house: &House) -> Value {
    let mut taken = take(house).await;
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken.remove(0)
}

async fn commit(house: &House, lease: &Value, events: Value, then: Value) -> crate::house::Reply {
    let path = format!("/v1/leases/{}/checkpoint", lease["id"].as_str().unwrap());
    house.post(&path, json!({"seq": lease["seq"], "events": events, "then": then})).await
}

fn types(events: &Value) -> Vec<&str> {
    events.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}

async fn log(house: &House, session: &str) -> Value {
    house.get(&format!("/v1/sessions/{session}/events?limit=1000")).await.ok()["data"].clone()
}

fn message(text: &str) -> Value {
    json!({"type": "agent.message", "content": [{"type": "text", "text": text}]})
}

fn used(tokens: u64, cost: f64) -> Value {
    json!({"type": "span.model_request_end", "model": "mine", "model_usage": {"input_tokens": tokens, "output_tokens": 1}, "cost_usd": cost})
}

#[tokio::test]
async fn a_loop_takes_a_session_works_step_by_step_and_ends_the_turn() {
    let house = House::new();
    let session = session(&house).await;
    assert_eq!(take(&house).await, Vec::<Value>::new(), "nothing was asked of it yet");
    house.say(&session, "review it").await;
    let depth = house.get(QUEUE).await.ok();
    assert_eq!((&depth["depth"], &depth["working"], depth["oldest_ms"].is_u64()), (&json!(1), &json!(0), true));
    let why = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
    assert!(why["text"].as_str().unwrap().contains("queue reviews"), "{why}");
    let lease = hold(&house).await;
    assert_eq!((&lease["held"], &lease["due"], &lease["session_id"]), (&json!(true), &json!("model"), &json!(session)));
    assert_eq!(types(&lease["events"]), ["user.message", "session.status_running"]);
    assert_eq!(types(&lease["inbox"]), ["user.message"]);
    assert_eq!(house.get(QUEUE).await.ok()["working"], 1);
    // Intent first, then the effect, then its result.
    let call = json!({"type": "agent.tool_use", "name": "lint", "input": {"path": "src"}});
    let lease = commit(&house, &lease, json!([message("I lint it"), used(10, 0.5), call]), json!("keep")).await.ok();
    assert_eq!(
        types(&lease["events"]),
        ["span.model_request_start", "agent.message", "span.model_request_end", "agent.tool_use"]
    );
    assert_eq!((&lease["due"], &lease["calls"][0]["state"]), (&json!("tools"), &json!("ready")));
    let call = lease["calls"][0]["tool_use_id"].clone();
    let result = json!({"type": "agent.tool_result", "tool_use_id": call, "content": "clean"});
    let lease = commit(&house, &lease, json!([result]), json!("keep")).await.ok();
    assert_eq!((&lease["due"], &lease["calls"]), (&json!("model"), &json!([])));
    let done = commit(&house, &lease, json!([message("fine"), used(20, 0.25)]), json!("idle")).await.ok();
    assert_eq!((&done["held"], &done["due"], &done["expires_at"]), (&json!(false), &json!("nothing"), &Value::Null));
    let shown = house.get(&format!("/v1/sessions/{session}")).await.ok();
    assert_eq!((&shown["status"], &shown["phase"]), (&json!("idle"), &json!("idle")));
    assert_eq!(shown["usage"]["input_tokens"], 30, "{shown}");
    let all = log(&house, &session).await;
    let seqs: Vec<u64> = all.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
    assert_eq!(types(&all).last(), Some(&"session.status_idle"));
    assert_eq!(all.as_array().unwrap().last().unwrap()["stop_reason"]["type"], "end_turn");
}

#[tokio::test]
async fn z_20_a_checkpoint_that_is_sent_again_does_nothing_and_gets_the_same_rows() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    let lease = hold(&house).await;
    for then in ["keep", "idle"] {
        let mut replies = Vec::new();
        let lease = if then == "keep" {
            lease.clone()
        } else {
            json!({"id": lease["id"], "seq": log(&house, &session).await.as_array().unwrap().len()})
        };
        for _ in 0..3 {
            replies.push(commit(&house, &lease, json!([message(then)]), json!(then)).await.ok());
        }
        for reply in &replies {
            assert_eq!(
                (&reply["events"], &reply["seq"], &reply["held"]),
                (&replies[0]["events"], &replies[0]["seq"], &replies[0]["held"])
            );
        }
    }
    let all = log(&house, &session).await;
    assert_eq!(types(&all).iter().filter(|kind| **kind == "agent.message").count(), 2, "{all}");
}

#[tokio::test]
async fn p_5_a_loop_whose_lease_ran_out_changes_nothing() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    let old = hold(&house).await;
    let call = json!([{"type": "agent.tool_use", "name": "pay", "input": {}}]);
    let old = commit(&house, &old, call, json!("keep")).await.ok();
    let paid = &old["calls"][0]["tool_use_id"];
    let old =
        commit(&house, &old, json!([{"type": "session.tool_started", "tool_use_id": paid}]), json!("keep")).await.ok();
    let id = old["id"].as_str().unwrap();
    // A lease that is renewed goes on.
    house.memory.as_ref().unwrap().advance(29_000);
    let renewed = house.post(&format!("/v1/leases/{id}/renew"), json!({"lease_ms": 30_000})).await.ok();
    assert_eq!(renewed["urgent"], false);
    house.memory.as_ref().unwrap().advance(29_000);
    house.store.sweep(&[]).await.unwrap();
    assert!(take(&house).await.is_empty());
    house.memory.as_ref().unwrap().advance(2_000);
    house.store.sweep(&[]).await.unwrap();
    let before = log(&house, &session).await;
    let new = hold(&house).await;
    assert!(new["epoch"].as_u64() > old["epoch"].as_u64());
    // The effect may have happened: the next one is told so, and nobody repeats it silently (promise P3).
    assert_eq!((&new["due"], &new["calls"]), (&json!("model"), &json!([])));
    let result = new["events"].as_array().unwrap().iter().find(|event| event["type"] == "agent.tool_result").unwrap();
    assert_eq!((&result["tool_use_id"], &result["outcome"]), (paid, &json!("unknown")));
    for path in ["renew", "preview"] {
        assert_eq!(house.post(&format!("/v1/leases/{id}/{path}"), json!({"text": "late"})).await.code(), "lease_lost");
    }
    let late = commit(&house, &old, json!([message("late")]), json!("keep")).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::CONFLICT, "lease_lost"));
    house.post(&format!("/v1/leases/{id}/release"), json!({})).await.ok();
    commit(&house, &new, json!([message("on")]), json!("idle")).await.ok();
    let after = log(&house, &session).await;
    assert_eq!(after.as_array().unwrap()[..before.as_array().unwrap().len()], before.as_array().unwrap()[..]);
    assert!(!after.to_string().contains("late"));
}

#[tokio::test]
async fn p_6_a_message_that_comes_while_the_loop_ends_its_turn_is_not_lost() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "one").await;
    let lease = hold(&house).await;
    house.say(&session, "two").await;
    let lease = commit(&house, &lease, json!([message("answer to one")]), json!("idle")).await.ok();
    assert_eq!((&lease["held"], &lease["due"]), (&json!(true), &json!("model")));
    assert_eq!(lease["inbox"][0]["content"][0]["text"], "two");
    let done = commit(&house, &lease, json!([message("answer to two")]), json!("idle")).await.ok();
    assert_eq!(done["held"], false);
    let all = log(&house, &session).await;
    assert_eq!(types(&all).iter().filter(|kind| **kind == "session.status_idle").count(), 2);
}

#[tokio::test]
async fn a_loop_waits_for_time_and_for_outside_jobs_without_a_lease() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    let lease = hold(&house).await;
    let done = commit(&house, &lease, json!([]), json!({"type": "wait", "seconds": 60})).await.ok();
    assert_eq!(done["held"], false);
    assert_eq!(house.get(&format!("/v1/sessions/{session}")).await.ok()["phase"], "waiting");
    house.memory.as_ref().unwrap().advance(61_000);
    house.store.due(10).await.unwrap();
    let lease = hold(&house).await;
    assert_eq!(lease["due"], "model");
    let made =
        commit(&house, &lease, json!([{"type": "session.callback_created", "label": "ci"}]), json!("keep")).await.ok();
    let callback = made["callbacks"][0].clone();
    let url = callback["url"].as_str().unwrap();
    assert!(
        !log(&house, &session).await.to_string().contains(url.rsplit('/').next().unwrap()),
        "the log holds no link"
    );
    let wait = json!({"type": "wait", "callback_id": callback["callback_id"]});
    assert_eq!(commit(&house, &made, json!([]), wait.clone()).await.ok()["held"], false);
    house.post(url.strip_prefix("https://tenure.example").unwrap(), json!({"status": "green"})).await.ok();
    let lease = hold(&house).await;
    assert_eq!(types(&lease["inbox"]), ["session.callback_received"]);
    assert!(lease["inbox"][0]["body"].as_str().unwrap().contains("green"));
    // What was answered already is not waited for (case O-051).
    let lease = commit(&house, &lease, json!([]), wait).await.ok();
    assert_eq!((&lease["held"], &lease["due"]), (&json!(true), &json!("model")));
    let refused = commit(&house, &lease, json!([]), json!({"type": "wait", "callback_id": "x"})).await;
    assert_eq!(refused.code(), "invalid_field");
}

#[tokio::test]
async fn a_loop_asks_people_and_clients() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    let lease = hold(&house).await;
    let asks = json!([
        {"type": "agent.tool_use", "name": "deploy", "input": {}, "evaluated_permission": "ask"},
        {"type": "agent.custom_tool_use", "name": "form", "input": {}},
    ]);
    let parked = commit(&house, &lease, asks, json!("keep")).await.ok();
    assert_eq!(parked["held"], false, "{parked}");
    let shown = house.get(&format!("/v1/sessions/{session}")).await.ok();
    assert_eq!((&shown["status"], &shown["phase"]), (&json!("idle"), &json!("needs_you")));
    let ids: Vec<Value> = parked["calls"].as_array().unwrap().iter().map(|call| call["tool_use_id"].clone()).collect();
    let answers = json!({"events": [
        {"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"},
        {"type": "user.custom_tool_result", "custom_tool_use_id": ids[1], "content": [{"type": "text", "text": "42"}]},
    ]});
    house.post(&format!("/v1/sessions/{session}/events"), answers).await.ok();
    let lease = hold(&house).await;
    assert_eq!((&lease["due"], &lease["calls"][0]["state"]), (&json!("tools"), &json!("ready")));
    let early = commit(&house, &lease, json!([message("x")]), json!("idle")).await;
    assert_eq!((early.status, early.code().as_str()), (StatusCode::CONFLICT, "checkpoint_refused"));
    let result = json!([{"type": "agent.tool_result", "tool_use_id": ids[0], "content": "done"}, message("deployed")]);
    assert_eq!(commit(&house, &lease, result, json!("finish")).await.ok()["held"], false);
    assert_eq!(house.get(&format!("/v1/sessions/{session}")).await.ok()["phase"], "done");
}

#[tokio::test]
async fn p_11_budgets_bind_a_loop() {
    let house = House::new();
    let session = session_with(&house, json!({"cost_usd": 1.0})).await;
    house.say(&session, "go").await;
    let lease = hold(&house).await;
    let lease = commit(&house, &lease, json!([message("a"), used(5, 0.75)]), json!("keep")).await.ok();
    assert_eq!(lease["held"], true);
    let over = commit(&house, &lease, json!([message("b"), used(5, 0.5)]), json!("keep")).await.ok();
    assert_eq!(over["held"], false, "{over}");
    assert_eq!(over["events"].as_array().unwrap().last().unwrap()["stop_reason"]["type"], "budget_reached");
    house.post(&format!("/v1/sessions/{session}/budget"), json!({"cost_usd": 5.0})).await.ok();
    assert_eq!(hold(&house).await["due"], "model", "raise it, and it goes on");
}

#[tokio::test]
async fn p_15_a_cancel_ends_a_session_whether_its_loop_is_there_or_not() {
    let house = House::new();
    let ended = async |session: &str| house.get(&format!("/v1/sessions/{session}")).await.ok()["phase"].clone();
    // Held: the loop learns of it, and its next checkpoint is the last one.
    let held = session(&house).await;
    house.say(&held, "go").await;
    let lease = hold(&house).await;
    house.post(&format!("/v1/sessions/{held}/cancel"), json!({})).await.ok();
    let renewed = house.post(&format!("/v1/leases/{}/renew", lease["id"].as_str().unwrap()), json!({})).await.ok();
    assert_eq!(renewed["urgent"], true);
    let last = commit(&house, &lease, json!([message("so far")]), json!("keep")).await.ok();
    assert_eq!(last["held"], false);
    assert_eq!(ended(&held).await, "cancelled");
    assert!(log(&house, &held).await.to_string().contains("so far"), "what it had done is kept");
    // In its queue: a worker carries it out.
    let queued = session(&house).await;
    house.say(&queued, "go").await;
    house.post(&format!("/v1/sessions/{queued}/cancel"), json!({})).await.ok();
    assert!(take(&house).await.is_empty());
    let mut hand = Hand::claim(&house).await;
    assert_eq!(hand.head.id.to_string(), queued);
    hand.commit(
        vec![tenure_core::Draft::new(EventBody::StatusTerminated { end: End::Cancelled { processes: "x".into() } })],
        Then::Park,
    )
    .await;
    assert_eq!(ended(&queued).await, "cancelled");
}

#[tokio::test]
async fn p_13_a_step_that_loses_its_loop_three_times_is_set_aside() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    for _ in 0..3 {
        hold(&house).await;
        house.memory.as_ref().unwrap().advance(31_000);
        house.store.sweep(&[]).await.unwrap();
    }
    assert!(take(&house).await.is_empty());
    let why = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
    assert!(why["text"].as_str().unwrap().contains("lost 3 times"), "{why}");
    house.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.ok();
    assert_eq!(hold(&house).await["due"], "model");
}

#[tokio::test]
async fn a_take_waits_for_something_runnable_and_its_repeat_gets_the_same_leases() {
    let house = House::new();
    let session = session(&house).await;
    let path = format!("{QUEUE}/leases");
    let body = json!({"wait_ms": 20_000});
    let (taken, ()) = tokio::join!(house.post(&path, body), async {
        house.say(&session, "go").await;
    });
    let taken = taken.ok();
    assert_eq!(taken["data"][0]["session_id"], session);
    house.post(&format!("/v1/leases/{}/release", taken["data"][0]["id"].as_str().unwrap()), json!({})).await.ok();
    let again = async || {
        let headers = [("idempotency-key", "take-1")];
        house.call(Method::POST, &path, Some(json!({"max": 2})), &headers).await.ok()["data"].clone()
    };
    let first = again().await;
    let second = again().await;
    assert_eq!((first.as_array().unwrap().len(), &first[0]["id"]), (1, &second[0]["id"]));
    assert_eq!(first[0]["events"], second[0]["events"]);
}

#[tokio::test]
async fn leases_of_others_and_mistakes_are_refused_and_change_nothing() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    let lease = hold(&house).await;
    let before = log(&house, &session).await;
    let path = |verb: &str| format!("/v1/leases/{}/{verb}", lease["id"].as_str().unwrap());
    for verb in ["checkpoint", "renew", "preview", "release"] {
        let body = Some(json!({"seq": lease["seq"]}));
        let other = house.call(Method::POST, &path(verb), body.clone(), &[("x-api-key", OTHER_KEY)]).await;
        assert_eq!((other.status, other.code().as_str()), (StatusCode::NOT_FOUND, "lease_not_found"), "{verb}");
        let unknown = house.call(Method::POST, &format!("/v1/leases/lease_x/{verb}"), body, &[]).await;
        assert_eq!(unknown.code(), "lease_not_found", "{verb}");
    }
    assert!(house.call(Method::POST, &format!("{QUEUE}/leases"), Some(json!({})), &[("x-api-key", OTHER_KEY)]).await.ok()["data"].as_array().unwrap().is_empty());
    let gap = house.post(&path("checkpoint"), json!({"seq": 99, "events": [message("x")]})).await;
    assert_eq!((gap.code().as_str(), &gap.json()["error"]["details"]["seq"]), ("seq_conflict", &lease["seq"]));
    for (events, code) in [
        (
            json!([{"type": "agent.tool_result", "tool_use_id": "sevt_00000000000000000000000001", "content": "x"}]),
            "checkpoint_refused",
        ),
        (json!([{"type": "user.message", "content": "x"}]), "invalid_field"),
        (json!([{"type": "agent.message", "content": [{"type": "image"}]}]), "missing_field"),
        (json!("x"), "invalid_field"),
    ] {
        let refused = commit(&house, &lease, events.clone(), json!("keep")).await;
        assert!(refused.status.is_client_error());
        assert_eq!(refused.code(), code, "{events}");
    }
    for body in [
        json!({"max": 0}),
        json!({"max": 33}),
        json!({"lease_ms": 1}),
        json!({"wait_ms": 99_999_999}),
        json!({"tail": -1}),
    ] {
        assert_eq!(house.post(&format!("{QUEUE}/leases"), body).await.code(), "invalid_field");
    }
    assert_eq!(house.post("/v1/queues/a%20b/leases", json!({})).await.code(), "queue_not_found");
    for run_loop in [
        json!("external"),
        json!({"type": "external"}),
        json!({"type": "external", "queue": "a b"}),
        json!({"type": "x"}),
        json!(7),
    ] {
        let refused = house.post("/v1/agents", json!({"name": "a", "model": "p/priced", "loop": run_loop})).await;
        assert!(["invalid_field", "missing_field"].contains(&refused.code().as_str()), "{run_loop}");
    }
    assert_eq!(log(&house, &session).await, before);
    assert_eq!(commit(&house, &lease, json!([message("fine")]), json!("idle")).await.ok()["held"], false);
    let _ = KEY;
}

#[tokio::test]
async fn p_19_readers_see_what_a_loop_previews_and_then_its_message_under_the_same_id() {
    let house = House::new();
    let session = session(&house).await;
    house.say(&session, "go").await;
    let lease = hold(&house).await;
    let mut stream = house.stream(&session, "?after=0&event_deltas[]=agent.message", &[]).await;
    let path = format!("/v1/leases/{}/preview", lease["id"].as_str().unwrap());
    for body in [json!({"text": "wro"}), json!({"text": "Hel", "reset": true}), json!({"text": "lo"})] {
        house.post(&path, body).await.ok();
    }
    let mut shown = stream.until("event_delta").await;
    while !shown
        .iter()
        .filter(|frame| frame.event == "event_delta")
        .any(|frame| frame.data["delta"]["content"]["text"] == "lo")
    {
        shown.extend(stream.take(1).await);
    }
    let begun = shown.iter().rev().find(|frame| frame.event == "event_start").unwrap();
    let id = begun.data["event"]["id"].clone();
    // One that is refused ends what was shown, and what is told afterwards is shown anew.
    let mut id = id;
    for _ in 0..2 {
        commit(&house, &lease, json!([{"type": "session.tool_started", "tool_use_id": id}]), json!("keep"))
            .await
            .code();
        house.post(&path, json!({"text": "Hello"})).await.ok();
        let again = stream.until("event_delta").await;
        assert_eq!(again.last().unwrap().data["delta"]["content"]["text"], "Hello");
        id = again.iter().rev().find(|frame| frame.event == "event_start").unwrap().data["event"]["id"].clone();
    }
    commit(&house, &lease, json!([message("Hello")]), json!("idle")).await.ok();
    let rest = stream.until("session.status_idle").await;
    let said = rest.iter().find(|frame| frame.event == "agent.message").unwrap();
    assert_eq!(said.data["id"], id);
    // Without a lease nothing is shown.
    assert_eq!(house.post(&path, json!({"text": "late"})).await.code(), "lease_lost");
}
