//! Hostile and sloppy input on every route: a clear error with a stable code, and never a panic.

use crate::hand::Hand;
use crate::house::{House, Reply, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_api::openapi::{OPERATIONS, Operation};
use tenure_core::CallKind;

/// Real ids for the paths of all routes.
struct Ids {
    session: String,
    agent: String,
    environment: String,
    call: String,
}

impl Ids {
    async fn make(house: &House) -> Self {
        let session = house.session().await;
        house.say(&session, "hi").await;
        let call = Hand::claim(house).await.ask(CallKind::Sandbox).await.to_string();
        std::fs::create_dir_all(house.workspace(&session)).unwrap();
        std::fs::write(house.workspace(&session).join("f"), "0123456789").unwrap();
        Self { session, agent: house.agent().await, environment: house.environment().await, call }
    }

    fn path(&self, operation: &Operation) -> String {
        operation
            .path
            .replace("{session_id}", &self.session)
            .replace("{agent_id}", &self.agent)
            .replace("{environment_id}", &self.environment)
            .replace("{tool_use_id}", &self.call)
            .replace("{token}", "x")
    }
}

fn method(operation: &Operation) -> Method {
    Method::from_bytes(operation.method.to_uppercase().as_bytes()).unwrap()
}

/// A success, or an error of the caller in its whole form.
#[track_caller]
fn check(reply: &Reply, what: &str) {
    let status = reply.status;
    assert!(status.is_success() || status.is_client_error() || status == StatusCode::NOT_MODIFIED, "{status}: {what}");
    if status.is_client_error() {
        assert_ne!(reply.code(), "internal_error", "{what}");
    }
    assert!(reply.header("request-id").is_some(), "{what}");
}

fn short(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

/// Bodies that are no request, whatever the route.
fn broken_bodies() -> Vec<Vec<u8>> {
    let deep = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    vec![
        b"{".to_vec(),
        b"}".to_vec(),
        b"{\"x\":1e400}".to_vec(),
        b"{\"x\":-1e999}".to_vec(),
        b"{\"x\":01}".to_vec(),
        b"{\"x\":NaN}".to_vec(),
        b"{\"x\":\"\x01\"}".to_vec(),
        b"{\"x\":\"\\u12\"}".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        b"\xff\xfe{\x00}\x00".to_vec(),
        b"{\"x\":\"\xc3\x28\"}".to_vec(),
        b"{} {}".to_vec(),
        b"a=b&c=d".to_vec(),
        deep(64),
        deep(10_000),
        format!("{{\"x\":{}", "[".repeat(10_000)).into_bytes(),
        format!("{{\"x\":{}", "{\"a\":".repeat(10_000)).into_bytes(),
    ]
}

/// Values of a type that most fields do not have.
fn strange_values() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!(" "),
        json!("\u{0}"),
        json!("x".repeat(100_000)),
        json!([]),
        json!([[]]),
        json!([null, 1, "x", {}]),
        json!({}),
        json!({"": {}, "type": 7}),
        json!({"type": "x", "id": []}),
        json!([{"type": "user.message"}, {"type": []}, 7]),
        json!([{"type": "user.message", "content": [{"type": "image", "source": 7}]}]),
        json!([{"type": "user.tool_confirmation", "tool_use_id": {}, "result": 1}]),
    ];
    values.push(serde_json::from_str("123456789012345678901234567890").unwrap());
    values
}

const FIELDS: [&str; 27] = [
    "name",
    "description",
    "model",
    "system",
    "tools",
    "mcp_servers",
    "skills",
    "multiagent",
    "execution_identity",
    "metadata",
    "limits",
    "policies",
    "loop",
    "fallback_models",
    "version",
    "config",
    "agent",
    "environment_id",
    "title",
    "budget",
    "initial_events",
    "resources",
    "events",
    "steps",
    "tokens",
    "cost_usd",
    "wall_seconds",
];

