//! dev, serve and worker: when they are ready, who may start, and how they stop.

use crate::house::{House, is_running, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const LONG: &str = r#"
[[turn]]
do = [{ call = "bash", input = { command = "touch started; sleep 600" } }]
[[turn]]
do = [{ say = "done" }]
"#;

#[test]
fn the_ready_line_means_that_the_server_answers() {
    for command in ["dev", "serve"] {
        let house = House::empty();
        let mut server = house.start(&[command, "--listen", "127.0.0.1:0", "--json"]);
        let ready: Value = serde_json::from_str(&server.line().unwrap()).unwrap();
        assert_eq!(ready["event"], "ready");
        assert_eq!(ready["pid"], server.id());
        let key = house.path("data/api.key");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let key = fs::read_to_string(key).unwrap();
        let url = ready["url"].as_str().unwrap();
        let mut elsewhere = house.command(&["ps", "--server", url]);
        let output = elsewhere.env("TENURE_DATA", house.path("other")).env("TENURE_API_KEY", key.trim()).output();
        assert!(output.unwrap().status.success());
        assert_eq!(fs::read_to_string(house.path("data/server.url")).unwrap(), url);
        house.run(&["ps"]).ok();
        assert_eq!(server.end(), 0);
        assert!(!house.path("data/server.url").exists(), "a server that stopped in order leaves no address");
        house.run(&["ps"]).fails(9);
    }
}

#[test]
fn z_55_two_dev_on_one_data_folder() {
    let house = House::dev();
    for command in ["dev", "serve"] {
        let error = house.run(&[command, "--listen", "127.0.0.1:0"]).fails(5);
        assert!(error.starts_with("error: another server uses the data folder ~/data\n  tenure dev, pid "), "{error}");
        assert!(
            error.contains("fix:   use that one: tenure ps") && error.contains("code: data_folder_in_use"),
            "{error}"
        );
    }
    // The first one is not disturbed.
    house.run(&["ps"]).ok();
    assert_eq!(house.run(&["run", "--model", "script/echo", "hello"]).ok().stdout, "hello\n");
}

#[test]
fn a_killed_server_leaves_the_data_folder_to_the_next_one() {
    let mut house = House::dev();
    let session = house.detached("script/echo", "hello");
    house.until_idle(&session);
    house.kill_server();
    house.start_server(&["dev"]);
    assert_eq!(house.run(&["ps", "--json"]).ok().one()["id"], session.as_str());
}

#[test]
fn a_port_that_is_in_use_is_named_with_its_program() {
    let house = House::empty();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let error = house.run(&["dev", "--listen", &format!("127.0.0.1:{port}")]).fails(5);
    let pid = std::process::id();
    assert!(error.starts_with(&format!("error: port {port} is in use by another program (pid {pid}, ")), "{error}");
    assert!(error.contains("fix:   tenure dev --listen 127.0.0.1:") && error.contains("code: port_in_use"), "{error}");
}

#[test]
fn a_data_folder_that_cannot_be_used_is_named() {
    let house = House::empty();
    house.write("file", "");
    let error = house.run(&["dev", "--data", "file/data", "--listen", "127.0.0.1:0"]).fails(1);
    assert!(error.contains("cannot use the data folder") && error.contains("fix:   --data DIR"), "{error}");
}

#[test]
fn ctrl_c_stops_dev_and_its_worker_and_committed_work_is_kept() {
    let mut house = House::dev().scenario("long", LONG);
    let session = house.detached("script/long", "go");
    house.until_file(&session, "started");
    let worker = house.worker_of_dev();
    house.server().signal(Signal::INT);
    assert_eq!(house.take_server().code(), 0);
    assert!(!is_running(worker), "the worker stops with dev");
    house.start_server(&["dev"]);
    let events = house.until_idle(&session);
    let results = events.iter().filter(|event| event["type"] == "agent.tool_result").count();
    assert_eq!(results, 1, "{events:#?}");
}

#[test]
fn a_second_ctrl_c_ends_dev_and_its_worker_at_once() {
    let mut house = House::empty().scenario("long", LONG);
    // With an hour of grace, only the second request can end it.
    let config = fs::read_to_string(house.path("tenure.toml")).unwrap();
    house.write("tenure.toml", config.replace("grace_seconds = 2", "grace_seconds = 3600"));
    house.start_server(&["dev"]);
    let session = house.detached("script/long", "go");
    house.until_file(&session, "started");
    let worker = house.worker_of_dev();
    let server = house.take_server();
    server.signal(Signal::INT);
    // The first one was taken when new connections are refused.
    until(|| house.run(&["ps"]).code == 9);
    server.signal(Signal::INT);
    assert_eq!(server.code(), 1);
    until(|| !is_running(worker));
}

#[test]
fn a_worker_whose_dev_was_killed_stops_too() {
    let mut house = House::dev();
    let worker = house.worker_of_dev();
    house.kill_server();
    until(|| !is_running(worker));
}

#[test]
fn a_worker_without_a_server_advances_sessions_of_its_folder() {
    let mut house = House::empty();
    house.start_server(&["dev", "--no-worker"]);
    let session = house.detached("script/echo", "hello");
    let why = house.run(&["why", &session]).ok().stdout;
    assert!(why.starts_with("○ queued. Runnable, but no worker is running.\n"), "{why}");
    house.start_worker();
    house.until_idle(&session);
    let error = house.run(&["worker", "--server", "http://127.0.0.1:1"]).fails(2);
    assert!(error.contains("fix:   tenure worker --data DIR"), "{error}");
}
