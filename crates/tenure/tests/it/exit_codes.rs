//! Exit codes, where a message goes, and what it says: scripts and people rely on them.

use crate::house::{House, redacted};
use std::net::TcpListener;

#[test]
fn a_wrong_command_line_exits_with_2_and_says_what_was_perhaps_meant() {
    let house = House::empty();
    for (given, expected) in [
        (
            &["aprove", "x"][..],
            "error: unknown command \"aprove\"\n  fix:   did you mean tenure approve?\n  code: command_unknown\n",
        ),
        (&["lits"], "error: unknown command \"lits\"\n  fix:   did you mean tenure ps?\n  code: command_unknown\n"),
        (
            &["status"],
            "error: unknown command \"status\"\n  fix:   did you mean tenure why?\n  code: command_unknown\n",
        ),
    ] {
        assert_eq!(house.run(given).fails(2), expected);
    }
    let flag = house.run(&["ps", "--limits", "3"]).fails(2);
    assert!(flag.starts_with("error: unexpected argument '--limits' found\n") && flag.contains("--limit"), "{flag}");
    let missing = house.run(&["run"]).fails(2);
    assert!(missing.contains("<PROMPT>") && missing.contains("fix:"), "{missing}");
    let nothing = house.run(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""), "{nothing:?}");
    assert!(nothing.stderr.contains("Usage: tenure"), "{nothing:?}");
    let json: serde_json::Value = serde_json::from_str(&house.run(&["aprove", "--json"]).fails(2)).unwrap();
    assert_eq!((&json["error"]["code"], &json["error"]["exit"]), (&"command_unknown".into(), &2.into()));
}

#[test]
fn help_is_a_result_and_exits_with_0() {
    let house = House::empty();
    for given in [&["--help"][..], &["run", "--help"], &["agents", "--help"], &["agents", "apply", "-h"]] {
        let ran = house.run(given).ok();
        assert!(ran.stdout.contains("Usage: tenure") && ran.stderr.is_empty(), "{ran:?}");
    }
}

#[test]
fn a_session_that_is_not_there_exits_with_3() {
    let house = House::dev();
    for given in [
        &["why", "zzzz"][..],
        &["logs", "zzzz"],
        &["send", "zzzz", "x"],
        &["approve", "zzzz"],
        &["ls", "zzzz"],
        &["cat", "zzzz:a"],
        &["budget", "zzzz", "--usd", "1"],
    ] {
        let error = house.run(given).fails(3);
        assert!(
            error.starts_with(
                "error: no session whose id ends with \"zzzz\"\n  fix:   tenure ps\n  code: session_not_found\n"
            ),
            "{given:?}: {error}"
        );
    }
    let whole = house.run(&["why", "sesn_01m8nwet3secztdn85s2t7cthb", "--json"]).fails(3);
    let error: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(error["error"]["code"], "session_not_found");
    assert!(error["request_id"].is_string(), "{error}");
    let agent = house.run(&["run", "--agent", "nobody", "x"]).fails(3);
    assert!(agent.contains("there is no agent \"nobody\"") && agent.contains("tenure agents list"), "{agent}");
}

#[test]
fn a_wrong_key_exits_with_4() {
    let house = House::dev();
    let mut command = house.command(&["ps"]);
    let ran: crate::house::Ran = command.env("TENURE_API_KEY", "wrong").output().unwrap().into();
    let error = ran.fails(4);
    assert!(error.contains("fix:") && error.contains("api.key") && !error.contains("wrong"), "{error}");
}

#[test]
fn a_key_that_was_used_for_another_prompt_exits_with_5() {
    let house = House::dev();
    let first = house.run(&["run", "--detach", "--model", "script/echo", "--key", "nightly", "one"]).ok().stdout;
    let again = house.run(&["run", "--detach", "--model", "script/echo", "--key", "nightly", "one"]).ok().stdout;
    assert_eq!(first, again, "the same key is the same session");
    let error = house.run(&["run", "--detach", "--model", "script/echo", "--key", "nightly", "two"]).fails(5);
    let id = first.trim();
    assert_eq!(
        redacted(&error, &[id]),
        "error: key \"nightly\" was used with a different prompt\n  existing session: SESSION\n  fix:   choose another --key, or tenure logs TAIL\n  code: idempotency_key_reused\n"
    );
    assert_eq!(house.run(&["ps", "--json"]).ok().json().len(), 1);
}

