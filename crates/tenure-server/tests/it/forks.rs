//! Forks over the API: conversation and files each from where the request says, and the parent untouched.

use crate::hand::Hand;
use crate::house::{House, OTHER_KEY};
use crate::snapshots::take;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use tenure_core::{Body, CallKind, Draft, Effect, EventId, Json, Origin, Outcome, Permission, Stop};
use tenure_store::Then;

/// A session with two turns, each with a file, a snapshot after the first and a command after it.
struct Story {
    house: House,
    session: String,
    snapshot: String,
    /// The last event of the first turn.
    first_end: u64,
}

fn bash(command: &str) -> Draft {
    Draft::of_step(
        2,
        Body::AgentToolUse {
            name: "bash".into(),
            input: Json::parse(&json!({ "command": command }).to_string()).unwrap(),
            kind: CallKind::Sandbox,
            effect: Effect::Once,
            permission: Permission::Allow,
            malformed: None,
            origin: Origin::default(),
        },
    )
}

fn said(text: &str) -> Draft {
    Draft::of_step(1, Body::AgentMessage { text: text.into(), origin: Origin::default() })
}

async fn runs(hand: &mut Hand, command: &str) {
    let call = hand.commit(vec![bash(command)], Then::Keep).await[0].id;
    let result = Body::AgentToolResult { tool_use_id: call, content: Vec::new(), outcome: Outcome::Done };
    hand.commit(vec![Draft::of_step(2, result)], Then::Keep).await;
}

impl Story {
    async fn told() -> Self {
        let house = House::new();
        let session = house.session().await;
        house.say(&session, "first wish").await;
        let mut hand = Hand::claim(&house).await;
        hand.take_inputs().await;
        let started = Body::EnvironmentStarted { driver: "process".into(), missing: Vec::new(), epoch: 1 };
        hand.commit(vec![Draft::new(started)], Then::Keep).await;
        runs(&mut hand, "echo one > one").await;
        let workspace = house.workspace(&session);
        fs::create_dir_all(&workspace).unwrap();
        fs::write(workspace.join("one"), "one").unwrap();
        let (snapshot, _) = take(&house, &mut hand, &session, None).await;
        let end = vec![said("done"), Draft::new(Body::StatusIdle { stop: Stop::EndTurn })];
        let first_end = hand.commit(end, Then::Keep).await[1].seq;
        house.say(&session, "second wish").await;
        hand.commit(vec![], Then::Keep).await;
        hand.take_inputs().await;
        runs(&mut hand, "echo two > two").await;
        fs::write(workspace.join("two"), "two").unwrap();
        let end = vec![said("done too"), Draft::new(Body::StatusIdle { stop: Stop::EndTurn })];
        hand.commit(end, Then::Park).await;
        Self { house, session, snapshot, first_end }
    }

    async fn fork(&self, body: Value) -> Value {
        self.house.post(&format!("/v1/sessions/{}/fork", self.session), body).await.ok()
    }

    async fn log(&self, session: &str) -> Vec<Value> {
        let log = self.house.get(&format!("/v1/sessions/{session}/events?limit=1000")).await.ok();
        log["data"].as_array().unwrap().clone()
    }

