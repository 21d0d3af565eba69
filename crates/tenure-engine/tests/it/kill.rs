//! kill -9 of a worker at named points (promises P3, P12).

use crate::children::{Child, EFFECT_AND_WAIT, Gate};
use crate::house::{House, check, said};
use std::time::Duration;
use tenure_core::*;

const GRACE: Duration = Duration::from_secs(1);

fn bash(command: &str) -> String {
    format!("{{ call = \"bash\", input = {{ command = '{command}' }} }}")
}

fn result_of(log: &[Event], call: usize) -> Vec<(Outcome, String)> {
    let calls: Vec<EventId> =
        log.iter().filter(|event| matches!(event.body, Body::AgentToolUse { .. })).map(|event| event.id).collect();
    let results = log.iter().filter_map(|event| match &event.body {
        Body::AgentToolResult { tool_use_id, content, outcome } if *tool_use_id == calls[call] => {
            let texts = content.iter().map(|block| match block {
                Block::Text(text) => text.as_str(),
                Block::Media { .. } => "media",
            });
            Some((*outcome, texts.collect::<String>()))
        }
        _ => None,
    });
    results.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn o_027_a_call_whose_worker_is_killed_is_unknown_and_never_run_again() {
    let scenario = format!("[[turn]]\ndo = [{}]\n[[turn]]\ndo = [{{ say = \"checked\" }}]\n", bash(EFFECT_AND_WAIT));
    let mut house = House::with(&scenario, Effect::Once).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "refund").await;
    gate.begun().await;
    let log = house.log(session).await;
    assert!(log.iter().any(|event| matches!(event.body, Body::ToolStarted { .. })), "durable before the effect");
    worker.kill();
    let _next = Child::worker(&house, GRACE);
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    let results = result_of(&log, 0);
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].0 == Outcome::Unknown && results[0].1.contains("Check before you repeat"), "{results:?}");
    assert_eq!(said(&log), ["checked"]);
    assert_eq!(gate.effects(), ["run"], "one refund");
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_027_a_call_that_may_be_repeated_is_run_again_and_has_one_result() {
    let scenario = format!("[[turn]]\ndo = [{}]\n[[turn]]\ndo = [{{ say = \"done\" }}]\n", bash(EFFECT_AND_WAIT));
    let mut house = House::with(&scenario, Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "go").await;
    let first = gate.begun().await;
    worker.kill();
    let _next = Child::worker(&house, GRACE);
    let second = gate.begun().await;
    assert!(!crate::children::lives(&first), "z_11: the old command is gone before the new one begins");
    assert_ne!(first, second);
    gate.go().await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(result_of(&log, 0).iter().map(|result| result.0).collect::<Vec<_>>(), [Outcome::Done]);
    assert_eq!(gate.effects(), ["run", "run"]);
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_025_a_crash_between_two_calls_runs_the_second_once_and_the_first_not_again() {
    let first = bash("echo first >> {f}/effects");
    let second = bash("echo second >> {f}/effects; echo $$ > {f}/begun; cat {f}/go");
    let scenario = format!("[[turn]]\ndo = [{first}, {second}]\n[[turn]]\ndo = [{{ say = \"done\" }}]\n");
    let mut house = House::with(&scenario, Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "go").await;
    gate.begun().await;
    assert_eq!(result_of(&house.log(session).await, 0).len(), 1, "the first result is durable");
    worker.kill();
    let _next = Child::worker(&house, GRACE);
    gate.begun().await;
    gate.go().await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(gate.effects(), ["first", "second", "second"], "the first is not run again");
    assert_eq!((result_of(&log, 0).len(), result_of(&log, 1).len()), (1, 1));
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_025_a_call_that_was_not_begun_runs_once_after_the_crash() {
    let first = bash("echo first >> {f}/effects");
    let second = "{ call = \"write\", input = { file_path = \"x\", content = \"y\" } }";
    let scenario = format!("[[turn]]\ndo = [{first}, {second}]\n[[turn]]\ndo = [{{ say = \"done\" }}]\n");
    let mut house = House::with(&scenario, Effect::Once).await;
    let gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "go").await;
    let view = house.until(session, Phase::NeedsYou).await;
    worker.kill();
    let call = view.session.calls.iter().find(|call| call.name == "write").unwrap().id;
    house.send(session, InputBody::Confirmation { tool_use_id: call, decision: Decision::Allow }).await;
    let _next = Child::worker(&house, GRACE);
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(gate.effects(), ["first"]);
    assert_eq!(result_of(&log, 0).iter().map(|result| result.0).collect::<Vec<_>>(), [Outcome::Done]);
    assert_eq!(result_of(&log, 1).iter().map(|result| result.0).collect::<Vec<_>>(), [Outcome::Done]);
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_015_finished_results_of_parallel_calls_outlive_the_worker_and_only_the_rest_runs_again() {
    let calls = [
        bash("echo a >> {f}/effects; echo fine"),
        bash("echo b >> {f}/effects; exit 1"),
        bash("echo c >> {f}/effects; echo $$ > {f}/begun; cat {f}/go"),
    ];
    let scenario = format!("[[turn]]\ndo = [{}]\n[[turn]]\ndo = [{{ say = \"done\" }}]\n", calls.join(", "));
    let mut house = House::with(&scenario, Effect::Pure).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "go").await;
    gate.begun().await;
    let is_half =
        |log: &[Event]| log.iter().filter(|event| matches!(event.body, Body::AgentToolResult { .. })).count() == 2;
    house.until_log(session, is_half).await;
    worker.kill();
    let _next = Child::worker(&house, GRACE);
    gate.begun().await;
    gate.go().await;
    house.until(session, Phase::Idle).await;
    let mut effects = gate.effects();
    effects.sort_unstable();
    assert_eq!(effects, ["a", "b", "c", "c"]);
    let log = house.log(session).await;
    let outcomes: Vec<Outcome> = (0..3).flat_map(|call| result_of(&log, call)).map(|result| result.0).collect();
    assert_eq!(outcomes, [Outcome::Done, Outcome::Failed, Outcome::Done], "one failure stops no other");
    let calls: Vec<EventId> =
        log.iter().filter(|event| matches!(event.body, Body::AgentToolUse { .. })).map(|event| event.id).collect();
    // What the model was sent next.
    let messages = transcript(&log);
    let results: Vec<EventId> = messages
        .iter()
        .flat_map(|message| match message {
            Message::User(parts) => parts.as_slice(),
            Message::Assistant(_) => &[],
        })
        .filter_map(|part| match part {
            UserPart::Result { call, .. } => Some(*call),
            UserPart::Block(_) => None,
        })
        .collect();
    assert_eq!(results, calls, "three results in the order of the calls");
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_050_two_approvals_one_after_the_other_with_a_killed_worker_between() {
    let write = |name: &str| format!("{{ call = \"write\", input = {{ file_path = \"{name}\", content = \"y\" }} }}");
    let scenario = format!(
        "[[turn]]\ndo = [{}]\n[[turn]]\ndo = [{}]\n[[turn]]\ndo = [{{ say = \"done\" }}]\n",
        write("one"),
        write("two")
    );
    let mut house = House::new(&scenario).await;
    let session = house.session().await;
    let mut worker = Child::worker(&house, GRACE);
    house.say(session, "go").await;
    let mut asked = Vec::new();
    for round in 0..2 {
        let view = loop {
            let view = house.until(session, Phase::NeedsYou).await;
            if !asked.contains(&view.session.calls[0].id) {
                break view;
            }
        };
        let call = view.session.calls[0].id;
        asked.push(call);
        worker.kill();
        house.send(session, InputBody::Confirmation { tool_use_id: call, decision: Decision::Allow }).await;
        worker = Child::worker(&house, GRACE);
        house.until_log(session, |log| !result_of(log, round).is_empty()).await;
    }
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["done"]);
    for round in 0..2 {
        assert_eq!(result_of(&log, round).iter().map(|result| result.0).collect::<Vec<_>>(), [Outcome::Done]);
    }
    check(&log);
}