#[tokio::test]
async fn every_route_names_what_is_wrong_with_a_body_that_is_no_request() {
    let house = House::new();
    for operation in OPERATIONS.iter().filter(|operation| matches!(operation.request, Some(("application/json", _)))) {
        let ids = Ids::make(&house).await;
        for bytes in broken_bodies() {
            let what = format!("{} {} {}", operation.method, operation.path, short(&bytes));
            let reply = house.send(request(method(operation), &ids.path(operation), Body::from(bytes), &[])).await;
            assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{what}");
            assert!(["invalid_json", "json_too_deep"].contains(&reply.code().as_str()), "{what}: {}", reply.code());
        }
        for body in ["", "null", "7", "[]", "\"x\"", "{}"] {
            let what = format!("{} {} {body}", operation.method, operation.path);
            let reply = house.send(request(method(operation), &ids.path(operation), Body::from(body), &[])).await;
            check(&reply, &what);
            // Nothing is asked for by an empty object, which only a change and a fork of all there is take.
            let takes_nothing =
                (operation.id.starts_with("update") || operation.id == "forkSession") && ["", "{}"].contains(&body);
            assert_eq!(reply.status.is_success(), takes_nothing, "{what}");
        }
    }
}

#[tokio::test]
async fn no_value_of_any_field_breaks_any_route() {
    let house = House::new();
    for operation in OPERATIONS.iter().filter(|operation| operation.method == "post") {
        let ids = Ids::make(&house).await;
        let path = ids.path(operation);
        for field in FIELDS {
            for value in strange_values() {
                // With what is required, so that the strange field is reached.
                let mut body =
                    json!({"name": "n", "model": "p/priced", "agent": ids.agent, "environment_id": ids.environment});
                // Nothing comes here that a request could wait for.
                body["wait_ms"] = json!(0);
                body[field] = value;
                let text = body.to_string();
                let what = format!("{} {} {}", operation.method, operation.path, short(text.as_bytes()));
                check(&house.send(request(Method::POST, &path, Body::from(text), &[])).await, &what);
            }
        }
    }
}

#[tokio::test]
async fn no_query_breaks_any_route() {
    let house = House::new();
    let ids = Ids::make(&house).await;
    let values = [
        "",
        "0",
        "-1",
        "1e3",
        "18446744073709551615",
        "18446744073709551616",
        "abc",
        "%",
        "%zz",
        "%00",
        "%ff",
        "%F0%9F%98%80",
        "page_",
        "page_-1",
        "page_99999999999999999999",
        "page_340282366920938463463374607431768211456",
        "page_sesn_x",
        "true",
        "9999-12-31T23:59:59Z",
        "-262144-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "..%2f..%2f..%2fetc%2fpasswd",
        "/",
        "//",
        "a//b",
    ];
    let names = [
        "limit",
        "page",
        "order",
        "include_archived",
        "created_at[gt]",
        "created_at[gte]",
        "created_at[lt]",
        "created_at[lte]",
        "statuses[]",
        "phases[]",
        "phase",
        "types[]",
        "agent_id",
        "agent_version",
        "deployment_id",
        "tail",
        "version",
        "path",
        "mode",
        "after",
        "event_deltas[]",
        "%ff",
        "",
        "[]",
        "unknown",
    ];
    for operation in OPERATIONS.iter().filter(|operation| operation.method == "get" || operation.method == "put") {
        // A stream that is taken does not end.
        let is_stream = operation.id == "streamEvents";
        for name in names {
            for value in values {
                let path = format!("{}?{name}={value}", ids.path(operation));
                let sent = method(operation);
                let sent = if is_stream { Method::HEAD } else { sent };
                check(&house.send(request(sent, &path, Body::empty(), &[])).await, &path);
            }
        }
        let many = format!("{}?{}", ids.path(operation), "limit=1&".repeat(2_000));
        let sent = if is_stream { Method::HEAD } else { method(operation) };
        check(&house.send(request(sent, &many, Body::empty(), &[])).await, operation.path);
    }
}

