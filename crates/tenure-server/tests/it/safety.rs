//! Who may ask, from where, for what.

use crate::hand::Hand;
use crate::house::{House, KEY, OTHER_KEY, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;
use std::sync::Arc;
use tenure_api::openapi::OPERATIONS;
use tenure_core::CallKind;
use tenure_store::memory::Memory;

async fn get(house: &House, headers: &[(&str, &str)]) -> (StatusCode, String) {
    let reply = house.send(request(Method::GET, "/v1/agents", Body::empty(), headers)).await;
    let code = if reply.status == StatusCode::OK { String::new() } else { reply.code() };
    (reply.status, code)
}

#[tokio::test]
async fn z_06_every_route_but_the_open_ones_needs_a_key() {
    let house = House::new();
    for operation in OPERATIONS {
        let path = operation.path.replace('{', "x").replace('}', "");
        let method = Method::from_bytes(operation.method.to_uppercase().as_bytes()).unwrap();
        let reply = house.send(request(method, &path, Body::empty(), &[("x-api-key", "")])).await;
        let is_refused = reply.status == StatusCode::UNAUTHORIZED;
        assert_eq!(is_refused, !operation.is_open, "{} {}", operation.method, operation.path);
    }
    let reply = house.send(request(Method::GET, "/v1/nothing", Body::empty(), &[("x-api-key", "")])).await;
    assert_eq!(reply.code(), "authentication_required");
    assert_eq!(house.get("/v1/nothing").await.code(), "route_not_found");
    let reply = house.call(Method::DELETE, "/v1/agents", None, &[]).await;
    assert_eq!((reply.code().as_str(), reply.header("allow").is_some()), ("method_not_allowed", true));
}

#[tokio::test]
async fn z_06_both_headers_of_the_sdks_are_taken() {
    let house = House::new();
    let bearer = format!("Bearer {KEY}");
    assert_eq!(get(&house, &[("authorization", &bearer)]).await.0, StatusCode::OK);
    assert_eq!(get(&house, &[("authorization", "Basic eA==")]).await.1, "authentication_required");
    assert_eq!(get(&house, &[("x-api-key", "wrong")]).await, (StatusCode::UNAUTHORIZED, "invalid_api_key".into()));
}

#[tokio::test]
async fn z_07_only_known_hosts_are_served_and_proxies_must_be_configured() {
    let house = House::new();
    for host in
        ["localhost:7373", "127.0.0.1", "[::1]:7373", "a1.localhost:7373", "tenure.example", "TENURE.example:443"]
    {
        assert_eq!(get(&house, &[("host", host)]).await.0, StatusCode::OK, "{host}");
    }
    for host in
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1:7373", "notlocalhost", ":7373"]
    {
        assert_eq!(get(&house, &[("host", host)]).await, (StatusCode::FORBIDDEN, "host_not_allowed".into()), "{host}");
    }
    for header in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "forwarded"] {
        assert_eq!(get(&house, &[(header, "127.0.0.1")]).await.1, "host_not_allowed", "{header}");
    }
    let listens = House::over(Arc::new(Memory::new()), |config| config.allowed_hosts = vec!["10.0.0.1:7373".into()]);
    for (host, status) in
        [("10.0.0.1:7373", StatusCode::OK), ("10.0.0.1", StatusCode::OK), ("10.0.0.2:7373", StatusCode::FORBIDDEN)]
    {
        assert_eq!(get(&listens, &[("host", host)]).await.0, status, "{host}");
    }
    let behind = House::over(Arc::new(Memory::new()), |config| config.is_behind_proxy = true);
    assert_eq!(get(&behind, &[("x-forwarded-for", "127.0.0.1")]).await.0, StatusCode::OK);
    assert_eq!(get(&behind, &[("x-forwarded-for", "127.0.0.1"), ("x-api-key", "")]).await.1, "authentication_required");
}

