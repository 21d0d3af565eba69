//! What a scraper reads.

use crate::hand;
use crate::house::{CLIENT_KEY, House, NODE_KEY, READ_KEY};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use std::collections::BTreeMap;
use tenure_api::node::{METRICS_PATH, NODE_KEY_HEADER};
use tenure_core::*;

async fn scrape(house: &House, query: &str) -> BTreeMap<String, f64> {
    let reply = house.call(Method::GET, &format!("/metrics{query}"), None, &[("x-api-key", READ_KEY)]).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(reply.bytes).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_scraper_needs_a_key_that_may_read_and_no_more() {
    let house = House::new();
    let call = async |key: &str| house.call(Method::GET, "/metrics", None, &[("x-api-key", key)]).await;
    assert_eq!(call("").await.code(), "authentication_required");
    assert_eq!(call("wrong-key").await.code(), "invalid_api_key");
    assert_eq!(call(READ_KEY).await.status, StatusCode::OK);
    assert_eq!(call(CLIENT_KEY).await.status, StatusCode::OK);
    let wrong = house.get("/metrics?nodes=some").await;
    assert_eq!((wrong.status, wrong.code()), (StatusCode::BAD_REQUEST, "invalid_query".to_owned()));
}

#[tokio::test]
async fn sessions_queue_streams_and_requests_are_counted() {
    let house = House::new();
    let first = house.session().await;
    house.session().await;
    let before = scrape(&house, "").await;
    assert_eq!(before["tenure_sessions{state=\"parked\"}"], 2.0);
    assert_eq!((before["tenure_sessions{state=\"queued\"}"], before["tenure_oldest_queued_seconds"]), (0.0, 0.0));
    house.say(&first, "go").await;
    house.memory.as_ref().unwrap().advance(90_500);
    let stream = house.stream(&first, "", &[]).await;
    let now = scrape(&house, "").await;
    assert_eq!(now["tenure_sessions{state=\"queued\"}"], 1.0);
    assert_eq!(now["tenure_oldest_queued_seconds"], 90.5);
    assert_eq!(now["tenure_streams_open"], 1.0);
    let said = "http_server_request_duration_seconds_count{http_request_method=\"POST\",\
                http_route=\"/v1/sessions/{session_id}/events\",http_response_status_code=\"200\"}";
    assert_eq!(now[said], 1.0);
    drop(stream);
    assert_eq!(scrape(&house, "").await["tenure_streams_open"], 0.0);
}

#[tokio::test]
async fn strange_paths_and_methods_make_no_new_series() {
    let house = House::new();
    for number in 0..50 {
        house.get(&format!("/v1/strange/{number}")).await;
        house.call(Method::from_bytes(format!("M{number}").as_bytes()).unwrap(), "/v1/agents", None, &[]).await;
    }
    let counts = "http_server_request_duration_seconds_count";
    let series = scrape(&house, "").await.into_keys().filter(|name| name.starts_with(counts)).count();
    assert!(series <= 4, "{series}");
}

#[tokio::test]
async fn openmetrics_is_given_to_whoever_asks_for_it() {
    let house = House::new();
    let accept = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let reply = house.call(Method::GET, "/metrics", None, &accept).await;
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(reply.bytes.ends_with(b"# EOF\n"));
}

/// A worker that says what it counted, to whoever has the key of the nodes.
async fn counts(headers: HeaderMap) -> Response {
    if headers.get(NODE_KEY_HEADER).is_none_or(|key| key != NODE_KEY) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let sample = json!({"labels": [["class", "answered"]], "value": {"number": 7.0}});
    Json(json!([{"name": "tenure_model_attempts", "kind": "counter", "help": "Attempts.", "samples": [sample]}]))
        .into_response()
}

#[tokio::test]
async fn series_of_live_workers_carry_their_name_and_silent_ones_are_counted() {
    let house = House::new();
    let router = Router::new().route(METRICS_PATH, get(counts));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = hand::node(&house, &listener.local_addr().unwrap().to_string()).await;
    tokio::spawn(async move { axum::serve(listener, router).await });
    // Bound and dropped: nobody listens there.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    hand::node(&house, &gone.to_string()).await;
    let told = scrape(&house, "").await;
    let series = format!("tenure_model_attempts_total{{class=\"answered\",node=\"{node}\"}}");
    assert_eq!(told.get(&series), Some(&7.0), "{told:?}");
    assert_eq!(told["tenure_nodes{state=\"alive\"}"], 2.0);
    // Set while the workers were asked; the text has it.
    assert_eq!(told["tenure_nodes_silent"], 1.0);
    assert!(!scrape(&house, "?nodes=none").await.contains_key(&series));
}

#[tokio::test]
async fn what_waits_on_a_condition_is_counted_while_it_is_known() {
    let house = House::new();
    let report = condition::Report {
        id: ConditionId::from_bits(1),
        key: condition::ConditionKey { credential: "p".into(), model: Some("p/priced".into()) },
        class: failure::Class::RateLimit,
        message: "slow down".into(),
        hint: Some(1_000),
        policy: retry::Policy::default(),
        random: 0,
        sent_at: Timestamp(0),
        probe: None,
    };
    let condition = house.store.report_condition(report).await.unwrap();
    let series = "tenure_condition_waiting{credential=\"p\",model=\"p/priced\",class=\"rate_limit\",stage=\"open\"}";
    assert_eq!(scrape(&house, "").await.get(series), Some(&0.0));
    house.store.clear_condition(condition.id).await.unwrap();
    assert!(!scrape(&house, "").await.contains_key(series), "not as open any more");
}
