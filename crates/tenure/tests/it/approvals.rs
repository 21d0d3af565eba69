//! approvals, approve, deny, and results of custom tools and questions.

use crate::house::{House, redacted};
use serde_json::Value;

const WRITE_TWICE: &str = r#"
[[turn]]
do = [
  { call = "write", input = { file_path = "a.txt", content = "a" } },
  { call = "write", input = { file_path = "b.txt", content = "b" } },
]
[[turn]]
do = [{ say = "then" }]
"#;

const AGENT: &str = r#"
name = "writer"
model = "script/twice"
tools = [{ type = "agent_toolset_20260401", configs = [{ name = "write", permission_policy = { type = "always_ask" } }] }]
"#;

/// A session that waits for a yes to two calls.
fn asking() -> (House, String) {
    let house = House::dev().scenario("twice", WRITE_TWICE);
    house.write("writer.toml", AGENT);
    house.run(&["agents", "apply", "writer.toml"]).ok();
    let ran = house.run(&["run", "--detach", "--agent", "writer", "--title", "two files", "go"]).ok();
    let session = ran.stdout.trim().to_owned();
    house.until_idle(&session);
    (house, session)
}

fn until_end_of_turn(house: &House, session: &str) -> Vec<Value> {
    house.until(session, |event| event["stop_reason"]["type"] == "end_turn")
}

#[test]
fn approvals_list_what_waits_with_enough_to_decide() {
    let (house, session) = asking();
    let ran = house.run(&["approvals"]).ok();
    let shown = redacted(&ran.stdout, &[&session]);
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["SESSION", "TOOL", "INPUT", "ASKED", "TITLE"]);
    assert_eq!(lines[1], ["…TAIL", "write", "a.txt", "SPAN", "ago", "two", "files"]);
    assert_eq!(lines[2], ["…TAIL", "write", "b.txt", "SPAN", "ago", "two", "files"]);
    assert!(ran.stderr.starts_with("hint: tenure approve SESSION"), "{ran:?}");
    let listed = house.run(&["approvals", "--json"]).ok().json();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|call| call["session_id"] == session.as_str() && call["kind"] == "approval"));
    assert!(house.run(&["ps"]).ok().stderr.contains("hint: tenure approvals"));
}

#[test]
fn of_several_calls_the_one_that_is_meant_must_be_named() {
    let (house, session) = asking();
    let error = redacted(&house.run(&["approve", &session]).fails(2), &[&session]);
    assert!(
        error.starts_with("error: 2 calls of …TAIL wait\n  sevt_ID  write  a.txt\n  sevt_ID  write  b.txt\n"),
        "{error}"
    );
    assert!(error.contains("fix:   --call CALL, or --all"), "{error}");
    let listed = house.run(&["approvals", "--json"]).ok().json();
    let call = listed[0]["tool_use_id"].as_str().unwrap();
    let approved = house.run(&["approve", &session, "--call", &call[call.len() - 6..]]).ok();
    assert_eq!(redacted(&approved.stdout, &[&session]), "Approved once. …TAIL is runnable.\n");
    assert_eq!(approved.stderr, "write   a.txt\n  content:\n    a\n", "a person sees all of what is allowed");
    // While the first call runs, the session is not parked, and the list shows what is.
    crate::house::until(|| house.run(&["approvals", "--json"]).ok().json().len() == 1);
    let denied = house.run(&["deny", &session, "--because", "no b"]).ok();
    assert_eq!(redacted(&denied.stdout, &[&session]), "Denied. …TAIL is runnable; the model is told.\n");
    let events = until_end_of_turn(&house, &session);
    let result = |call: &Value| {
        let of_call =
            |event: &&Value| event["type"] == "agent.tool_result" && event["tool_use_id"] == call["tool_use_id"];
        events.iter().find(of_call).unwrap()
    };
    assert_eq!(result(&listed[0])["is_error"], false);
    assert_eq!(result(&listed[1])["is_error"], true);
    assert!(result(&listed[1])["content"].to_string().contains("no b"), "{events:#?}");
    assert_eq!(house.run(&["ls", &session]).ok().stdout, "a.txt\n");
    let again = house.run(&["approve", &session]).fails(3);
    assert!(again.contains("no call of …") && again.contains("code: approval_not_found"), "{again}");
}

#[test]
fn all_calls_of_a_session_are_answered_at_once() {
    let (house, session) = asking();
    let reply = house.run(&["approve", &session, "--all", "--json"]).ok().one();
    assert_eq!(reply["data"].as_array().unwrap().len(), 2);
    until_end_of_turn(&house, &session);
    assert_eq!(house.run(&["ls", &session]).ok().stdout, "a.txt\nb.txt\n");
}

#[test]
fn a_custom_tool_and_a_question_are_answered_with_a_result() {
    let scenario = r#"
[[turn]]
do = [{ call = "lookup", input = { name = "x" } }]
[[turn]]
do = [{ say = "got {{result}}" }, { call = "ask_user", input = { question = "Which colour?" } }]
[[turn]]
do = [{ say = "then {{result}}" }]
"#;
    let house = House::dev().scenario("custom", scenario);
    house.write("custom.toml", "name = \"custom\"\nmodel = \"script/custom\"\ntools = [{ type = \"tenure_toolset\" }, { type = \"custom\", name = \"lookup\", description = \"looks up\", input_schema = { type = \"object\" } }]\n");
    house.run(&["agents", "apply", "custom.toml"]).ok();
    let session = house.run(&["run", "--detach", "--agent", "custom", "go"]).ok().stdout.trim().to_owned();
    house.until_idle(&session);
    // The command that `why` prints works, with the words filled in.
    let answer = |text: &str| {
        let why = house.run(&["why", &session]).ok().stdout;
        let (_, command) =
            why.lines().find_map(|line| line.split_once("--result-for ")).unwrap_or_else(|| panic!("{why}"));
        let call = command.split_whitespace().next().unwrap();
        house.run(&["send", &session, text, "--result-for", call]).ok();
    };
    let wrong = house.run(&["approve", &session]).fails(3);
    assert!(wrong.contains("waits for an approval"), "{wrong}");
    answer("42");
    house.until(&session, |event| event["type"] == "agent.message" && event["content"][0]["text"] == "got 42");
    house.until(&session, |event| event["name"] == "ask_user");
    let mut waiting = || house.run(&["approvals", "--json"]).ok().json().iter().any(|call| call["name"] == "ask_user");
    crate::house::until(&mut waiting);
    assert!(house.run(&["approvals"]).ok().stdout.contains("Which colour?"));
    answer("blue");
    house.until(&session, |event| event["type"] == "agent.message" && event["content"][0]["text"] == "then blue");
    let unknown = house.run(&["send", &session, "x", "--result-for", "zzzzzz"]).fails(3);
    assert!(unknown.contains("no call of …") && unknown.contains("zzzzzz"), "{unknown}");
}
