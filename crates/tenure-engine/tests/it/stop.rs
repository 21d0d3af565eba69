//! Cancel and interrupt while something runs, and what is kept of commands (promises P15, P18).

use crate::children::{EFFECT_AND_WAIT, Gate, lives};
use crate::house::{House, check, drivers};
use std::fs;
use std::path::Path;
use tenure_core::*;
use tenure_engine::EventMasker;
use tenure_store::{Claim, EXTERNAL, Lane, Store};

#[tokio::test(flavor = "multi_thread")]
async fn z_30_the_last_event_of_a_cancelled_session_comes_after_its_processes_are_gone_and_says_so() {
    // One call leaves a process behind, and another one runs.
    let scenario = format!(
        "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = 'sleep 1000 & echo $! > {{f}}/left' }} }}]\n\
         [[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}' }} }}]\n"
    );
    let mut house = House::new(&scenario).await;
    let mut gate = Gate::new(&house);
    let worker = house.handy_worker().await;
    let session = house.session().await;
    house.say(session, "go").await;
    let command = gate.begun().await;
    let left = fs::read_to_string(house.path().join("left")).unwrap();
    assert!(lives(&left), "it outlives its call");
    house.send(session, InputBody::Cancel).await;
    let view = house.until(session, Phase::Cancelled).await;
    assert!(!lives(&command) && !lives(&left));
    assert_eq!(view.session.position, Position::Ended(End::Cancelled { processes: "killed".to_owned() }));
    let log = house.log(session).await;
    let outcomes = log.iter().filter_map(|event| match &event.body {
        Body::AgentToolResult { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), [Outcome::Done, Outcome::Interrupted], "every open call has a result");
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_15_a_worker_carries_out_what_is_urgent_for_an_external_loop_and_nothing_else() {
    let mut house = House::new("[[turn]]\ndo = [{ say = \"not mine to say\" }]\n").await;
    let worker = house.worker().await;
    let session = house.session_in(Some("reviews")).await;
    house.say(session, "go").await;
    house.send(session, InputBody::Interrupt).await;
    // The interrupt is in the log, and the message waits for the loop.
    house.until_log(session, |log| log.iter().any(|event| matches!(event.body, Body::UserInterrupt))).await;
    let lane = Lane::Queue { tenant: house.tenant.clone(), name: "reviews".into(), span: 60_000 };
    let claim = |id| Claim { node: EXTERNAL, lane: lane.clone(), id: LeaseId::from_bits(id), limit: 1 };
    let leased = house.store.claim(claim(1)).await.unwrap();
    assert_eq!((leased.len(), &leased[0].session.position), (1, &Position::Model), "it is back in its queue");
    house.store.release(&leased[0].lease).await.unwrap();
    house.send(session, InputBody::Cancel).await;
    house.until(session, Phase::Cancelled).await;
    let log = house.log(session).await;
    assert!(!log.iter().any(|event| matches!(event.body, Body::AgentMessage { .. } | Body::SpanStart { .. })));
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_054_cancel_ends_a_session_that_waits() {
    let mut house = House::new("[[turn]]\ndo = [{ call = \"sleep\", input = { seconds = 3600 } }]\n").await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "go").await;
    house.until(session, Phase::Waiting).await;
    house.send(session, InputBody::Cancel).await;
    let view = house.until(session, Phase::Cancelled).await;
    assert_eq!(view.session.position, Position::Ended(End::Cancelled { processes: "nothing was running".to_owned() }));
    check(&house.log(session).await);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_025_an_interrupt_closes_the_open_call_and_a_message_goes_on() {
    let scenario = format!(
        "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}' }} }}]\n[[turn]]\ndo = [{{ say = \"ok\" }}]\n"
    );
    let mut house = House::new(&scenario).await;
    let mut gate = Gate::new(&house);
    let worker = house.handy_worker().await;
    let session = house.session().await;
    house.say(session, "go").await;
    let command = gate.begun().await;
    house.send(session, InputBody::Interrupt).await;
    house.until(session, Phase::Idle).await;
    crate::children::until_gone(&command).await;
    house.say(session, "and now").await;
    house.until_log(session, |log| crate::house::said(log) == ["ok"]).await;
    check(&house.log(session).await);
    worker.stop().await;
}

/// Gives a session so much time from now on.
async fn give_time(house: &mut House, session: SessionId, millis: u64) {
    let view = house.store.session(&house.tenant, session).await.unwrap().unwrap();
    let used = house.store.now().await.unwrap().since(view.session.created_at);
    let limits = Limits { wall: Some(used + millis), ..Limits::NONE };
    house.send(session, InputBody::Limits(limits)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_model_call_ends_when_the_time_of_its_session_is_over_unless_it_was_given_more() {
    let mut house = House::new("[[turn]]\ndo = [{ say = \"I begin\" }, { stall = \"forever\" }]\n").await;
    let worker = house.worker().await;
    let session = house.session().await;
    give_time(&mut house, session, 600).await;
    house.say(session, "go").await;
    let is_begun = |log: &[Event]| log.iter().any(|event| matches!(event.body, Body::SpanStart { .. }));
    house.until_log(session, is_begun).await;
    give_time(&mut house, session, 1_500).await;
    let view = house.until(session, Phase::NeedsYou).await;
    assert!(matches!(view.session.wait.unwrap().kind, WaitKind::Budget { which: Which::Wall }));
    let given = view.session.budget.limits.wall.unwrap();
    let log = house.log(session).await;
    let ended = log.iter().find(|event| matches!(event.body, Body::SpanEnd { is_error: true, .. })).unwrap();
    assert!(ended.at.since(view.session.created_at) >= given, "the newest limit counts, and it was reached");
    assert_eq!(crate::house::said(&log), Vec::<String>::new(), "nothing of it is kept");
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_command_ends_when_the_time_of_its_session_is_over_and_the_model_goes_on_with_more() {
    let scenario = format!(
        "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}' }} }}]\n[[turn]]\ndo = [{{ say = \"ok\" }}]\n"
    );
    let mut house = House::new(&scenario).await;
    let mut gate = Gate::new(&house);
    let worker = house.handy_worker().await;
    let session = house.session().await;
    house.send(session, InputBody::Limits(Limits { wall: Some(u64::MAX), ..Limits::NONE })).await;
    house.say(session, "go").await;
    let command = gate.begun().await;
    give_time(&mut house, session, 0).await;
    let view = house.until(session, Phase::NeedsYou).await;
    assert!(matches!(view.session.wait.unwrap().kind, WaitKind::Budget { which: Which::Wall }));
    crate::children::until_gone(&command).await;
    let log = house.log(session).await;
    let is_interrupted =
        |event: &Event| matches!(event.body, Body::AgentToolResult { outcome: Outcome::Interrupted, .. });
    assert_eq!(log.iter().filter(|event| is_interrupted(event)).count(), 1, "it may have had effects, and says so");
    house.send(session, InputBody::Limits(Limits::NONE)).await;
    house.until_log(session, |log| crate::house::said(log) == ["ok"]).await;
    check(&house.log(session).await);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_full_output_of_a_command_is_kept_under_the_id_of_its_call() {
    let scenario = "[[turn]]\ndo = [{ call = \"bash\", input = { command = \"seq 1 50000\" } }]\n[[turn]]\ndo = [{ say = \"ok\" }]\n";
    let mut house = House::new(scenario).await;
    let worker = house.handy_worker().await;
    let session = house.session().await;
    house.say(session, "go").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    let call = log.iter().find(|event| matches!(event.body, Body::AgentToolUse { .. })).unwrap().id;
    let result = log.iter().find_map(|event| match &event.body {
        Body::AgentToolResult { content, .. } => match content.as_slice() {
            [Block::Text(text)] => Some(text),
            _ => None,
        },
        _ => None,
    });
    assert!(result.unwrap().contains("left out; the full output is kept"), "the model sees a part");
    let kept = house.path().join("sandboxes").join(session.to_string()).join(format!("{call}.log"));
    let expected: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
    assert!(fs::read_to_string(kept).unwrap() == expected, "and all of it is here");
    worker.stop().await;
}

/// Every byte of every file below a folder.
fn dump(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            dump(&entry.path(), found);
        } else if entry.file_type().unwrap().is_file() {
            found.push((entry.path().display().to_string(), fs::read(entry.path()).unwrap()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o_088_a_full_dump_of_the_store_holds_no_secret() {
    const SECRET: &str = "sk-dump-0123456789abcdefXYZ";
    const ENCODED: &str = "c2stZHVtcC0wMTIzNDU2Nzg5YWJjZGVmWFla";
    let scenario = format!(
        "[[turn]]\ndo = [{{ think = \"it is {SECRET}\" }}, {{ say = \"the key is {SECRET}\", pieces = 9 }}, \
         {{ call = \"bash\", input = {{ command = \"cat key; base64 key; echo {SECRET}\" }} }}, \
         {{ call = \"form\", input = {{ key = \"{SECRET}\" }} }}]\n\
         [[turn]]\ndo = [{{ call = \"bash\", input = {{ command = \"for i in $(seq 4000); do cat key; done\" }} }}]\n\
         [[turn]]\ndo = [{{ say = \"ok\" }}]\n"
    );
    let mut house = House::new(&scenario).await;
    let worker = house.worker_with(drivers(), EventMasker::new(&[SECRET.to_owned()])).await;
    let session = house.session().await;
    // Commands may well find it: in a file that somebody put there.
    let workspace = house.path().join("workspaces").join(session.to_string());
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("key"), SECRET).unwrap();
    house.say(session, "go").await;
    let view = house.until(session, Phase::NeedsYou).await;
    let form = view.session.calls[0].id;
    // What clients send is masked by the server before it is stored.
    let content = vec![Block::Text("fine".into())];
    house.send(session, InputBody::CustomResult { tool_use_id: form, content, is_error: false }).await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    check(&log);
    assert!(log.len() > 10);
    worker.stop().await;
    let mut files = Vec::new();
    for folder in ["store", "sandboxes", "nodes"] {
        dump(&house.path().join(folder), &mut files);
    }
    assert!(files.iter().any(|(_, bytes)| bytes.windows(10).any(|part| part == b"[redacted]")), "it is searched");
    for (name, bytes) in files {
        for secret in [SECRET, ENCODED] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in {name}");
        }
    }
}