#[tokio::test]
async fn names_in_paths_that_name_nothing_are_not_found() {
    let house = House::new();
    let long = "a".repeat(20_000);
    let strange = [
        "%ff",
        "%00",
        "..%2f..%2fetc",
        "%2e%2e",
        "sesn_",
        "agent_x",
        "0",
        "%F0%9F%98%80",
        "{session_id}",
        "a%2fb",
        &long,
    ];
    for operation in OPERATIONS.iter().filter(|operation| operation.path.contains('{')) {
        for name in strange {
            // A queue that nobody used yet is empty, and not missing.
            if operation.path.contains("{queue}") && tenure_api::lease::check_queue(name).is_ok() {
                continue;
            }
            let parts = operation.path.split('/').map(|part| if part.starts_with('{') { name } else { part });
            let path = parts.collect::<Vec<_>>().join("/").replace('{', "%7B").replace('}', "%7D");
            let body = json!({"events": [{"type": "user.interrupt"}], "steps": 1});
            let reply = house.call(method(operation), &path, Some(body), &[]).await;
            let what = format!("{} {}", operation.method, &path[..path.len().min(120)]);
            assert_eq!(reply.status, StatusCode::NOT_FOUND, "{what}");
            assert!(reply.code().ends_with("_not_found"), "{what}: {}", reply.code());
        }
    }
}