#[tokio::test]
async fn z_09_pages_of_other_origins_may_not_call_not_even_of_another_port() {
    let house = House::new();
    for origin in ["http://127.0.0.1:7373", "https://tenure.example"] {
        assert_eq!(get(&house, &[("origin", origin)]).await.0, StatusCode::OK, "{origin}");
    }
    for origin in ["http://127.0.0.1:5173", "http://evil.example", "null", "http://tenure.example"] {
        assert_eq!(get(&house, &[("origin", origin)]).await.1, "origin_not_allowed", "{origin}");
    }
    let reply = house.call(Method::POST, "/v1/agents", Some(json!({})), &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(reply.code(), "origin_not_allowed");
}

#[tokio::test]
async fn o_092_ids_of_another_tenant_are_not_found_on_any_route() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "hi").await;
    let call = Hand::claim(&house).await.ask(CallKind::Sandbox).await;
    std::fs::create_dir_all(house.workspace(&session)).unwrap();
    std::fs::write(house.workspace(&session).join("f"), "secret").unwrap();
    let view = house.get(&format!("/v1/sessions/{session}")).await.ok();
    let (agent, environment) = (view["agent"]["id"].as_str().unwrap(), view["environment_id"].as_str().unwrap());
    for operation in OPERATIONS.iter().filter(|operation| operation.path.contains('{') && !operation.is_open) {
        let path = operation
            .path
            .replace("{session_id}", &session)
            .replace("{agent_id}", agent)
            .replace("{environment_id}", environment);
        let path = path.replace("{tool_use_id}", &call.to_string()) + "?path=f";
        let method = Method::from_bytes(operation.method.to_uppercase().as_bytes()).unwrap();
        let body = match operation.id {
            "sendEvents" => {
                json!({"events": [{"type": "user.tool_confirmation", "tool_use_id": call.to_string(), "result": "allow"}]})
            }
            "changeBudget" => json!({"steps": 1}),
            _ => json!({"title": "mine now"}),
        };
        let reply = house.call(method, &path, Some(body), &[("x-api-key", OTHER_KEY)]).await;
        assert_eq!(
            reply.status,
            StatusCode::NOT_FOUND,
            "{} {}: {}",
            operation.method,
            operation.path,
            String::from_utf8_lossy(&reply.bytes)
        );
    }
    let theirs = json!({"agent": agent, "environment_id": environment});
    assert_eq!(
        house.call(Method::POST, "/v1/sessions", Some(theirs), &[("x-api-key", OTHER_KEY)]).await.code(),
        "agent_not_found"
    );
    let mine = house
        .call(Method::POST, "/v1/agents", Some(json!({"name": "b", "model": "p/priced"})), &[("x-api-key", OTHER_KEY)])
        .await
        .ok();
    let half = json!({"agent": mine["id"], "environment_id": environment});
    let reply = house.call(Method::POST, "/v1/sessions", Some(half), &[("x-api-key", OTHER_KEY)]).await;
    assert_eq!(reply.code(), "environment_not_found");
    house
        .call(
            Method::POST,
            &format!("/v1/agents/{}/archive", mine["id"].as_str().unwrap()),
            None,
            &[("x-api-key", OTHER_KEY)],
        )
        .await
        .ok();
    let (by_agent, by_tail) =
        (format!("/v1/sessions?agent_id={agent}"), format!("/v1/sessions?tail={}", &session[10..]));
    for list in [by_agent.as_str(), by_tail.as_str(), "/v1/agents", "/v1/environments", "/v1/sessions", "/v1/approvals"]
    {
        assert_eq!(
            house.call(Method::GET, list, None, &[("x-api-key", OTHER_KEY)]).await.ok()["data"],
            json!([]),
            "{list}"
        );
    }
    assert_eq!(house.get(&format!("/v1/sessions/{session}")).await.ok(), view);
}

#[tokio::test]
async fn every_reply_has_an_id_and_the_headers_of_the_sdks_change_nothing() {
    let house = House::new();
    let reply = house
        .call(
            Method::GET,
            "/v1/agents?beta=true&later=1",
            None,
            &[("anthropic-beta", "managed-agents-2026-04-01"), ("anthropic-version", "2023-06-01")],
        )
        .await;
    reply.ok();
    assert!(reply.header("request-id").unwrap().starts_with("req_"));
    assert_ne!(reply.header("request-id"), house.get("/v1/agents").await.header("request-id"));
}