#[test]
fn a_failed_session_exits_with_6_and_a_cancelled_one_with_7() {
    let house = House::dev()
        .scenario("refuse", "[[turn]]\nstop = \"refusal\"\ndo = [{ say = \"No.\" }]\n")
        .scenario("wait", "[[turn]]\ndo = [{ call = \"sleep\", input = { seconds = 3600 } }]\n");
    let refused = house.run(&["run", "--model", "script/refuse", "x"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("error: the model of …") && refused.stderr.contains("refused"), "{refused:?}");

    let mut follower = house.start(&["run", "--model", "script/wait", "--json", "x"]);
    let first: serde_json::Value = serde_json::from_str(&follower.line().unwrap()).unwrap();
    assert_eq!(first["type"], "session", "programs get the session before its events");
    while let Some(line) = follower.line() {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["type"] == "session.wait_started" {
            house.run(&["cancel", first["id"].as_str().unwrap()]).ok();
        }
    }
    assert_eq!(follower.code(), 7);
}

#[test]
fn a_run_that_takes_too_long_exits_with_8_and_goes_on() {
    let house = House::dev().scenario("wait", "[[turn]]\ndo = [{ call = \"sleep\", input = { seconds = 3600 } }]\n");
    let ran = house.run(&["run", "--model", "script/wait", "--timeout", "300ms", "x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (8, ""), "{ran:?}");
    assert!(ran.stderr.contains("is not done after") && ran.stderr.contains("the session goes on"), "{ran:?}");
    let session = house.run(&["ps", "--json"]).ok().one();
    assert_eq!(session["phase"], "waiting");
    let wrong = house.run(&["run", "--timeout", "soon", "x"]).fails(2);
    assert!(wrong.contains("\"soon\" is not a span such as 30s"), "{wrong}");
}

#[test]
fn a_server_that_is_not_there_exits_with_9_and_says_what_to_do() {
    let house = House::empty();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for given in [&["ps"][..], &["why", "x"], &["run", "x"], &["logs", "x", "--follow"], &["agents", "list"]] {
        let error = house.run(&[given, &["--server", &address]].concat()).fails(9);
        assert!(error.starts_with(&format!("error: nothing answers at {address}\n")), "{error}");
        assert!(
            error.contains("  fix:   tenure dev      check: tenure doctor\n  code: server_unreachable\n"),
            "{error}"
        );
    }
    let elsewhere = house.run(&["ps", "--server", "http://tenure.invalid:1"]).fails(9);
    assert!(elsewhere.contains("check the address") && !elsewhere.contains("tenure dev"), "{elsewhere}");
}

#[test]
fn a_server_that_never_answers_counts_as_not_there() {
    let house = House::empty();
    // The kernel accepts, and nobody ever reads.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let ran = house.run(&["ps", "--server", &address]);
    assert_eq!(ran.progress, ["asking the server …"], "after a second it says what is waited for");
    let error = ran.fails(9);
    assert!(error.contains("did not answer within") && error.contains("code: server_unreachable"), "{error}");
}

#[test]
fn another_program_on_the_port_is_said_to_be_one() {
    let house = House::empty();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = other.accept().unwrap();
        let mut request = [0; 4096];
        let read = stream.read(&mut request).unwrap();
        assert!(read > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>").unwrap();
    });
    let error = house.run(&["ps", "--server", &address]).fails(1);
    answering.join().unwrap();
    assert!(error.contains("cannot read the answer of") && error.contains("tenure version"), "{error}");
}

#[test]
fn a_tail_that_fits_several_sessions_names_them() {
    let house = House::dev();
    // Ids end in one of 32 characters: of 33 sessions, two end alike.
    let mut ids: Vec<String> = Vec::new();
    let tail = loop {
        let id = house.detached("script/instant", &format!("number {}", ids.len()));
        let last = id[id.len() - 1..].to_owned();
        let is_double = ids.iter().any(|other| other.ends_with(&last));
        ids.push(id);
        if is_double {
            break last;
        }
    };
    let error = house.run(&["why", &tail]).fails(2);
    let alike: Vec<&String> = ids.iter().filter(|id| id.ends_with(&tail)).collect();
    assert!(error.starts_with(&format!("error: 2 sessions have an id that ends with {tail:?}\n")), "{error}");
    for id in &alike {
        let title = format!("number {}", ids.iter().position(|other| other == *id).unwrap());
        assert!(error.contains(&format!("  {id}  {title}\n")), "{error}");
    }
    assert!(error.contains("fix:   give more characters of the id\n  code: session_ambiguous"), "{error}");
    for id in alike {
        for given in [id.as_str(), &id[id.len() - 6..], &format!("…{}", &id[id.len() - 6..])] {
            assert_eq!(house.run(&["logs", given, "--type", "user", "--json"]).ok().json().len(), 1, "{given}");
        }
    }
}
