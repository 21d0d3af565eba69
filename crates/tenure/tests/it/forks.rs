//! `tenure fork` with real processes: the fork works on files of its own, and both go on.

use crate::house::House;
use std::fs;

/// Writes a file in the first turn, changes it in the second, and looks at it in each later one.
const WORK: &str = r#"
[[turn]]
do = [{ call = "bash", input = { command = "echo first > state.txt; mkdir -p deep; echo kept > deep/kept.txt" } }]
[[turn]]
do = [{ say = "the first turn is over" }]
[[turn]]
do = [{ call = "bash", input = { command = "echo second > state.txt; rm -r deep" } }]
[[turn]]
do = [{ say = "the second turn is over" }]
"#;

fn seq_of(events: &[serde_json::Value], kind: &str) -> u64 {
    events.iter().find(|event| event["type"] == kind).and_then(|event| event["seq"].as_u64()).unwrap()
}

#[test]
fn p_17_a_fork_has_files_of_its_own_and_works_on_after_its_worker_was_killed() {
    let mut house = House::apart().scenario("work", WORK);
    let session = house.detached("script/work", "go");
    let first = house.until_idle(&session);
    let idle = seq_of(&first, "session.status_idle").to_string();
    house.run(&["send", &session, "more"]).ok();
    house.until(&session, |event| event["type"] == "session.status_idle" && event["seq"].as_u64() > idle.parse().ok());
    assert_eq!(fs::read_to_string(house.in_workspace(&session, "state.txt")).unwrap(), "second\n");

    let fork = house.run(&["fork", &session, "--at", &idle, "--title", "from the first turn"]).ok();
    let fork_id = fork.stdout.trim().to_owned();
    assert!(fork_id.starts_with("sesn_") && fork.stderr.contains(&format!("at event {idle}")), "{fork:?}");
    assert_eq!(house.run(&["cat", &format!("{fork_id}:state.txt")]).ok().stdout, "first\n");
    assert!(house.run(&["ps"]).ok().stdout.contains("from the first turn"));

    house.kill_workers();
    house.start_worker();
    // The scenario goes on where the shared conversation ends: the second turn runs here too.
    house.run(&["send", &fork_id, "more"]).ok();
    let log = house.until(&fork_id, |event| {
        event["type"] == "session.status_idle" && event["seq"].as_u64() > idle.parse::<u64>().ok().map(|seq| seq + 4)
    });
    let text = serde_json::to_string(&log).unwrap();
    assert!(text.contains("the second turn is over"), "{text}");
    assert_eq!(fs::read_to_string(house.in_workspace(&fork_id, "state.txt")).unwrap(), "second\n");
    assert!(!house.in_workspace(&fork_id, "deep").exists());

    // Removing where both come from leaves the fork whole.
    let before = house.run(&["logs", &fork_id, "--json"]).ok().stdout;
    let again = house.run(&["fork", &fork_id, "--at", "0", "--files", "latest", "--json"]).ok().one();
    assert_eq!(again["forked_from"]["at_seq"], 0);
    let files_only = again["id"].as_str().unwrap();
    assert_eq!(house.run(&["cat", &format!("{files_only}:state.txt")]).ok().stdout, "second\n");
    assert_eq!(house.run(&["logs", &fork_id, "--json"]).ok().stdout, before);
}

#[test]
fn what_cannot_be_forked_says_what_to_do() {
    let house = House::dev();
    let session = house.detached("script/echo", "hello");
    house.until_idle(&session);
    for (given, code, expected) in [
        (&["fork", &session, "--at", "9999"][..], 2, "at_seq"),
        (&["fork", &session, "--files", "everything"], 2, "same, latest, none"),
        (&["fork", "zzzzzz"], 3, "error: "),
    ] {
        let error = house.run(given).fails(code);
        assert!(error.contains(expected), "{given:?}: {error}");
    }
    let replaced = house.run(&["fork", &session, "--replace", "hello again", "--json"]).ok().one();
    let fork = replaced["id"].as_str().unwrap();
    let log = house.until(fork, |event| event["type"] == "agent.message");
    assert!(serde_json::to_string(&log).unwrap().contains("hello again"));
}
