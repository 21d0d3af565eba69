//! A conversation that becomes too long for its model.

use crate::house::{House, check, said};
use tenure_core::failure::Class;
use tenure_core::*;

/// The model refuses the second message as too long, and answers it once there is a summary.
fn scenario(summary: &str) -> String {
    let long = "x".repeat(60_000);
    format!(
        r#"
[[turn]]
when = {{ user_contains = "begin!" }}
do = [{{ say = "{long}" }}]
[[turn]]
when = {{ user_contains = "Stop here for a moment" }}
do = [{{ say = "{summary}" }}]
[[turn]]
when = {{ user_contains = "This conversation was long" }}
do = [{{ say = "done" }}]
[[turn]]
when = {{ user_contains = "once more" }}
do = [{{ say = "done again" }}]
[[turn]]
do = [{{ say = "never" }}]
attempts = [{{ times = 9, status = 400, type = "invalid_request_error", message = "prompt is too long: 9000 tokens > 8000 maximum" }}]
"#
    )
}

fn compactions(log: &[Event]) -> usize {
    log.iter().filter(|event| matches!(event.body, Body::ContextCompacted { .. })).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn o_019_a_refused_conversation_is_summarised_and_goes_on_with_another_worker_too() {
    let mut house = House::new(&scenario("we began")).await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "begin!").await;
    house.until(session, Phase::Idle).await;
    house.say(session, "again").await;
    let view = house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log).last().unwrap(), "done");
    assert_eq!(compactions(&log), 1);
    assert!(view.session.context_from_seq > 1);
    check(&log);
    // Whoever comes later reads the shorter context from the store.
    worker.stop().await;
    let worker = house.worker().await;
    house.say(session, "once more").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(said(&log).last().unwrap(), "done again");
    assert_eq!(compactions(&log), 1);
    check(&log);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_019_a_summary_as_long_as_the_conversation_parks_with_a_reason() {
    let mut house = House::new(&scenario(&"y".repeat(70_000))).await;
    let worker = house.worker().await;
    let session = house.session().await;
    house.say(session, "begin!").await;
    house.until(session, Phase::Idle).await;
    house.say(session, "again").await;
    let view = house.until(session, Phase::NeedsYou).await;
    assert!(matches!(view.session.wait.unwrap().kind, WaitKind::Upstream { class: Class::Overflow }));
    let log = house.log(session).await;
    assert_eq!(compactions(&log), 0);
    let begun = log.iter().filter(|event| matches!(event.body, Body::SpanStart { .. })).count();
    assert_eq!(begun, 3, "the first answer, the refused request, and one summary");
    worker.stop().await;
}
