//! Steps that end their worker, and deploys that only look like it (promise P13, cases O-046, O-047).

use crate::children::{Child, EFFECT_AND_WAIT, Gate, until_gone};
use crate::house::{House, check, said};
use rustix::process::Signal;
use std::time::Duration;
use tenure_core::*;

const GRACE: Duration = Duration::from_millis(50);

/// Restarts of one run, more than would set it aside.
const RESTARTS: usize = 5;

fn step() -> String {
    format!("[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}' }} }}]\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn o_046_a_step_that_kills_its_worker_three_times_is_set_aside_and_can_be_cancelled() {
    let mut house = House::with(&step(), Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let session = house.session().await;
    house.say(session, "go").await;
    for _ in 0..MAX_LOSSES {
        let worker = Child::worker(&house, GRACE);
        let command = gate.begun().await;
        worker.kill();
        // Its sandbox dies by itself, soon after the worker; until then it would take what is meant for others.
        until_gone(&command).await;
    }
    let _next = Child::worker(&house, GRACE);
    let view = house.until(session, Phase::NeedsYou).await;
    let why = explain(&view.session);
    assert!(why.kind == "set_aside" && why.text.contains("lost 3 times in a row"), "{why:?}");
    assert_eq!(gate.effects().len(), 3, "it is not handed out any more");
    // Another session on the same worker is not blamed.
    let other = house.session().await;
    house.say(other, "go").await;
    gate.begun().await;
    gate.go().await;
    house.until(other, Phase::Idle).await;
    // Whoever mended it says so, and it goes on where it was.
    house.send(session, InputBody::Resume).await;
    gate.begun().await;
    house.send(session, InputBody::Cancel).await;
    house.until(session, Phase::Cancelled).await;
    check(&house.log(session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_046_cancel_works_between_two_deaths() {
    let mut house = House::with(&step(), Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let session = house.session().await;
    house.say(session, "go").await;
    for _ in 0..2 {
        let worker = Child::worker(&house, GRACE);
        gate.begun().await;
        worker.kill();
    }
    house.send(session, InputBody::Cancel).await;
    let _next = Child::worker(&house, GRACE);
    house.until(session, Phase::Cancelled).await;
    assert_eq!(gate.effects().len(), 2);
    check(&house.log(session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_047_deploys_in_the_middle_of_a_step_never_count() {
    let scenario = format!("{}[[turn]]\ndo = [{{ say = \"done\" }}]\n", step());
    let mut house = House::with(&scenario, Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let session = house.session().await;
    house.say(session, "go").await;
    for _ in 0..RESTARTS {
        let worker = Child::worker(&house, GRACE);
        gate.begun().await;
        worker.signal(Signal::TERM);
        assert_eq!(worker.ended().await, 0);
    }
    let _last = Child::worker(&house, GRACE);
    gate.begun().await;
    gate.go().await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["done"]);
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_047_kills_between_which_the_session_moves_never_add_up() {
    let scenario: String =
        (0..RESTARTS).map(|step_number| step().replace("; cat", &format!("; : {step_number}; cat"))).collect();
    let scenario = scenario + "[[turn]]\ndo = [{ say = \"done\" }]\n";
    let mut house = House::with(&scenario, Effect::Idempotent).await;
    let mut gate = Gate::new(&house);
    let session = house.session().await;
    house.say(session, "go").await;
    let mut worker = Child::worker(&house, GRACE);
    for _ in 0..RESTARTS {
        gate.begun().await;
        worker.kill();
        worker = Child::worker(&house, GRACE);
        gate.begun().await;
        gate.go().await;
    }
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log), ["done"]);
    check(&log);
}