    async fn files(&self, session: &str, at: &str) -> Vec<String> {
        let list = self.house.get(&format!("/v1/sessions/{session}/files{at}")).await.ok();
        list["data"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }
}

fn id(session: &Value) -> String {
    session["id"].as_str().unwrap().to_owned()
}

fn reset(log: &[Value]) -> String {
    let reset = log.iter().rfind(|event| event["type"] == "environment.reset").expect("files are spoken of");
    reset["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn p_17_conversation_and_files_are_forked_at_an_earlier_event() {
    let story = Story::told().await;
    let before = story.log(&story.session).await;
    let fork = story.fork(json!({"at_seq": story.first_end, "title": "another way"})).await;
    assert_eq!((&fork["phase"], &fork["title"], &fork["steps"]), (&json!("idle"), &json!("another way"), &json!(0)));
    assert_eq!(fork["forked_from"], json!({"session_id": story.session, "at_seq": story.first_end}));
    let log = story.log(&id(&fork)).await;
    let shared = usize::try_from(story.first_end).unwrap();
    assert_eq!(log[..shared], before[..shared], "shared events keep id and seq");
    assert_eq!(log[shared]["type"], "session.forked");
    assert_eq!(log.last().unwrap()["type"], "session.status_idle");
    assert!(reset(&log).contains("no command") || !reset(&log).contains("echo"), "{}", reset(&log));
    assert_eq!(story.files(&id(&fork), "").await, ["one"], "as that event saw them");
    let kept = fs::read(story.house.workspace(&story.session).join("two")).unwrap();
    assert_eq!(kept, b"two");
    assert_eq!(story.log(&story.session).await, before, "the parent is untouched");

    // It goes on by itself, with a lease of its own.
    story.house.say(&id(&fork), "another wish").await;
    let mut hand = Hand::claim(&story.house).await;
    assert_eq!(hand.head.id.to_string(), id(&fork));
    hand.take_inputs().await;
    hand.commit(vec![said("yes"), Draft::new(Body::StatusIdle { stop: Stop::EndTurn })], Then::Park).await;
    assert_eq!(story.log(&story.session).await, before);
    let seen = story.house.get(&format!("/v1/sessions/{}/events?order=desc&limit=3", id(&fork))).await.ok();
    assert_eq!(seen["data"][1]["content"][0]["text"], "yes");
}

#[tokio::test]
async fn each_choice_of_files_is_what_it_says() {
    let story = Story::told().await;
    let none = story.fork(json!({"files": "none"})).await;
    assert!(story.files(&id(&none), "").await.is_empty());
    assert!(reset(&story.log(&id(&none)).await).contains("The workspace is empty"));

    let named = story.fork(json!({"at_seq": 0, "files": story.snapshot})).await;
    assert_eq!(story.files(&id(&named), "").await, ["one"]);
    let log = story.log(&id(&named)).await;
    assert_eq!(log[0]["type"], "session.forked", "no conversation at all");
    assert_eq!(named["last_seq"], log.len());

    // Before there were files, and before anything.
    let early = story.fork(json!({"at_seq": 1})).await;
    assert!(story.files(&id(&early), "").await.is_empty());
    assert!(!story.log(&id(&early)).await.iter().any(|event| event["type"] == "environment.reset"));

    // Nobody works on it, so that nobody stores what is newer than the snapshot: the fork is told.
    let seq = story.log(&story.session).await.len() - 2;
    let behind = story.fork(json!({ "at_seq": seq })).await;
    assert_eq!(story.files(&id(&behind), "").await, ["one"]);
    let told = reset(&story.log(&id(&behind)).await);
    assert!(told.contains("echo two > two") && !told.contains("echo one"), "{told}");

    // A fork of a fork looks back beyond both.
    let again = story.house.post(&format!("/v1/sessions/{}/fork", id(&behind)), json!({})).await.ok();
    assert_eq!(story.files(&id(&again), "").await, ["one"]);
    let at = format!("?at={}", story.snapshot);
    assert_eq!(story.files(&id(&again), &at).await, ["one"], "a snapshot before its own");
    let list = story.house.get(&format!("/v1/sessions/{}/snapshots", id(&again))).await.ok();
    assert_eq!(list["data"].as_array().unwrap().len(), 3);
    assert_eq!(list["data"][0]["session_id"], id(&again));
}

#[tokio::test]
async fn z_33_a_fork_of_files_in_use_has_them_stored_first() {
    let story = Story::told().await;
    story.house.say(&story.session, "third wish").await;
    let mut hand = Hand::claim(&story.house).await;
    hand.take_inputs().await;
    let base = format!("/v1/sessions/{}", story.session);
    let path = format!("{base}/fork");
    let holder = async {
        // The wish for a snapshot reaches the holder while the fork waits.
        while hand.waiting().await == 0 {
            tokio::task::yield_now().await;
        }
        let (newest, _) = take(&story.house, &mut hand, &story.session, None).await;
        hand.take_inputs().await;
        newest
    };
    let holder = tokio::time::timeout(Duration::from_secs(30), holder);
    let (fork, newest) = tokio::join!(story.house.post(&path, json!({})), holder);
    let (fork, newest) = (fork.ok(), newest.expect("the holder is asked"));
    assert_eq!(story.files(&id(&fork), "").await, ["one", "two"]);
    let list = story.house.get(&format!("/v1/sessions/{}/snapshots", id(&fork))).await.ok();
    assert_eq!(list["data"][0]["parent_id"], newest, "{list}");
    assert!(reset(&story.log(&id(&fork)).await).contains("as they were then"));
}

#[tokio::test]
async fn the_last_message_is_replaced_in_a_fork() {
    let story = Story::told().await;
    let fork = story.fork(json!({"replace_last_input": "a better wish"})).await;
    assert_eq!(fork["forked_from"]["at_seq"], story.first_end);
    assert_eq!((&fork["phase"], &fork["inbox_len"]), (&json!("queued"), &json!(1)));
    let mut hand = Hand::claim(&story.house).await;
    let taken = hand.take_inputs().await;
    assert!(matches!(&taken[0].body, Body::UserMessage { .. }), "{taken:?}");
    let first =
        story.fork(json!({"at_seq": 1, "replace_last_input": [{"type": "text", "text": "from the start"}]})).await;
    assert_eq!(first["forked_from"]["at_seq"], 0);
}

#[tokio::test]
async fn z_13_a_fork_outlives_its_parent() {
    let story = Story::told().await;
    let fork = id(&story.fork(json!({"at_seq": story.first_end})).await);
    // Another one goes first, and takes nothing of the parent along.
    let other = id(&story.fork(json!({"at_seq": story.first_end})).await);
    story.house.delete(&format!("/v1/sessions/{other}")).await.ok();
    let kept = story.house.get(&format!("/v1/sessions/{}/snapshots", story.session)).await.ok();
    assert_eq!(kept["data"][0]["id"], story.snapshot);
    let log = story.log(&fork).await;
    let gone = story.house.delete(&format!("/v1/sessions/{}", story.session)).await.ok();
    assert_eq!(gone["kept_events"], story.first_end, "what survives is said");
    assert_eq!(story.log(&fork).await, log);
    assert_eq!(story.files(&fork, "").await, ["one"]);
    let old = story.house.get(&format!("/v1/sessions/{fork}/files?at={}", story.snapshot)).await;
    assert_eq!(old.code(), "snapshot_not_found", "snapshots of the parent went with it");
    let gone = story.house.delete(&format!("/v1/sessions/{fork}")).await.ok();
    assert_eq!(gone.get("kept_events"), None);
}

#[tokio::test]
async fn what_cannot_be_forked_is_said_and_a_repeat_makes_no_second_one() {
    let story = Story::told().await;
    let path = format!("/v1/sessions/{}/fork", story.session);
    let other = story.house.session().await;
    for (body, code) in [
        (json!({"at_seq": 1_000}), "invalid_field"),
        (json!({"at_seq": -1}), "invalid_field"),
        (json!({"at_seq": "x"}), "invalid_field"),
        (json!({"files": "all"}), "invalid_field"),
        (json!({"files": "snap_00000000000000000000000001"}), "snapshot_not_found"),
        (json!({"replace_last_input": " "}), "invalid_field"),
        (json!({"replace_last_input": "x", "at_seq": 0}), "invalid_field"),
        (json!([]), "invalid_field"),
    ] {
        assert_eq!(story.house.post(&path, body.clone()).await.code(), code, "{body}");
    }
    assert_eq!(story.house.post("/v1/sessions/sesn_x/fork", json!({})).await.code(), "session_not_found");
    let foreign = story.house.call(Method::POST, &path, Some(json!({})), &[("x-api-key", OTHER_KEY)]).await;
    assert_eq!((foreign.status, foreign.code()), (StatusCode::NOT_FOUND, "session_not_found".to_owned()));
    let sessions = story.house.get("/v1/sessions").await.ok()["data"].as_array().unwrap().len();
    assert_eq!(sessions, 2, "nothing was made: {other}");

    let once = [("idempotency-key", "one fork")];
    let first = story.house.call(Method::POST, &path, Some(json!({"at_seq": 2, "title": "a"})), &once).await.ok();
    let again = story.house.call(Method::POST, &path, Some(json!({"at_seq": 2, "title": "a"})), &once).await.ok();
    assert_eq!(first["id"], again["id"]);
    let changed = story.house.call(Method::POST, &path, Some(json!({"title": "b"})), &once).await;
    assert_eq!(changed.code(), "idempotency_mismatch");
    // An empty log can be forked too.
    let empty = story.house.post(&format!("/v1/sessions/{other}/fork"), json!({})).await.ok();
    assert_eq!(empty["forked_from"]["at_seq"], 0);
    let _: EventId = story.log(&id(&empty)).await[0]["id"].as_str().unwrap().parse().unwrap();
}
