//! Server and worker on a private PostgreSQL, killed and resumed.

#[path = "../../../tenure-store-postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of the adapter use more of it")]
mod server;

use crate::house::House;
use serde_json::Value;

/// The first run of the command never ends; a second one does.
const SCENARIO: &str = r#"
[[turn]]
do = [
  { say = "first" },
  { call = "bash", input = { command = "echo ran >> runs; if [ -e started ]; then echo again; else touch started; sleep 600; fi" } },
]
[[turn]]
do = [{ say = "second" }]
"#;

const AGENT: &str = r#"
name = "two"
model = "script/two"
tools = [{ type = "agent_toolset_20260401", configs = [{ name = "bash", effect = "idempotent" }] }]
"#;

pub(crate) fn database() -> Option<String> {
    let server = server::server()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Some(runtime.block_on(server.database()))
}

fn house(url: &str) -> House {
    let house = House::empty().scenario("two", SCENARIO);
    let config = std::fs::read_to_string(house.path("tenure.toml")).unwrap();
    house.write("tenure.toml", format!("store = {{ url = \"{url}\" }}\n{config}"));
    house
}

#[test]
fn p_12_a_session_on_postgresql_survives_kill_9_of_server_and_worker() {
    let Some(url) = database() else { return };
    let mut house = house(&url);
    house.start_server(&["serve"]);
    house.start_worker();
    house.write("agent.toml", AGENT);
    house.run(&["agents", "apply", "agent.toml"]).ok();
    let session = house.run(&["run", "--detach", "--agent", "two", "go"]).ok().stdout.trim().to_owned();
    house.until_file(&session, "started");
    house.kill_workers();
    house.kill_server();
    house.start_server(&["serve"]);
    house.start_worker();
    let events = house.until_idle(&session);
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gap, no repeat");
    let said = |text: &str| events.iter().filter(|event| event["content"][0]["text"] == text).count();
    assert_eq!((said("first"), said("second")), (1, 1), "{events:#?}");
    let runs = std::fs::read_to_string(house.in_workspace(&session, "runs")).unwrap();
    assert_eq!(runs, "ran\nran\n", "the killed command ran again");
    assert!(!house.path("data").join("tenure.db").exists(), "nothing was kept in a file");
}

#[test]
fn doctor_says_which_database_it_is_and_what_it_risks() {
    let Some(url) = database() else { return };
    let house = house(&url);
    let checks = house.run(&["doctor", "--json"]).json();
    let store = checks.iter().find(|check| check["check"] == "store").unwrap();
    let why = store["why"].as_str().unwrap();
    // The server of these tests does without fsync, which is what doctor is there to say.
    assert_eq!(store["verdict"], "warn", "{store}");
    assert!(why.contains("tables 3") && why.contains("fsync is off"), "{why}");
    house.write("tenure.toml", "store = { url = \"postgres://me:s3cret@127.0.0.1:1/x\" }");
    let checks: Vec<Value> = house.run(&["doctor", "--json"]).json();
    let store = checks.iter().find(|check| check["check"] == "store").unwrap();
    assert_eq!(store["verdict"], "fail", "{store}");
    assert!(!store.to_string().contains("s3cret"), "{store}");
}
