//! ps, why, logs, send, pause, resume, cancel, budget: their output for people and for programs.

use crate::house::{House, redacted};
use crate::upstream::{Says, Upstream};
use serde_json::Value;

const ASK: &str = r#"
[[turn]]
do = [{ say = "I write." }, { call = "write", input = { file_path = "a.txt", content = "hello" } }]
[[turn]]
do = [{ say = "written" }]
"#;

#[test]
fn an_empty_house_says_how_to_begin() {
    let house = House::dev();
    let ran = house.run(&["ps"]).ok();
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("", "No sessions.\nhint: tenure run \"…\" starts one; tenure demo shows the proof\n")
    );
    let ran = house.run(&["ps", "--json"]).ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    let ran = house.run(&["approvals"]).ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "Nothing needs you.\n"));
}

#[test]
fn ps_lists_sessions_the_newest_first() {
    let house = House::dev();
    let first = house.detached("script/echo", "the first");
    house.until_idle(&first);
    let second = house.detached("script/echo", "the second");
    house.until_idle(&second);
    let shown = house.run(&["ps"]).ok().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["SESSION", "STATE", "WHY", "AGE", "COST", "TITLE"]);
    assert!(lines[1].contains(&second[second.len() - 6..]) && lines[1].ends_with("the second"), "{shown}");
    assert!(lines[2].contains(&first[first.len() - 6..]) && lines[2].contains("· idle"), "{shown}");
    let listed = house.run(&["ps", "--json"]).ok().json();
    let ids: Vec<&str> = listed.iter().map(|session| session["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.as_str(), first.as_str()]);
    let limited = house.run(&["ps", "-n", "1"]).ok();
    assert_eq!(limited.stdout.lines().count(), 2);
    assert_eq!(limited.stderr, "The newest 1; more with -n.\n");
    assert_eq!(house.run(&["ps", "--phase", "failed", "--json"]).ok().stdout, "");
    let wrong = house.run(&["ps", "--phase", "sleepy"]).fails(2);
    assert!(wrong.contains("sleepy") && wrong.contains("needs_you"), "{wrong}");
}

#[test]
fn a_query_names_sessions_to_list_and_to_change() {
    let house = House::dev();
    let first = house.detached("script/echo", "nightly one");
    let second = house.detached("script/echo", "nightly two");
    let other = house.detached("script/echo", "another");
    for session in [&first, &second, &other] {
        house.until_idle(session);
    }
    let listed = house.run(&["ps", "--query", "nightly phase:idle age:<1h", "--json"]).ok().json();
    let ids: Vec<&str> = listed.iter().map(|session| session["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.as_str(), first.as_str()]);
    assert_eq!(house.run(&["ps", "--query", "weekly"]).ok().stderr, "No session matches.\n");
    let wrong = house.run(&["ps", "--query", "colour:red"]).fails(2);
    assert!(wrong.contains("there is no field"), "{wrong}");
    house.run(&["cancel", &first]).ok();
    let would = house.run(&["cancel", "--query", "nightly", "-n"]).ok().stdout;
    assert_eq!(
        would,
        "Would cancel 1 session (1 idle); 1 matching session ended already and is skipped. Nothing changed.\n"
    );
    assert_eq!(house.run(&["ps", "--query", "nightly phase:idle", "--json"]).ok().json().len(), 1);
    let refused = house.run(&["cancel", "--query", "nightly", "--most", "1"]).fails(2);
    assert!(refused.contains("more than 1 sessions match"), "{refused}");
    let done = house.run(&["cancel", "--query", "nightly"]).ok();
    assert!(done.stdout.contains(&second[second.len() - 6..]) && !done.stdout.contains(&other[other.len() - 6..]));
    assert_eq!(house.run(&["ps", "--query", "phase:cancelled", "--json"]).ok().json().len(), 2);
}

#[test]
fn workbench_prints_a_link_that_works_once() {
    let house = House::dev();
    let link = house.run(&["workbench"]).ok().stdout;
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/#login="), "{link}");
    let again = house.run(&["workbench", "--json"]).ok().json();
    assert_ne!(again[0]["url"], link.trim());
    assert_eq!(again[0]["type"], "login_link");
}

#[test]
fn ps_is_quiet_when_its_reader_goes_away() {
    let house = House::dev();
    let session = house.detached("script/echo", "hello");
    house.until_idle(&session);
    let mut shell = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_tenure");
    let command = format!("{program} logs {session}; {program} logs {session} --json | head -n 1 >/dev/null; echo end");
    shell.args(["-c", &command]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    shell.env("HOME", house.path("")).env("TENURE_DATA", house.path("data")).current_dir(house.path(""));
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("end\n"));
}

#[test]
fn why_says_what_an_idle_session_waits_for() {
    let house = House::dev();
    let session = house.detached("script/echo", "hello");
    house.until_idle(&session);
    let shown = redacted(&house.run(&["why", &session]).ok().stdout, &[&session]);
    assert_eq!(
        shown,
        "· idle. Finished its turn; it waits for a message.\n  since      SPAN  ago (TIME)\n  worker     none held\n  unblock    tenure send TAIL \"…\"   send a message\n"
    );
    let explained = house.run(&["why", &session, "--json"]).ok().one();
    assert_eq!(explained["phase"], "idle");
    assert_eq!(explained["unblock"][0]["method"], "POST");
}

#[test]
fn why_prints_commands_that_work_for_a_session_that_needs_a_person() {
    let house = House::dev().scenario("ask", ASK);
    house.write("asker.toml", "name = \"asker\"\nmodel = \"script/ask\"\ntools = [{ type = \"agent_toolset_20260401\", configs = [{ name = \"write\", permission_policy = { type = \"always_ask\" } }] }]\n");
    house.run(&["agents", "apply", "asker.toml"]).ok();
    let session = house.run(&["run", "--detach", "--agent", "asker", "go"]).ok().stdout.trim().to_owned();
    house.until_idle(&session);
    let shown = house.run(&["why", &session]).ok().stdout;
    assert!(shown.starts_with("◇ needs you. Needs an answer to: write.\n"), "{shown}");
    assert!(shown.contains("  asks       write  a.txt\n"), "{shown}");
    let command = shown.lines().find_map(|line| line.split_once("tenure approve ")).expect("a way out is printed").1;
    let words: Vec<&str> = command.split_whitespace().take(3).collect();
    let ran = house.run(&[&["approve"][..], &words].concat()).ok();
    assert!(ran.stdout.starts_with("Approved once."), "{ran:?}");
    house.until(&session, |event| event["type"] == "session.status_idle" && event["stop_reason"]["type"] == "end_turn");
    assert_eq!(house.run(&["cat", &format!("{session}:a.txt")]).ok().stdout, "hello");
}

#[test]
fn limits_that_the_machine_cannot_enforce_are_shown_in_logs_and_why() {
    let house = House::dev().scenario("ask", ASK);
    let session = house.detached("script/ask", "go");
    let events = house.until_idle(&session);
    let started = events.iter().find(|event| event["type"] == "environment.started").expect("a tool ran");
    let missing = started["missing"].as_array().unwrap();
    let logs = house.run(&["logs", &session, "--type", "environment.started"]).ok().stdout;
    let why = house.run(&["why", &session]).ok().stdout;
    let full = house.run(&["logs", &session, "--type", "environment.started", "--full"]).ok().stdout;
    assert!(logs.contains("driver namespace") && why.contains("driver namespace"), "{logs}\n{why}");
    for line in missing.iter().map(|line| line.as_str().unwrap()) {
        let name = line.split(':').next().unwrap();
        assert!(logs.contains(name) && why.contains(name) && full.contains(line), "{line}\n{logs}\n{why}\n{full}");
    }
}

#[test]
fn logs_print_one_line_per_event_and_filter_by_type_and_time() {
    let house = House::dev();
    let session = house.detached("script/echo", "hello");
    house.until_idle(&session);
    let shown = redacted(&house.run(&["logs", &session]).ok().stdout, &[&session]);
    let kinds: Vec<&str> = shown.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "user.message",
            "session.status_running",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
            "session.usage",
            "session.status_idle"
        ]
    );
    assert!(shown.starts_with("TIME      1  user.message                  hello\n"), "{shown}");
    let filtered = house.run(&["logs", &session, "--type", "message", "--json"]).ok().json();
    assert_eq!(filtered.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(house.run(&["logs", &session, "--since", "2100-01-01T00:00:00Z"]).ok().stdout, "");
    assert_eq!(house.run(&["logs", &session, "--since", "1h", "--json"]).ok().json().len(), 7);
    let wrong = house.run(&["logs", &session, "--since", "yesterday"]).fails(2);
    assert!(wrong.contains("\"yesterday\" is not a time") && wrong.contains("fix:"), "{wrong}");
}

#[test]
fn a_message_goes_on_with_the_session_and_a_repeat_with_its_key_is_harmless() {
    let house = House::dev();
    let session = house.detached("script/echo", "one");
    house.until_idle(&session);
    for _ in 0..2 {
        let ran = house.run(&["send", &session, "two", "--key", "k"]).ok();
        assert_eq!(redacted(&ran.stdout, &[&session]), "…TAIL: recorded\n");
        assert_eq!(redacted(&ran.stderr, &[&session]), "hint: tenure logs TAIL --follow\n");
    }
    let from_input = house.run_with_input(&["send", &session, "-", "--json"], "three").ok().one();
    assert_eq!(from_input["data"][0]["content"][0]["text"], "three");
    let mut turns = 0;
    let events =
        house.until(&session, |event| event["type"] == "agent.message" && event["content"][0]["text"] == "three");
    for event in &events {
        turns += usize::from(event["type"] == "user.message");
    }
    assert_eq!(turns, 3, "{events:#?}");
}

#[test]
fn a_session_is_held_goes_on_and_ends_by_command() {
    let house = House::dev();
    let session = house.detached("script/echo", "one");
    house.until_idle(&session);
    let held = house.run(&["pause", &session]).ok().stdout;
    assert_eq!(redacted(&held, &[&session]), "…TAIL: pause is recorded; a running step is finished first\n");
    house.run(&["send", &session, "two"]).ok();
    assert_eq!(house.run(&["why", &session, "--json"]).ok().one()["phase"], "paused");
    let shown = house.run(&["why", &session]).ok().stdout;
    assert!(shown.contains("‖ paused. ") && shown.contains("tenure resume "), "{shown}");
    let resumed = house.run(&["resume", &session, "--json"]).ok().one();
    assert_eq!(resumed["id"], session.as_str());
    let events =
        house.until(&session, |event| event["type"] == "agent.message" && event["content"][0]["text"] == "two");
    let place = |is_it: &dyn Fn(&Value) -> bool| events.iter().rposition(is_it).unwrap();
    let resumed_at = place(&|event| event["type"] == "session.updated" && event["update"] == "resumed");
    assert!(resumed_at < place(&|event| event["type"] == "span.model_request_start"), "{events:#?}");
    house.run(&["cancel", &session]).ok();
    let events = house.until(&session, |event| event["type"] == "session.status_terminated");
    assert_eq!(events.last().unwrap()["end"]["type"], "cancelled");
    assert!(house.run(&["ps"]).ok().stdout.contains("⊘ cancelled"));
}

#[test]
fn several_sessions_are_changed_each_by_itself() {
    let house = House::dev();
    let first = house.detached("script/echo", "one");
    let second = house.detached("script/echo", "two");
    house.until_idle(&first);
    house.until_idle(&second);
    let ran = house.run(&["cancel", &first, "zzzzzz", &second]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 2, "the others are cancelled all the same: {ran:?}");
    assert!(ran.stderr.contains("error: cannot cancel zzzzzz"), "{ran:?}");
}

#[test]
fn a_session_at_its_limit_waits_and_goes_on_with_a_higher_one() {
    let house = House::dev();
    house.write("small.toml", "name = \"small\"\nmodel = \"script/echo\"\nlimits = { steps = 1 }\n");
    house.run(&["agents", "apply", "small.toml"]).ok();
    let ran = house.run(&["run", "--agent", "small", "one"]).ok();
    assert_eq!(ran.stdout, "one\n");
    let session = house.run(&["ps", "--json"]).ok().one()["id"].as_str().unwrap().to_owned();
    house.run(&["send", &session, "two"]).ok();
    house.until(&session, |event| event["stop_reason"]["type"] == "budget_reached");
    let why = house.run(&["why", &session]).ok().stdout;
    let command = why.lines().find_map(|line| line.split_once("tenure budget ")).expect("a way out is printed").1;
    let words: Vec<&str> = command.split_whitespace().take(3).collect();
    assert_eq!(words[1..], ["--steps", "2"], "{why}");
    house.run(&[&["budget"][..], &words].concat()).ok();
    house.until(&session, |event| event["type"] == "agent.message" && event["content"][0]["text"] == "two");
    let none = house.run(&["budget", &session]).fails(2);
    assert!(none.contains("--usd"), "{none}");
}

/// A provider with a price, and a house in which its model can be called.
fn priced() -> (House, Upstream) {
    let upstream = Upstream::start(Says::Answers);
    let mut house = House::empty();
    let config = std::fs::read_to_string(house.path("tenure.toml")).unwrap();
    let prices = "prices = { m = { input = 3.0, output = 15.0 } }\n";
    house.write("tenure.toml", format!("{config}{}{prices}", upstream.config()));
    house.start_server(&["dev"]);
    (house, upstream)
}

#[test]
fn p_11_none_takes_the_limit_of_money_away_and_a_session_that_waits_at_it_goes_on() {
    let (house, upstream) = priced();
    let ran = house.run(&["run", "--model", "p/m", "--budget", "0.012", "one"]).ok();
    assert_eq!(ran.stdout, "done\n", "the first step was charged after it");
    let session = house.run(&["ps", "--json"]).ok().one()["id"].as_str().unwrap().to_owned();
    house.run(&["send", &session, "two"]).ok();
    house.until(&session, |event| event["stop_reason"]["type"] == "budget_reached");
    assert_eq!(upstream.asked().len(), 1, "nothing more is sent");
    // What a thousand tokens cost each way, at these prices.
    let view = house.run(&["ps", "--json"]).ok().one();
    assert_eq!((&view["usage"]["cost_usd"], &view["limits"]["cost_usd"]), (&0.018.into(), &0.012.into()), "{view:#}");
    house.run(&["budget", &session, "--usd", "none"]).ok();
    upstream.until_asked(2);
    house.until(&session, {
        let seen = std::cell::Cell::new(0);
        move |event| {
            seen.set(seen.get() + usize::from(event["type"] == "agent.message"));
            seen.get() == 2
        }
    });
    let view = house.run(&["ps", "--json"]).ok().one();
    assert!(view["limits"]["cost_usd"].is_null(), "{view:#}");
}

#[test]
fn each_limit_can_be_set_taken_away_and_not_be_nonsense() {
    let house = House::dev();
    let session = house.detached("script/echo", "hi");
    house.until_idle(&session);
    for (flag, field, given, shown) in [
        ("--usd", "cost_usd", "2.5", Value::from(2.5)),
        ("--usd", "cost_usd", "0", 0.into()),
        ("--steps", "steps", "7", 7.into()),
        ("--tokens", "tokens", "1000000", 1_000_000.into()),
        ("--wall", "wall_seconds", "2h", 7_200.into()),
        ("--failures", "failures", "3", 3.into()),
        ("--identical-calls", "identical_calls", "4", 4.into()),
    ] {
        let limit = || house.run(&["ps", "--json"]).ok().one()["limits"][field].clone();
        house.run(&["budget", &session, flag, given]).ok();
        assert_eq!(limit().as_f64(), shown.as_f64(), "{flag} {given}");
        house.run(&["budget", &session, flag, "none"]).ok();
        assert!(limit().is_null(), "{flag} none: {}", limit());
    }
    for (flag, wrong) in [
        ("--usd", "-1"),
        ("--usd", "nan"),
        ("--usd", "inf"),
        ("--usd", "1e400"),
        ("--usd", "None"),
        ("--steps", "-1"),
        ("--steps", "1.5"),
        ("--tokens", "18446744073709551616"),
        ("--wall", "soon"),
        ("--wall", ""),
    ] {
        let said = house.run(&["budget", &session, &format!("{flag}={wrong}")]).fails(2);
        assert!(said.contains(flag), "{flag} {wrong}: {said}");
    }
}