#[tokio::test]
async fn head_is_get_without_a_body_and_other_methods_are_refused_with_what_is_allowed() {
    let house = House::new();
    let ids = Ids::make(&house).await;
    for operation in OPERATIONS {
        let path = ids.path(operation) + "?path=f";
        let path = if operation.id.ends_with("Archive") { path.replace("?path=f", "") } else { path };
        if operation.method == "get" {
            let head = house.call(Method::HEAD, &path, None, &[]).await;
            assert!(head.bytes.is_empty() || head.status.is_client_error(), "{path}");
            if operation.id != "streamEvents" {
                let get = house.call(Method::GET, &path, None, &[]).await;
                assert_eq!(
                    (head.status, head.header("content-type")),
                    (get.status, get.header("content-type")),
                    "{path}"
                );
            }
        }
        for other in ["OPTIONS", "TRACE", "PATCH", "PROPFIND"] {
            let reply = house.call(Method::from_bytes(other.as_bytes()).unwrap(), &path, None, &[]).await;
            assert_eq!((reply.status, reply.code().as_str()), (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"));
            let allowed = reply.header("allow").unwrap_or_default().to_owned();
            assert!(
                allowed.split(',').any(|allowed| allowed.eq_ignore_ascii_case(operation.method)),
                "{path}: {allowed}"
            );
        }
    }
}

#[tokio::test]
async fn a_field_that_stands_twice_counts_as_it_stands_last() {
    let house = House::new();
    let body = r#"{"name": "first", "model": "p/priced", "name": "last", "metadata": {"k": "1", "k": "2"}}"#;
    let agent = house.send(request(Method::POST, "/v1/agents", Body::from(body), &[])).await.ok();
    assert_eq!((&agent["name"], &agent["metadata"]), (&json!("last"), &json!({"k": "2"})));
}

#[tokio::test]
async fn the_content_type_does_not_matter_and_an_encoded_body_is_refused() {
    let house = House::new();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense"] {
        let body = json!({"name": "a", "model": "p/priced"});
        house.call(Method::POST, "/v1/agents", Some(body), &[("content-type", kind)]).await.ok();
    }
    let file = format!("/v1/sessions/{}/files/content?path=f", house.session().await);
    for (method, path) in [(Method::POST, "/v1/agents"), (Method::PUT, file.as_str())] {
        for encoding in ["gzip", "br", "identity, gzip", "zstd"] {
            let reply = house.call(method.clone(), path, Some(json!({})), &[("content-encoding", encoding)]).await;
            assert_eq!(reply.code(), "invalid_header", "{encoding}");
        }
    }
    assert_eq!(house.get(&file).await.code(), "file_not_found", "nothing was written");
}

#[tokio::test]
async fn odd_ranges_give_the_whole_file_or_a_clear_refusal() {
    let house = House::new();
    let ids = Ids::make(&house).await;
    let path = format!("/v1/sessions/{}/files/content?path=f", ids.session);
    for (range, status, bytes) in [
        ("bytes=0-", 206, "0123456789"),
        ("bytes=0-18446744073709551615", 206, "0123456789"),
        ("bytes= 2 - 4 ", 206, "234"),
        ("bytes=-18446744073709551615", 206, "0123456789"),
        ("bytes=0-0,2-3", 200, "0123456789"),
        ("bytes=", 200, "0123456789"),
        ("bytes=-", 200, "0123456789"),
        ("bytes=--1", 200, "0123456789"),
        ("bytes=+1-2", 200, "0123456789"),
        ("bytes=5-2", 200, "0123456789"),
        ("bytes=99999999999999999999-", 200, "0123456789"),
        ("items=0-1", 200, "0123456789"),
        ("bytes=10-10", 416, ""),
        ("bytes=18446744073709551615-", 416, ""),
        ("bytes=-0", 416, ""),
    ] {
        let reply = house.call(Method::GET, &path, None, &[("range", range)]).await;
        assert_eq!(reply.status.as_u16(), status, "{range}");
        match status {
            416 => assert_eq!(reply.code(), "range_not_satisfiable", "{range}"),
            _ => assert_eq!(String::from_utf8_lossy(&reply.bytes), bytes, "{range}"),
        }
    }
    std::fs::write(house.workspace(&ids.session).join("empty"), "").unwrap();
    let empty = path.replace("path=f", "path=empty");
    assert_eq!(house.call(Method::GET, &empty, None, &[("range", "bytes=0-0")]).await.code(), "range_not_satisfiable");
    assert_eq!(house.get(&empty).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing() {
    let house = House::new();
    let session = house.session().await;
    let broken = || {
        let chunks = [Ok(bytes::Bytes::from_static(b"{\"name\": \"a\"")), Err(std::io::Error::other("reset by peer"))];
        Body::from_stream(futures_util::stream::iter(chunks))
    };
    let file = format!("/v1/sessions/{session}/files/content?path=f");
    for (method, path) in [(Method::POST, "/v1/agents"), (Method::PUT, file.as_str())] {
        let reply = house.send(request(method, path, broken(), &[])).await;
        assert!(reply.status.is_client_error(), "{path}");
        reply.code();
    }
    assert_eq!(house.get("/v1/agents?limit=1000").await.ok()["data"].as_array().unwrap().len(), 1);
    assert_eq!(house.get(&file).await.code(), "file_not_found");
}

#[tokio::test]
async fn headers_that_are_no_text_are_refused_where_they_count() {
    let house = House::new();
    let session = house.session().await;
    let send = async |name: &'static str, value: &[u8], path: &str, method: Method| {
        let mut sent = request(method, path, Body::from("{}"), &[]);
        let value = axum::http::HeaderValue::from_bytes(value).unwrap();
        sent.headers_mut().insert(name, value);
        house.send(sent).await
    };
    let stream = format!("/v1/sessions/{session}/events/stream");
    for (name, path, method, code) in [
        ("x-api-key", "/v1/agents", Method::GET, "authentication_required"),
        ("host", "/v1/agents", Method::GET, "host_not_allowed"),
        ("origin", "/v1/agents", Method::GET, "origin_not_allowed"),
        ("idempotency-key", "/v1/agents", Method::POST, "invalid_header"),
        ("last-event-id", stream.as_str(), Method::GET, "invalid_cursor"),
    ] {
        assert_eq!(send(name, b"\xff\xfe", path, method).await.code(), code, "{name}");
    }
    let long = "k".repeat(256);
    assert_eq!(send("idempotency-key", long.as_bytes(), "/v1/agents", Method::POST).await.code(), "invalid_header");
    assert_eq!(send("idempotency-key", b"", "/v1/agents", Method::POST).await.code(), "invalid_header");
}
