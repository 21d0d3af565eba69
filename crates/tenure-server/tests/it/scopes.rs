//! What keys may do (hazard Z-06).

use crate::hand::Hand;
use crate::house::{CLIENT_KEY, House, KEY, READ_KEY, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;
use tenure_api::openapi::OPERATIONS;
use tenure_api::scope::Scope;
use tenure_core::CallKind;

#[tokio::test]
async fn z_06_every_route_needs_the_scope_that_the_document_says() {
    let house = House::new();
    let document = house.get("/openapi.json").await.ok();
    for operation in OPERATIONS.iter().filter(|operation| !operation.is_open) {
        assert_eq!(document["paths"][operation.path][operation.method]["x-tenure-scope"], operation.scope.name());
        for (key, scope) in [(READ_KEY, Scope::Read), (CLIENT_KEY, Scope::Client), (KEY, Scope::Person)] {
            let path = operation.path.replace('{', "x").replace('}', "");
            let method = Method::from_bytes(operation.method.to_uppercase().as_bytes()).unwrap();
            let reply = house.send(request(method, &path, Body::empty(), &[("x-api-key", key)])).await;
            let what = format!("{} {} as {scope}", operation.method, operation.path);
            if scope >= operation.scope {
                assert_ne!(reply.status, StatusCode::FORBIDDEN, "{what}");
            } else {
                assert_eq!((reply.status, reply.code().as_str()), (StatusCode::FORBIDDEN, "scope_required"), "{what}");
                assert_eq!(reply.json()["error"]["type"], "permission_error");
                let details = json!({"needed": operation.scope.name(), "given": scope.name()});
                assert_eq!(reply.json()["error"]["details"], details, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn z_06_the_scopes_of_routes_are_these() {
    let of = |scope: Scope| OPERATIONS.iter().filter(move |operation| !operation.is_open && operation.scope == scope);
    assert!(of(Scope::Read).all(|operation| operation.method == "get"));
    assert!(of(Scope::Client).all(|operation| operation.method != "get"));
    let of_persons: Vec<&str> = of(Scope::Person).map(|operation| operation.id).collect();
    assert_eq!(of_persons, ["writeFile", "writeArchive", "probeCondition", "clearCondition"]);
}

#[tokio::test]
async fn z_06_only_a_person_answers_an_approval_alone_or_among_others() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "deploy").await;
    let call = Hand::claim(&house).await.ask(CallKind::Sandbox).await.to_string();
    let path = format!("/v1/sessions/{session}/events");
    let answer = json!({"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"});
    let message = json!({"type": "user.message", "content": "go on"});
    let before = house.get(&path).await.ok();
    for events in [json!([answer]), json!([message, answer])] {
        let body = Some(json!({"events": events}));
        let headers = [("x-api-key", CLIENT_KEY), ("idempotency-key", "k")];
        let reply = house.call(Method::POST, &path, body, &headers).await;
        assert_eq!((reply.status, reply.code().as_str()), (StatusCode::FORBIDDEN, "scope_required"));
    }
    assert_eq!(house.get(&path).await.ok(), before, "nothing of it was taken");
    let message = Some(json!({"events": [message]}));
    house.call(Method::POST, &path, message, &[("x-api-key", CLIENT_KEY)]).await.ok();
    house.post(&path, json!({"events": [answer]})).await.ok();
}

#[tokio::test]
async fn z_06_a_program_answers_its_own_tools() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "fill in").await;
    let call = Hand::claim(&house).await.ask(CallKind::Custom).await.to_string();
    let body = json!({"events": [{"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": "done"}]});
    let path = format!("/v1/sessions/{session}/events");
    house.call(Method::POST, &path, Some(body), &[("x-api-key", CLIENT_KEY)]).await.ok();
}

#[tokio::test]
async fn z_06_only_a_person_weakens_the_isolation_of_an_environment() {
    let house = House::new();
    let send = async |path: &str, config: serde_json::Value| {
        let body = Some(json!({"name": "e", "config": config}));
        house.call(Method::POST, path, body, &[("x-api-key", CLIENT_KEY)]).await
    };
    let environments = "/v1/environments";
    let made = send(environments, json!({"type": "cloud", "driver": "namespace", "network": "off"})).await.ok();
    let path = format!("{environments}/{}", made["id"].as_str().unwrap());
    for config in [
        json!({"type": "cloud", "driver": "process"}),
        json!({"type": "cloud", "driver": "landlock"}),
        json!({"type": "cloud", "network": "host"}),
    ] {
        for path in [environments, path.as_str()] {
            assert_eq!(send(path, config.clone()).await.code(), "scope_required", "{path} {config}");
        }
    }
    assert_eq!(house.get(&path).await.ok()["config"], made["config"]);
    house.post(&path, json!({"config": {"type": "cloud", "network": "host"}})).await.ok();
    // What a person has set may stay, and may be taken back.
    send(&path, json!({"type": "cloud", "limits": {"processes": 5}})).await.ok();
    send(&path, json!({"type": "cloud", "network": "off"})).await.ok();
}

#[tokio::test]
async fn z_18_a_key_of_less_scope_gets_no_reply_that_was_stored_for_another() {
    let house = House::new();
    let make = async |key: &str| {
        let body = Some(json!({"name": "a", "model": "p/priced"}));
        house.call(Method::POST, "/v1/agents", body, &[("x-api-key", key), ("idempotency-key", "same")]).await
    };
    let first = make(KEY).await.ok();
    assert_eq!(make(READ_KEY).await.code(), "scope_required");
    assert_ne!(make(CLIENT_KEY).await.ok()["id"], first["id"]);
}
