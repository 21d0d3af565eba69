//! Snapshots over the API: listed, read, compared, and behind what is written.

use crate::hand::Hand;
use crate::house::{House, OTHER_KEY, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use std::fs;
use tenure_core::{Body as EventBody, Consistency, Draft, SnapshotId, SnapshotReason, SnapshotTaken};
use tenure_files::snapshots::{Cache, Id, Plan, Stores};
use tenure_store::Then;

/// Takes a snapshot as a worker does, and tells the log.
pub(crate) async fn take(house: &House, hand: &mut Hand, session: &str, cache: Option<Cache>) -> (String, Cache) {
    let stores = Stores::new(&house.folder().join("snapshots"), None);
    let id = crate::hand::next();
    let plan = Plan {
        id: Id(id),
        session: session.to_owned(),
        epoch: 1,
        seq: hand.head.last_seq + 1,
        parent: cache.as_ref().map(|cache| cache.record().id),
        taken_at_ms: 1_700_000_000_000,
        is_frozen: false,
    };
    let taken = stores.of("alice").unwrap().take(&house.workspace(session), cache, &plan).unwrap();
    let record = taken.cache.record();
    let told = SnapshotTaken {
        reason: SnapshotReason::Turn,
        consistency: Consistency::Fuzzy,
        entries: record.entries,
        bytes: record.bytes,
        new_bytes: record.new_bytes,
        left_out: 0,
    };
    let snapshot = SnapshotId::from_bits(id);
    hand.commit(vec![Draft::new(EventBody::SnapshotCreated { snapshot, taken: told })], Then::Keep).await;
    (snapshot.to_string(), taken.cache)
}

fn paths(reply: &Value) -> Vec<&str> {
    reply["data"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn files_of_a_session_without_compute_are_served_from_its_snapshots_and_labelled_so() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "go").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let workspace = house.workspace(&session);
    fs::create_dir_all(workspace.join("src")).unwrap();
    fs::write(workspace.join("src/main.rs"), "0123456789").unwrap();
    fs::write(workspace.join("gone later"), "x").unwrap();
    let (first, cache) = take(&house, &mut hand, &session, None).await;
    let first_seq = hand.head.last_seq;
    fs::write(workspace.join("src/main.rs"), "changed since").unwrap();
    fs::remove_file(workspace.join("gone later")).unwrap();
    fs::write(workspace.join("new"), "y").unwrap();
    let (second, _) = take(&house, &mut hand, &session, Some(cache)).await;
    hand.commit(vec![], Then::Park).await;

    let base = format!("/v1/sessions/{session}");
    let list = house.get(&format!("{base}/snapshots?limit=1")).await.ok();
    assert_eq!((&list["data"][0]["id"], &list["data"][0]["parent_id"]), (&json!(second), &json!(first)));
    let rest = house.get(&format!("{base}/snapshots?page={}", list["next_page"].as_str().unwrap())).await.ok();
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["next_page"]), (1, &Value::Null));
    assert_eq!((&rest["data"][0]["id"], &rest["data"][0]["entries"]), (&json!(first), &json!(3)));

    let live = house.get(&format!("{base}/files")).await.ok();
    assert_eq!((paths(&live), &live["at"]), (vec!["new", "src"], &json!("live")));
    let old = house.get(&format!("{base}/files?at={first}")).await.ok();
    assert_eq!((paths(&old), &old["at"]), (vec!["gone later", "src"], &json!(first)));
    let seen = house.get(&format!("{base}/files?at=seq:{first_seq}")).await.ok();
    assert_eq!(seen["at"], first);
    assert_eq!(house.get(&format!("{base}/files?at=seq:1")).await.code(), "snapshot_not_found");
    let diff = house.get(&format!("{base}/diff?from={first}&to={second}")).await.ok();
    let changes: Vec<&str> =
        diff["data"].as_array().unwrap().iter().map(|change| change["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["removed", "added", "changed"]);
    fs::write(workspace.join("newest"), "z").unwrap();
    let diff = house.get(&format!("{base}/diff?from={second}&to=live")).await.ok();
    assert_eq!(diff["data"].as_array().unwrap().len(), 1);
    assert_eq!(diff["data"][0]["after"]["path"], "newest");
    fs::remove_dir_all(&workspace).unwrap();

    let stored = house.get(&format!("{base}/files")).await.ok();
    assert_eq!((paths(&stored), &stored["at"]), (vec!["new", "src"], &json!(second)));
    assert_eq!(house.get(&format!("{base}/files?at=live")).await.code(), "conflict");
    let content = format!("{base}/files/content?path=src/main.rs");
    let part = house.call(Method::GET, &content, None, &[("range", "bytes=2-4")]).await;
    assert_eq!((part.status, part.bytes.as_slice()), (StatusCode::PARTIAL_CONTENT, b"ang".as_slice()));
    let tag = part.header("etag").unwrap().to_owned();
    let known = house.call(Method::GET, &content, None, &[("if-none-match", &tag)]).await;
    assert_eq!(known.status, StatusCode::NOT_MODIFIED);
    let whole = house.get(&format!("{content}&at={first}")).await;
    assert_eq!(whole.bytes.as_slice(), b"0123456789");
    let archive = house.get(&format!("{base}/files/archive")).await;
    assert_eq!(archive.status, StatusCode::OK);
    assert!(archive.bytes.windows(11).any(|window| window == b"src/main.rs"));
    assert!(!workspace.exists(), "looking makes no folder");

    // What is written joins the files, and never a blank folder.
    let put = request(Method::PUT, &format!("{base}/files/content?path=added"), Body::from("1"), &[]);
    house.send(put).await.ok();
    let live = house.get(&format!("{base}/files")).await.ok();
    assert_eq!((paths(&live), &live["at"]), (vec!["added", "new", "src"], &json!("live")));
}

#[tokio::test]
async fn z_18_snapshots_of_others_are_not_found_and_those_of_a_deleted_session_are_gone() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "go").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    fs::create_dir_all(house.workspace(&session)).unwrap();
    fs::write(house.workspace(&session).join("a"), "x").unwrap();
    let (snapshot, _) = take(&house, &mut hand, &session, None).await;
    hand.commit(vec![], Then::Park).await;
    let other = house.session().await;
    assert_eq!(house.get(&format!("/v1/sessions/{other}/files?at={snapshot}")).await.code(), "snapshot_not_found");
    assert_eq!(house.get(&format!("/v1/sessions/{other}/files?at=snap_x")).await.code(), "invalid_query");
    let path = format!("/v1/sessions/{session}/snapshots");
    let foreign = house.call(Method::GET, &path, None, &[("x-api-key", OTHER_KEY)]).await;
    assert_eq!(foreign.code(), "session_not_found");
    house.delete(&format!("/v1/sessions/{session}")).await.ok();
    let stores = Stores::new(&house.folder().join("snapshots"), None);
    assert_eq!(stores.of("alice").unwrap().ids().unwrap(), []);
}

#[tokio::test]
async fn a_damaged_snapshot_is_an_error_with_a_code_and_earlier_ones_stay_readable() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "go").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    fs::create_dir_all(house.workspace(&session)).unwrap();
    fs::write(house.workspace(&session).join("a"), vec![7; 2_000]).unwrap();
    let (first, cache) = take(&house, &mut hand, &session, None).await;
    fs::write(house.workspace(&session).join("b"), vec![8; 2_000]).unwrap();
    let (second, _) = take(&house, &mut hand, &session, Some(cache)).await;
    hand.commit(vec![], Then::Park).await;
    let id: SnapshotId = second.parse().unwrap();
    let record = walk(&house.folder().join("snapshots"), &format!("{:032x}", id.bits()));
    fs::write(record, b"not a record").unwrap();
    let base = format!("/v1/sessions/{session}/files");
    assert_eq!(house.get(&format!("{base}?at={second}")).await.code(), "snapshot_unreadable");
    assert_eq!(paths(&house.get(&format!("{base}?at={first}")).await.ok()), ["a"]);
}

fn walk(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let mut next = vec![folder.to_owned()];
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                next.push(path);
            } else if path.ends_with(name) {
                return path;
            }
        }
    }
    panic!("{name} is not there")
}
