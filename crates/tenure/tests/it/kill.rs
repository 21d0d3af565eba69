//! kill -9 in the middle of work, seen from the command line: nothing is lost, nothing comes twice.

use crate::house::{House, Process, is_running, send, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// The first run of the command never ends; a second one does.
const KILLED: &str = r#"
[[turn]]
do = [
  { say = "I start." },
  { call = "bash", input = { command = "echo ran >> runs; if [ -e started ]; then echo again; else touch started; sleep 600; fi" } },
]
[[turn]]
do = [{ say = "The result was: {{result}}" }]
"#;

/// The command ends when somebody outside makes a file.
const HELD: &str = r#"
[[turn]]
do = [
  { say = "I wait for the file." },
  { call = "bash", input = { command = "touch started; until [ -e go ]; do sleep 0.05; done; echo went" } },
]
[[turn]]
do = [{ say = "It came: {{result}}", pieces = 5, delay_ms = 20 }]
"#;

/// The answer to the second message is too long a conversation; the summary takes its time.
const SUMMARISED: &str = r#"
[[turn]]
when = { user_contains = "begin!" }
do = [{ say = "LONG" }]
[[turn]]
when = { user_contains = "Stop here for a moment" }
do = [{ say = "we began", pieces = 8, delay_ms = 250 }]
[[turn]]
when = { user_contains = "This conversation was long" }
do = [{ say = "done" }]
[[turn]]
do = [{ say = "never" }]
attempts = [{ times = 9, status = 400, type = "invalid_request_error", message = "prompt is too long: 9000 tokens > 8000 maximum" }]
"#;

#[test]
fn o_026_a_worker_that_is_killed_in_the_middle_of_a_summary_leaves_one_compaction_and_a_whole_history() {
    let text = SUMMARISED.replace("LONG", &"x".repeat(60_000));
    let mut house = House::dev().scenario("summarised", &text);
    let session = house.detached("script/summarised", "begin!");
    house.until_idle(&session);
    house.run(&["send", &session, "again"]).ok();
    let is_summary = |events: &[Value]| {
        let starts = of_type(events, "span.model_request_start");
        let ends = of_type(events, "span.model_request_end");
        starts.len() == 3 && ends.len() == 2
    };
    until(|| is_summary(&house.run(&["logs", &session, "--json"]).ok().json()));
    let worker = house.worker_of_dev();
    send(Signal::KILL, worker);
    let events =
        house.until(&session, |event| event["type"] == "agent.message" && event["content"][0]["text"] == "done");
    assert!(!is_running(worker));
    has_no_gap_and_no_repeat(&events);
    assert_eq!(of_type(&events, "agent.thread_context_compacted").len(), 1, "{events:#?}");
    let compacted = of_type(&events, "agent.thread_context_compacted")[0];
    assert_eq!(compacted["summary"], "we began", "{compacted}");
    assert!(compacted["after"]["tokens"].as_u64() < compacted["before"]["tokens"].as_u64(), "{compacted}");
    // The lost attempt is closed and charged, and nothing of it was kept.
    let lost = of_type(&events, "span.model_request_end").into_iter().filter(|end| end["is_error"] == true).count();
    assert_eq!(lost, 2, "the refused request and the lost summary: {events:#?}");
}

fn agent(effect: &str) -> String {
    format!(
        "name = \"{effect}\"\nmodel = \"script/killed\"\ntools = [{{ type = \"agent_toolset_20260401\", configs = [{{ name = \"bash\", effect = \"{effect}\" }}] }}]\n"
    )
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// Kills the worker of `dev` under a command and returns the events of the whole turn.
fn killed_under_a_command(effect: &str) -> (House, String, Vec<Value>) {
    let mut house = House::dev().scenario("killed", KILLED);
    house.write("agent.toml", agent(effect));
    house.run(&["agents", "apply", "agent.toml"]).ok();
    let session = house.run(&["run", "--detach", "--agent", effect, "go"]).ok().stdout.trim().to_owned();
    house.until_file(&session, "started");
    let worker = house.worker_of_dev();
    send(Signal::KILL, worker);
    let events = house.until_idle(&session);
    assert!(!is_running(worker));
    assert_ne!(house.worker_of_dev(), worker, "dev keeps a worker alive");
    (house, session, events)
}

#[test]
fn a_worker_of_dev_that_is_killed_under_an_idempotent_command_leaves_exactly_one_result() {
    let (house, session, events) = killed_under_a_command("idempotent");
    let (calls, results) = (of_type(&events, "agent.tool_use"), of_type(&events, "agent.tool_result"));
    assert_eq!((calls.len(), results.len()), (1, 1), "{events:#?}");
    assert_eq!(results[0]["tool_use_id"], calls[0]["id"]);
    assert_eq!(of_type(&events, "agent.message").len(), 2, "no finished step ran twice: {events:#?}");
    assert_eq!(of_type(&events, "environment.reset").len(), 1);
    assert!(events.last().unwrap()["stop_reason"]["type"] == "end_turn");
    let runs = fs::read_to_string(house.in_workspace(&session, "runs")).unwrap();
    assert_eq!(runs, "ran\nran\n", "the killed command ran again");
    let shown = house.run(&["logs", &session]).ok().stdout;
    assert!(shown.contains("environment.reset") && shown.contains("The result was: again"), "{shown}");
}

#[test]
fn o_025_crash_between_tool_call_and_tool_result() {
    let (house, session, events) = killed_under_a_command("once");
    let results = of_type(&events, "agent.tool_result");
    assert_eq!((results.len(), &results[0]["outcome"]), (1, &"unknown".into()), "{events:#?}");
    let runs = fs::read_to_string(house.in_workspace(&session, "runs")).unwrap();
    assert_eq!(runs, "ran\n", "a call that must not happen twice is not repeated");
    let said = of_type(&events, "agent.message")[1]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("unknown"), "the model is told: {said}");
    let shown = house.run(&["logs", &session, "--type", "tool_result"]).ok().stdout;
    assert!(
        shown.contains("agent.tool_result             unknown: The outcome of this bash call"),
        "a person is told: {shown}"
    );
}

/// The second command of the first run never ends; a second run of it does.
const TWO: &str = r#"
[[turn]]
do = [
  { call = "bash", input = { command = "echo one >> runs; echo first" } },
  { call = "bash", input = { command = "echo two >> runs; if [ -e started ]; then echo second; else touch started; sleep 600; fi" } },
]
[[turn]]
do = [{ say = "{{result}}" }]
"#;

#[test]
fn o_025_of_two_calls_the_finished_one_is_not_run_again_and_the_model_gets_both_results() {
    let mut house = House::dev().scenario("killed", TWO);
    house.write("agent.toml", agent("idempotent"));
    house.run(&["agents", "apply", "agent.toml"]).ok();
    let session = house.run(&["run", "--detach", "--agent", "idempotent", "go"]).ok().stdout.trim().to_owned();
    house.until_file(&session, "started");
    let durable = house.run(&["logs", &session, "--json"]).ok().json();
    let texts = |events: &[Value]| -> Vec<(Value, Value)> {
        let results = of_type(events, "agent.tool_result").into_iter();
        results.map(|result| (result["tool_use_id"].clone(), result["content"][0]["text"].clone())).collect()
    };
    let calls: Vec<Value> = of_type(&durable, "agent.tool_use").into_iter().map(|call| call["id"].clone()).collect();
    assert_eq!(texts(&durable), [(calls[0].clone(), "first\n".into())], "the first result is stored by now");
    send(Signal::KILL, house.worker_of_dev());
    let events = house.until_idle(&session);
    has_no_gap_and_no_repeat(&events);
    assert_eq!(
        texts(&events),
        [(calls[0].clone(), "first\n".into()), (calls[1].clone(), "second\n".into())],
        "one result for each call, in their order"
    );
    let runs = fs::read_to_string(house.in_workspace(&session, "runs")).unwrap();
    assert_eq!(runs, "one\ntwo\ntwo\n", "what was finished is not run again");
    // The request is checked before it is sent: without its pairs there would be no answer.
    assert_eq!(of_type(&events, "agent.message")[0]["content"][0]["text"], "second\n");
}

/// All events of a follower until it ends; its lines are JSON.
fn rest(follower: &mut Process, events: &mut Vec<Value>) {
    while let Some(line) = follower.line() {
        events.push(serde_json::from_str(&line).unwrap());
    }
}

fn until_call(follower: &mut Process, events: &mut Vec<Value>) {
    while let Some(line) = follower.line() {
        events.push(serde_json::from_str(&line).unwrap());
        if events.last().unwrap()["type"] == "agent.tool_use" {
            return;
        }
    }
    panic!("the call never came: {events:#?}");
}

#[track_caller]
fn has_no_gap_and_no_repeat(events: &[Value]) {
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
}

#[test]
fn followers_of_a_killed_server_pick_up_without_gap_or_repeat() {
    let mut house = House::apart().scenario("held", HELD);
    let mut run = house.start(&["run", "--json", "--model", "script/held", "go"]);
    let session: Value = serde_json::from_str(&run.line().unwrap()).unwrap();
    let session = session["id"].as_str().unwrap().to_owned();
    let mut logs = house.start(&["logs", &session, "--follow", "--json"]);
    let (mut run_events, mut log_events) = (Vec::new(), Vec::new());
    until_call(&mut run, &mut run_events);
    until_call(&mut logs, &mut log_events);
    house.until_file(&session, "started");
    house.kill_server();
    // The worker goes on without a server: the result is committed while nobody can follow.
    fs::write(house.in_workspace(&session, "go"), "").unwrap();
    house.start_server(&["serve"]);
    rest(&mut run, &mut run_events);
    assert_eq!(run.code(), 0, "{run_events:#?}");
    house.run(&["cancel", &session]).ok();
    rest(&mut logs, &mut log_events);
    assert_eq!(logs.code(), 0, "{log_events:#?}");
    let stored = house.run(&["logs", &session, "--json"]).ok().json();
    has_no_gap_and_no_repeat(&stored);
    // An input that waits is shown once without a number; it is not a row yet.
    log_events.retain(|event| event["seq"].is_u64());
    assert_eq!(log_events, stored, "a follower of the log sees what is stored");
    run_events.retain(|event| event["seq"].is_u64());
    has_no_gap_and_no_repeat(&run_events);
    assert_eq!(run_events[..], stored[..run_events.len()], "a follower of the run sees what is stored");
    let messages = of_type(&run_events, "agent.message");
    assert_eq!(messages[1]["content"][0]["text"], "It came: went\n");
}

#[test]
fn followers_pick_up_after_server_and_worker_were_killed_under_a_command() {
    let mut house = House::apart().scenario("held", HELD);
    let mut run = house.start(&["run", "--json", "--model", "script/held", "go"]);
    let session: Value = serde_json::from_str(&run.line().unwrap()).unwrap();
    let session = session["id"].as_str().unwrap().to_owned();
    let mut events = Vec::new();
    until_call(&mut run, &mut events);
    house.until_file(&session, "started");
    house.kill_server();
    house.kill_workers();
    house.start_server(&["serve"]);
    house.start_worker();
    rest(&mut run, &mut events);
    assert_eq!(run.code(), 0, "{events:#?}");
    events.retain(|event| event["seq"].is_u64());
    has_no_gap_and_no_repeat(&events);
    assert_eq!(events, house.run(&["logs", &session, "--json"]).ok().json());
    let results = of_type(&events, "agent.tool_result");
    assert_eq!((results.len(), &results[0]["outcome"]), (1, &"unknown".into()), "{events:#?}");
}

#[test]
fn o_082_deploy_kills_the_turn() {
    // SIGTERM in the middle of a tool: the step ends within the grace, the next worker goes on.
    let mut house = House::dev().scenario("held", HELD);
    let session = house.detached("script/held", "go");
    house.until_file(&session, "started");
    let worker = house.worker_of_dev();
    send(Signal::TERM, worker);
    fs::write(house.in_workspace(&session, "go"), "").unwrap();
    until(|| !is_running(worker));
    let events = house.until_idle(&session);
    let results = of_type(&events, "agent.tool_result");
    assert_eq!((results.len(), &results[0]["is_error"]), (1, &false.into()), "{events:#?}");
    has_no_gap_and_no_repeat(&events);
}
