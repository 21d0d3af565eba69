//! What the guide on models says about refusals of providers, seen from the command line.

use crate::house::House;
use serde_json::Value;

/// A session whose first model call is refused with this status.
fn refused(status: u16) -> (House, String, Value) {
    let text = format!("[[turn]]\nattempts = [{{ status = {status} }}]\ndo = [{{ say = \"recovered\" }}]\n");
    let house = House::dev().scenario("refused", &text);
    let session = house.detached("script/refused", "go");
    let events = house.until(&session, |event| event["type"] == "session.wait_started");
    let wait = events.last().unwrap()["wait"].clone();
    (house, session, wait)
}

#[track_caller]
fn waits_for_a_person_and_goes_on(status: u16, kind: &str, expected: &str) {
    let (house, session, wait) = refused(status);
    assert_eq!(wait["kind"], kind, "{status}: {wait}");
    let why = house.run(&["why", &session]).ok().stdout;
    assert!(why.contains(expected) && why.contains("last error ") && why.contains("tenure resume "), "{status}: {why}");
    // The operator mends it: here, the file that plays the provider, which is read at every call.
    let mended = "[[turn]]\ndo = [{ say = \"recovered\" }]\n";
    std::fs::write(house.path("scenarios/refused.toml"), mended).unwrap();
    house.run(&["resume", &session]).ok();
    let events = house.until(&session, |event| event["type"] == "agent.message");
    assert_eq!(events.last().unwrap()["content"][0]["text"], "recovered");
}

#[test]
fn a_refused_key_an_empty_account_and_an_unknown_model_wait_for_a_person() {
    waits_for_a_person_and_goes_on(401, "condition", "the provider does not accept the key");
    waits_for_a_person_and_goes_on(402, "condition", "the account has no credit left");
    waits_for_a_person_and_goes_on(404, "condition", "the provider does not know the model");
}

#[test]
fn too_many_requests_and_an_overload_go_on_by_themselves() {
    for status in [429, 529, 503] {
        let (house, session, wait) = refused(status);
        assert!(wait["until"].is_string(), "{status}: {wait}");
        let events = house.until(&session, |event| event["type"] == "agent.message");
        assert_eq!(events.last().unwrap()["content"][0]["text"], "recovered");
    }
}

#[test]
fn a_run_that_waits_for_a_person_at_the_provider_says_so() {
    let text = "[[turn]]\nattempts = [{ status = 401 }]\ndo = [{ say = \"recovered\" }]\n";
    let house = House::dev().scenario("refused", text);
    let ran = house.run(&["run", "--model", "script/refused", "--timeout", "2s", "go"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(ran.stderr.contains("waits: condition: credential"), "{ran:?}");
    assert!(ran.stderr.contains(" says what to mend; then tenure resume "), "{ran:?}");
}
