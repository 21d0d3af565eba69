//! Workers that lost their leases and do not know it yet (promise P5, hazards Z-11, Z-12).

use crate::children::{Child, EFFECT_AND_WAIT, FENCED, Gate, lives};
use crate::house::{House, check, said};
use rustix::process::Signal;
use std::time::Duration;
use tenure_core::*;
use tenure_store::Store as _;

const GRACE: Duration = Duration::from_secs(1);

fn scenario() -> String {
    format!(
        "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}; echo over >> {{f}}/effects' }} }}]\n\
         [[turn]]\ndo = [{{ say = \"done\" }}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn o_039_a_frozen_worker_that_wakes_up_changes_nothing_and_its_tool_is_gone() {
    let mut house = House::with(&scenario(), Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let frozen = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "go").await;
    let old = gate.begun().await;
    frozen.signal(Signal::STOP);
    let before = house.log(session).await;
    let _second = Child::worker(&house, GRACE);
    let new = gate.begun().await;
    assert!(lives(&new) && !lives(&old), "z_11: the old incarnation is ended before the first command of the new one");
    // It wakes up in the middle of the second worker's call, and finds that it is nobody any more.
    frozen.signal(Signal::CONT);
    assert_eq!(frozen.ended().await, FENCED);
    assert!(lives(&new), "it does not touch what is not its own");
    gate.go().await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(log[..before.len()], before[..]);
    let results = log.iter().filter(|event| matches!(event.body, Body::AgentToolResult { .. })).count();
    assert_eq!((results, said(&log)), (1, vec!["done".to_owned()]), "one canonical result");
    assert_eq!(gate.effects(), ["run", "run", "over"], "the first was stopped on the way");
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn z_12_a_worker_that_cannot_reach_its_store_ends_its_commands_and_itself() {
    let mut house = House::with(&scenario(), Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    // A grace time is for workers that still have their leases.
    let worker = Child::worker(&house, Duration::from_secs(3_600));
    let session = house.session().await;
    house.say(session, "go").await;
    let command = gate.begun().await;
    let before = house.log(session).await;
    // Nobody can write any more, and so no heartbeat is stored.
    let lock = Child::locker(&house);
    assert_eq!(worker.ended().await, FENCED);
    assert!(!lives(&command), "nothing runs without a lease");
    assert_eq!(house.log(session).await, before);
    lock.kill();
    let _next = Child::worker(&house, GRACE);
    gate.begun().await;
    gate.go().await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["done"]);
    assert_eq!(gate.effects(), ["run", "run", "over"]);
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_054_a_session_of_a_frozen_worker_is_cancelled_when_its_lease_ends_and_its_tool_is_killed() {
    let mut house = House::with(&scenario(), Effect::Once).await;
    let mut gate = Gate::new(&house);
    let frozen = Child::worker(&house, GRACE);
    let session = house.session().await;
    house.say(session, "go").await;
    let command = gate.begun().await;
    frozen.signal(Signal::STOP);
    house.send(session, InputBody::Cancel).await;
    let _second = Child::worker(&house, GRACE);
    let view = house.until(session, Phase::Cancelled).await;
    assert!(!lives(&command), "gone before the last event");
    assert_eq!(view.session.position, Position::Ended(End::Cancelled { processes: "killed".to_owned() }));
    frozen.signal(Signal::CONT);
    assert_eq!(frozen.ended().await, FENCED);
    let log = house.log(session).await;
    assert!(matches!(log.last().unwrap().body, Body::StatusTerminated { .. }), "late results are dropped");
    assert_eq!(gate.effects(), ["run"]);
    check(&log);
    assert_eq!(house.store.counts().await.unwrap().leased, 0);
}
