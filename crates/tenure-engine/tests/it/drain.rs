//! SIGTERM at named points (promise P13, case O-082): nothing repeated, nothing counted as a failure.

use crate::children::{Child, EFFECT_AND_WAIT, Gate};
use crate::house::{House, check, said};
use rustix::process::Signal;
use std::time::Duration;
use tenure_core::*;

fn scenario() -> String {
    format!(
        "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}' }} }}]\n\
         [[turn]]\ndo = [{{ say = \"done\" }}]\n"
    )
}

fn outcomes(log: &[Event]) -> Vec<Outcome> {
    let outcome = |event: &Event| match &event.body {
        Body::AgentToolResult { outcome, .. } => Some(*outcome),
        _ => None,
    };
    log.iter().filter_map(outcome).collect()
}

fn failures(log: &[Event]) -> usize {
    log.iter().filter(|event| matches!(event.body, Body::Error { .. })).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn p_13_a_tool_that_ends_within_the_grace_time_is_finished_and_not_repeated() {
    let mut house = House::with(&scenario(), Effect::Once).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, Duration::from_secs(3_600));
    let session = house.session().await;
    house.say(session, "go").await;
    gate.begun().await;
    worker.signal(Signal::TERM);
    gate.go().await;
    assert_eq!(worker.ended().await, 0);
    assert_eq!(outcomes(&house.log(session).await), [Outcome::Done], "its result is durable");
    let _next = Child::worker(&house, Duration::from_secs(1));
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!((outcomes(&log), said(&log)), (vec![Outcome::Done], vec!["done".to_owned()]));
    assert_eq!((gate.effects().len(), failures(&log)), (1, 0));
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn p_13_a_tool_that_outlasts_the_grace_time_is_given_up_and_unknown() {
    let mut house = House::with(&scenario(), Effect::Once).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, Duration::from_millis(50));
    let session = house.session().await;
    house.say(session, "go").await;
    let command = gate.begun().await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await, 0);
    assert!(!crate::children::lives(&command), "nothing of it is left behind");
    let _next = Child::worker(&house, Duration::from_secs(1));
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(outcomes(&log), [Outcome::Unknown], "it may have happened, and nobody repeats it");
    assert_eq!((gate.effects().len(), failures(&log)), (1, 0));
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_082_a_model_stream_that_outlasts_the_grace_time_is_dropped_and_asked_again() {
    let scenario =
        "[[turn]]\nattempts = [{ do = [{ say = \"hel\" }, { stall = \"forever\" }] }]\ndo = [{ say = \"hello\" }]\n";
    let mut house = House::new(scenario).await;
    let worker = Child::worker(&house, Duration::from_millis(50));
    let session = house.session().await;
    house.say(session, "go").await;
    house.until_log(session, |log| log.iter().any(|event| matches!(event.body, Body::SpanStart { .. }))).await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await, 0);
    // The attempt does not count, so the model is asked as if for the first time; that scenario stalls.
    std::fs::write(house.scenario_file(), "[[turn]]\ndo = [{ say = \"hello\" }]\n").unwrap();
    let _next = Child::worker(&house, Duration::from_secs(1));
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["hello"]);
    let attempts: Vec<u32> = log
        .iter()
        .filter_map(|event| match event.body {
            Body::SpanStart { attempt, .. } => Some(attempt),
            _ => None,
        })
        .collect();
    assert_eq!((attempts, failures(&log)), (vec![1, 1], 0));
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn p_13_a_deploy_leaves_a_waiting_session_alone() {
    let scenario =
        "[[turn]]\ndo = [{ call = \"sleep\", input = { seconds = 3600 } }]\n[[turn]]\ndo = [{ say = \"woken\" }]\n";
    let mut house = House::new(scenario).await;
    let worker = Child::worker(&house, Duration::from_secs(3_600));
    let session = house.session().await;
    house.say(session, "go").await;
    house.until(session, Phase::Waiting).await;
    let before = house.log(session).await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await, 0, "nobody waits an hour for it");
    assert_eq!(house.log(session).await, before);
    let _next = Child::worker(&house, Duration::from_secs(1));
    house.say(session, "wake up").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["woken"]);
    check(&log);
}
