//! What callers and readers see while the store fails.

use crate::faulty::Faulty;
use crate::house::{House, request};
use axum::body::Body;
use axum::http::Method;
use serde_json::json;
use std::sync::Arc;
use tenure_store::Kind;
use tenure_store::memory::Memory;

fn faulty() -> (Arc<Faulty>, House) {
    let store = Faulty::over(Arc::new(Memory::new()));
    (store.clone(), House::over(store, |_| {}))
}

#[tokio::test]
async fn z_53_each_failure_of_the_store_has_its_code_and_says_nothing_of_the_inside() {
    for (kind, status, code, is_retried) in [
        (Kind::Retry, 503, "store_busy", true),
        (Kind::NoSpace, 503, "storage_full", false),
        (Kind::Corrupt, 500, "corrupt_record", false),
        (Kind::Broken, 500, "store_broken", false),
        (Kind::Fenced, 500, "internal_error", false),
    ] {
        let (store, house) = faulty();
        let session = house.session().await;
        for (method, path) in [(Method::GET, format!("/v1/sessions/{session}")), (Method::POST, "/v1/agents".into())] {
            // Other tasks of the server ask the store too.
            store.fail(kind, u32::MAX);
            let body = json!({"name": "a", "model": "p/priced"});
            let reply = house.call(method, &path, Some(body), &[]).await;
            store.mend();
            assert_eq!((reply.status.as_u16(), reply.code().as_str()), (status, code), "{path}");
            assert_eq!(reply.header("retry-after").is_some(), is_retried, "{code}");
            let text = String::from_utf8(reply.bytes).unwrap();
            assert!(!text.contains("secret-path"), "{text}");
        }
        house.get(&format!("/v1/sessions/{session}")).await.ok();
    }
}

#[tokio::test]
async fn readiness_follows_the_store_and_health_does_not() {
    let (store, house) = faulty();
    let ask = |path| house.send(request(Method::GET, path, Body::empty(), &[("x-api-key", "")]));
    store.fail(Kind::Broken, u32::MAX);
    assert_eq!(ask("/readyz").await.code(), "store_broken");
    ask("/healthz").await.ok();
    store.mend();
    ask("/readyz").await.ok();
}

#[tokio::test]
async fn o_062_a_stream_whose_store_broke_ends_with_one_error_and_goes_on_elsewhere() {
    let (store, house) = faulty();
    let session = house.session().await;
    let mut stream = house.stream(&session, "?after=0", &[]).await;
    house.say(&session, "hi").await;
    store.fail(Kind::Broken, u32::MAX);
    let mut last = stream.next().await.unwrap();
    while last.event != "error" {
        last = stream.next().await.unwrap();
    }
    assert_eq!((last.id, &last.data["type"]), (None, &json!("error")));
    assert_eq!(last.data["error"]["code"], "store_broken");
    assert!(!last.data.to_string().contains("secret-path"));
    assert_eq!(stream.next().await, None, "nothing comes after the error");
    store.mend();
    house.say(&session, "again").await;
    let shown = house.stream(&session, "?after=0", &[]).await.take(2).await;
    assert_eq!(shown[1].data["content"][0]["text"], "again");
}

#[tokio::test]
async fn a_store_that_is_briefly_away_does_not_end_a_stream() {
    let (store, house) = faulty();
    let session = house.session().await;
    let mut stream = house.stream(&session, "", &[]).await;
    for round in 0..3 {
        store.fail(Kind::Retry, 5);
        // The tasks of the server use up the failures.
        while !store.has_failed() {
            tokio::time::timeout(std::time::Duration::from_millis(20), stream.next()).await.ok();
        }
        let text = format!("round {round}");
        house.say(&session, &text).await;
        store.mend();
        assert_eq!(stream.next().await.unwrap().data["content"][0]["text"], text);
    }
}
