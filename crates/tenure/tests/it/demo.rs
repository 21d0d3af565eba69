//! `tenure demo`: the proof, on its own server and on a running one.

use crate::house::{House, is_running, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

#[test]
fn the_demo_proves_that_a_run_survives_kill_9() {
    let house = House::empty();
    let ran = house.run(&["demo", "--json"]).ok();
    let proof = ran.one();
    assert_eq!(proof["holds"], true, "{proof}");
    let checks = proof["checks"].as_array().unwrap();
    assert!(checks.len() >= 10 && checks.iter().all(|check| check["holds"] == true), "{proof}");
    assert_eq!(proof["counters"]["payments in the ledger"], 1);
    assert_eq!(ran.stderr.matches("kill -9").count(), 3, "{}", ran.stderr);
    assert!(proof["timeline"].as_array().unwrap().len() > 10);
}

#[test]
fn z_49_the_demos_fallback_to_a_weaker_driver() {
    // What the demo says fits what doctor finds on the same machine.
    let house = House::empty();
    let checks = house.run(&["doctor", "--json"]).json();
    let ranking = checks.iter().find(|check| check["check"] == "strongest driver").unwrap();
    let is_weaker = ranking["verdict"] != "ok";
    let mut demo = house.command(&["demo"]);
    demo.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = demo.spawn().unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let before = |line: &String| !line.starts_with("Undisturbed run");
    let lines: Vec<String> = std::io::BufRead::lines(stderr).map_while(Result::ok).take_while(before).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        lines.iter().any(|line| line.starts_with("WARNING: the demo runs in the driver ")),
        is_weaker,
        "{lines:?}"
    );
}

#[test]
fn the_demo_plays_on_a_running_server_and_says_what_it_cannot_show_there() {
    let house = House::dev();
    let url = fs::read_to_string(house.path("data/server.url")).unwrap();
    let ran = house.run(&["demo", "--server", &url]).ok();
    assert!(ran.stderr.contains("Not shown here, as the worker of a running server is not killed"), "{ran:?}");
    assert!(ran.stdout.contains("  holds   the coder finished\n") && !ran.stdout.contains("BROKEN"), "{ran:?}");
    let session = house.run(&["ps", "--json"]).ok().one();
    assert_eq!((&session["title"], &session["phase"]), (&"Fix the failing test".into(), &"idle".into()));
}

#[test]
fn ctrl_c_ends_the_demo_and_everything_it_started() {
    let house = House::empty();
    let data = house.path("demo");
    let demo = house.start(&["demo", "--data", data.to_str().unwrap(), "--json"]);
    // Both processes run when a command of the sandbox does.
    let sessions = data.join("data/workspaces");
    until(|| fs::read_dir(&sessions).is_ok_and(|mut found| found.next().is_some()));
    let children = children_of(demo.id());
    assert_eq!(children.len(), 2, "a server and a worker: {children:?}");
    demo.signal(Signal::INT);
    assert_eq!(demo.code(), 1);
    assert!(!children.iter().any(|pid| is_running(*pid)), "{children:?}");
    // Nothing was lost by that: the store opens, and the session is there.
    let mut after = house.command(&["dev", "--no-worker", "--listen", "127.0.0.1:0", "--json"]);
    after.env("TENURE_DATA", data.join("data"));
    let mut server = crate::house::Process::start(after);
    let ready: Value = serde_json::from_str(&server.line().unwrap()).unwrap();
    let listed = house.run(&["ps", "--json", "--data", data.join("data").to_str().unwrap()]).ok().json();
    assert_eq!(listed[0]["title"], "Fix the failing test", "{ready}");
}

fn children_of(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).unwrap().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    children.collect::<String>().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
