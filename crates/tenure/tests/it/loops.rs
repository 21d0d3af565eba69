//! Loops of the user's own, as processes that are killed (promises P5 and P12).

use crate::house::{House, Process, until};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How far the loop counts.
const COUNT: usize = 24;

/// After how many numbers it is killed, again and again.
const KILL_AFTER: usize = 5;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// A loop over the queue of the test.
fn start(house: &House, program: &str, file: &Path) -> Process {
    let url = fs::read_to_string(house.path("data/server.url")).unwrap();
    let key = fs::read_to_string(house.path("data/api.key")).unwrap();
    let mut command = Command::new(program);
    command.arg(file).arg("counters").arg(house.path("out")).stdin(Stdio::null());
    command.env("TENURE_URL", url.trim()).env("TENURE_API_KEY", key.trim()).env("LEASE_MS", "2000");
    Process::start(command)
}

fn written(house: &House) -> usize {
    fs::read_dir(house.path("out")).map_or(0, |entries| entries.count())
}

fn is_killed_again_and_again_and_counts_on(house: &mut House, program: &str, file: &Path) {
    let agent = json!({"name": "counter", "loop": {"type": "external", "queue": "counters"}});
    house.write("counter.json", agent.to_string());
    house.run(&["agents", "apply", "counter.json"]).ok();
    let session =
        house.run(&["run", "--detach", "--agent", "counter", &COUNT.to_string()]).ok().stdout.trim().to_owned();
    let mut done = 0;
    while done < COUNT {
        let running = start(house, program, file);
        let goal = (done + KILL_AFTER).min(COUNT);
        until(|| written(house) >= goal);
        running.kill();
        done = written(house);
    }
    let _last = start(house, program, file);
    let events = house.until_idle(&session);
    let of_type = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<&Value>>();
    assert_eq!(of_type("agent.tool_result").len(), COUNT, "{events:#?}");
    let numbers = of_type("agent.tool_use").into_iter().map(|event| event["input"]["number"].as_u64().unwrap());
    assert!(numbers.eq(1..=COUNT as u64), "no step is lost and none is repeated");
    let seqs = events.iter().filter_map(|event| event["seq"].as_u64());
    assert!(seqs.eq(1..=events.iter().filter(|event| event["seq"].is_u64()).count() as u64));
    assert_eq!(of_type("agent.message").len(), 1);
    assert_eq!(written(house), COUNT);
}

#[test]
fn the_example_in_python_is_killed_again_and_again_and_counts_on() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("LEFT OUT: the example loop in Python; there is no python3 here");
        return;
    }
    let mut house = House::dev();
    is_killed_again_and_again_and_counts_on(&mut house, "python3", &example("loop.py"));
}

/// Compiled by `cargo xtask test`, which has the compiler.
#[test]
fn the_example_in_typescript_is_killed_again_and_again_and_counts_on() {
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loop.mjs");
    if !compiled.exists() || Command::new("node").arg("--version").output().is_err() {
        eprintln!("LEFT OUT: the example loop in TypeScript; cargo xtask test compiles it where there is Node.js");
        return;
    }
    let mut house = House::dev();
    is_killed_again_and_again_and_counts_on(&mut house, "node", &compiled);
}
