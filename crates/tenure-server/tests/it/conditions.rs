//! Conditions of upstreams, as the API shows them, and what operators do about them.

use crate::hand::{self, Hand};
use crate::house::House;
use serde_json::{Value, json};
use tenure_core::condition::{Condition, ConditionKey, Report};
use tenure_core::failure::Class;
use tenure_core::*;
use tenure_store::*;

async fn report(house: &House, class: Class, model: Option<&str>) -> Condition {
    let report = Report {
        id: ConditionId::from_bits(hand::next()),
        key: ConditionKey { credential: "p".into(), model: model.map(str::to_owned) },
        class,
        message: "invalid x-api-key".into(),
        hint: None,
        policy: retry::Policy::default(),
        random: u64::MAX,
        sent_at: Timestamp(0),
        probe: None,
    };
    house.store.report_condition(report).await.unwrap()
}

/// A session that waits on a condition.
async fn waiting(house: &House, condition: &Condition) -> String {
    let session = house.session().await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim(house).await;
    hand.take_inputs().await;
    let drafts = condition::met(&hand.head, condition, "p/priced", 0, Timestamp(0));
    hand.commit(drafts, Then::Park).await;
    session
}

async fn listed(house: &House) -> Vec<Value> {
    house.get("/v1/conditions").await.ok()["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_condition_says_what_is_wrong_who_waits_and_what_ends_it() {
    let house = House::new();
    assert_eq!(listed(&house).await, Vec::<Value>::new());
    let condition = report(&house, Class::Credential, None).await;
    let session = waiting(&house, &condition).await;
    let one = &listed(&house).await[0];
    let expected = [
        ("id", json!(condition.id.to_string())),
        ("provider", json!("p")),
        ("model", Value::Null),
        ("class", json!("credential")),
        ("stage", json!("open")),
        ("waiting", json!(1)),
        ("refusals", json!(1)),
        ("needs_operator", json!(true)),
        ("message", json!("invalid x-api-key")),
    ];
    for (name, value) in expected {
        assert_eq!(one[name], value, "{name}: {one}");
    }
    assert!(one["probe_at"].is_string(), "{one}");

    let why = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
    assert_eq!((why["phase"].as_str(), why["kind"].as_str()), (Some("backing_off"), Some("condition")));
    let text = why["text"].as_str().unwrap();
    assert!(text.contains("does not accept the key") && text.contains("invalid x-api-key"), "{text}");
    assert!(text.contains("It ends when"), "{text}");
    assert_eq!(why["until"], one["probe_at"], "when something happens, not when the session looks for itself");
    let paths: Vec<&str> = why["unblock"].as_array().unwrap().iter().map(|way| way["path"].as_str().unwrap()).collect();
    let at = format!("/v1/conditions/{}", condition.id);
    assert_eq!(paths, [format!("/v1/sessions/{session}/resume"), format!("{at}/probe"), format!("{at}/clear")]);
    for path in &paths[1..] {
        house.post(path, json!({})).await.ok();
    }

    let events = house.get(&format!("/v1/sessions/{session}/events?types[]=session.condition")).await.ok();
    let event = &events["data"][0];
    assert_eq!(event["condition_id"], json!(condition.id.to_string()));
    assert_eq!((event["class"].as_str(), event["model"].as_str()), (Some("credential"), Some("p/priced")));
    let seen = house.get(&format!("/v1/sessions/{session}")).await.ok();
    assert_eq!((seen["status"].as_str(), seen["phase"].as_str()), (Some("rescheduling"), Some("backing_off")));
    assert_eq!(seen["wait"]["condition_id"], json!(condition.id.to_string()));
}

#[tokio::test]
async fn probe_and_clear_say_what_they_did_and_an_unknown_condition_has_a_code() {
    let house = House::new();
    let condition = report(&house, Class::Quota, None).await;
    waiting(&house, &condition).await;
    let at = format!("/v1/conditions/{}", condition.id);
    let before = listed(&house).await[0]["probe_at"].clone();
    let probed = house.post(&format!("{at}/probe"), json!({})).await.ok();
    assert!(probed["probe_at"].as_str() < before.as_str(), "{probed}");
    assert_eq!(house.store.release_waiting().await.unwrap().woken, 1, "one tries at once");
    assert!(listed(&house).await[0]["probing_session_id"].is_string());
    let cleared = house.post(&format!("{at}/clear"), json!({})).await.ok();
    assert_eq!((cleared["stage"].as_str(), cleared["probe_at"].clone()), (Some("releasing"), Value::Null));
    assert!(cleared["released_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{cleared}");
    for id in ["cond_00000000000000000000000001", "nonsense"] {
        for action in ["probe", "clear"] {
            let reply = house.post(&format!("/v1/conditions/{id}/{action}"), json!({})).await;
            assert_eq!(reply.code(), "condition_not_found", "{id} {action}");
        }
    }
}

#[tokio::test]
async fn a_tenant_sees_how_many_of_its_own_wait() {
    let house = House::new();
    let condition = report(&house, Class::RateLimit, Some("p/priced")).await;
    waiting(&house, &condition).await;
    let views = house.store.conditions(Some(TenantId("somebody else".into()))).await.unwrap();
    assert_eq!(views[0].waiting, 0);
    assert_eq!(listed(&house).await[0]["waiting"], 1);
}
