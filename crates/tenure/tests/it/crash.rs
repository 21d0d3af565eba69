//! Rounds of kill -9 under load: server, workers and, on PostgreSQL, the database, at moments that a seed
//! draws. Clients outside write down what they were told; [`history`] judges by that alone.
//!
//! `cargo xtask crash --rounds N [--store sqlite|postgres] [--seed S]` plays more of them.

mod database;
mod history;

use crate::house::{House, until};
use history::{History, audit};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rounds of each store, unless the environment says otherwise.
const ROUNDS: u64 = 8;

/// Sessions under load, each with a client and a reader of its own.
const SESSIONS: usize = 4;

/// Workers beside the server.
const WORKERS: usize = 2;

/// How long everything may take to come to rest after the last round.
const REST: Duration = Duration::from_secs(60);

/// Each message is one turn with one effect that must not happen twice.
const SCENARIO: &str = r#"
[[turn]]
label = "again"
do = [{ call = "bash", input = { command = "printf '%s\\n' '{{user}}' >> effects" } }]
[[turn]]
do = [{ say = "done with {{user}}", pieces = 4, delay_ms = 15 }]
next = "again"
"#;

const AGENT: &str = r#"
name = "loaded"
model = "script/loaded"
tools = [{ type = "agent_toolset_20260401", configs = [{ name = "bash", effect = "once" }] }]
"#;

/// Numbers of a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn p_12_rounds_of_kill_9_lose_nothing_and_repeat_nothing_on_sqlite() {
    rounds(House::empty(), None);
}

#[test]
fn p_12_rounds_of_kill_9_lose_nothing_and_repeat_nothing_on_postgresql() {
    let Some(database) = database::start() else { return };
    let house = House::empty();
    let config = fs::read_to_string(house.path("tenure.toml")).unwrap();
    house.write("tenure.toml", format!("store = {{ url = \"{}\" }}\n{config}", database.url()));
    rounds(house, Some(database));
}

fn rounds(house: House, database: Option<database::Database>) {
    let (rounds, seed) = (number("TENURE_CRASH_ROUNDS", ROUNDS), number("TENURE_CRASH_SEED", 1));
    let mut dice = Dice(seed);
    let mut house = house.scenario("loaded", SCENARIO);
    house.start_server(&["serve"]);
    (0..WORKERS).for_each(|_| house.start_worker());
    house.write("agent.toml", AGENT);
    house.run(&["agents", "apply", "agent.toml"]).ok();
    let outside = Outside {
        address: house.address().to_owned(),
        key: fs::read_to_string(house.path("data").join("api.key")).unwrap().trim().to_owned(),
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let sessions: Vec<Session> =
        (0..SESSIONS).map(|number| Session::start(&house, &outside, number, &is_over)).collect();
    let mut killed = Vec::new();
    for _ in 0..rounds {
        // Somewhere in the middle of whatever is going on.
        pause(Duration::from_millis(100 + dice.below(900)));
        killed.push(kill(&mut house, database.as_ref(), &mut dice));
    }
    println!("seed {seed}: killed {}", killed.join(", "));
    is_over.store(true, Ordering::SeqCst);
    let histories: Vec<(String, History)> =
        sessions.into_iter().map(|session| session.rest(&house, &outside)).collect();
    let inputs: usize = histories.iter().map(|(_, history)| history.acknowledged.len()).sum();
    let rows: usize = histories.iter().map(|(_, history)| history.log.len()).sum();
    println!("{inputs} acknowledged inputs, {rows} rows");
    for (session, history) in &histories {
        let problems = audit(history);
        assert!(problems.is_empty(), "seed {seed}: {session}: {problems:#?}\n{history:#?}");
    }
    assert!(inputs > SESSIONS, "there was load: {inputs}");
    let folder = house.path("").canonicalize().unwrap();
    drop(house);
    until(|| left_over(&folder).is_empty());
    drop(database);
}

/// Waits without looking at anything: nothing happens that could be waited for.
fn pause(span: Duration) {
    let (_open, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(span);
}

/// Kills what the dice say, and starts it again.
fn kill(house: &mut House, database: Option<&database::Database>, dice: &mut Dice) -> &'static str {
    match (dice.below(10), database) {
        (0..=3, _) => {
            house.kill_a_worker(dice.below(WORKERS as u64) as usize);
            house.start_worker();
            "a worker"
        }
        (4..=6, Some(database)) => {
            database.kill();
            "the database"
        }
        (4..=7, _) => {
            house.kill_server();
            house.start_server(&["serve"]);
            "the server"
        }
        (8, _) => {
            house.kill_workers();
            (0..WORKERS).for_each(|_| house.start_worker());
            "all workers"
        }
        _ => {
            house.kill_workers();
            house.kill_server();
            house.start_server(&["serve"]);
            (0..WORKERS).for_each(|_| house.start_worker());
            "everything"
        }
    }
}

/// Processes that still run in the folder of a house.
fn left_over(folder: &Path) -> BTreeSet<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|place| place.starts_with(folder))).collect()
}

/// What a client outside needs to know.
#[derive(Clone)]
struct Outside {
    address: String,
    key: String,
}

impl Outside {
    fn client(&self) -> (tokio::runtime::Runtime, reqwest::Client) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        (runtime, client)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v1/{path}", self.address)
    }

    async fn get(&self, client: &reqwest::Client, path: &str) -> Option<Value> {
        let reply = client.get(self.url(path)).header("x-api-key", &self.key).send().await.ok()?;
        let bytes = if reply.status().is_success() { reply.bytes().await.ok()? } else { return None };
        serde_json::from_slice(&bytes).ok()
    }

    /// Says something until it is acknowledged: the same request, with the same key, again and again.
    async fn say(&self, client: &reqwest::Client, session: &str, text: &str) {
        let body = json!({ "events": [{ "type": "user.message", "content": [{ "type": "text", "text": text }] }] });
        let begun = Instant::now();
        loop {
            let request = client.post(self.url(&format!("sessions/{session}/events"))).header("x-api-key", &self.key);
            let request = request.header("idempotency-key", text).header("content-type", "application/json");
            match request.body(body.to_string()).send().await {
                Ok(reply) if reply.status().is_success() => return,
                Ok(reply) if reply.status().is_client_error() => {
                    panic!("{text}: {} {}", reply.status(), reply.text().await.unwrap_or_default());
                }
                Ok(_) | Err(_) => {}
            }
            assert!(begun.elapsed() < REST, "{text} is never acknowledged");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// The whole log, page by page.
    async fn log(&self, client: &reqwest::Client, session: &str) -> Option<Vec<Value>> {
        let (mut rows, mut page) = (Vec::new(), String::new());
        loop {
            let reply = self.get(client, &format!("sessions/{session}/events?limit=1000{page}")).await?;
            rows.extend(reply["data"].as_array()?.iter().filter(|event| event["seq"].is_u64()).cloned());
            match reply["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return Some(rows),
            }
        }
    }
}

/// A session under load, with its client and its reader.
struct Session {
    id: String,
    client: JoinHandle<Vec<String>>,
    reader: JoinHandle<Vec<Value>>,
    /// The row after which the reader may stop; 0 for not yet.
    last: Arc<AtomicU64>,
}

impl Session {
    fn start(house: &House, outside: &Outside, number: usize, is_over: &Arc<AtomicBool>) -> Self {
        let first = format!("s{number}m0");
        let id = house.run(&["run", "--detach", "--agent", "loaded", &first]).ok().stdout.trim().to_owned();
        let last = Arc::new(AtomicU64::new(0));
        let client = {
            let (outside, id, is_over) = (outside.clone(), id.clone(), is_over.clone());
            std::thread::spawn(move || talk(&outside, &id, number, first, &is_over))
        };
        let reader = {
            let (outside, id, last) = (outside.clone(), id.clone(), last.clone());
            std::thread::spawn(move || read(&outside, &id, &last))
        };
        Self { id, client, reader, last }
    }

    /// Waits until it is at rest, and brings together what was seen of it.
    fn rest(self, house: &House, outside: &Outside) -> (String, History) {
        let mut acknowledged = self.client.join().unwrap();
        let (runtime, client) = outside.client();
        let log = runtime.block_on(async {
            let begun = Instant::now();
            loop {
                assert!(begun.elapsed() < REST, "{} never comes to rest", self.id);
                let session = outside.get(&client, &format!("sessions/{}", self.id)).await;
                match session.as_ref().and_then(|session| session["phase"].as_str()) {
                    Some("idle") => {
                        let log = outside.log(&client, &self.id).await.unwrap_or_default();
                        if log.last().is_some_and(|event| event["type"] == "session.status_idle") {
                            break log;
                        }
                    }
                    // Its worker was killed too often at the same step: a person says that it may go on.
                    Some("needs_you") => {
                        let text = format!("{}go{}", acknowledged[0], acknowledged.len());
                        outside.say(&client, &self.id, &text).await;
                        acknowledged.push(text);
                    }
                    Some(_) | None => {}
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        self.last.store(log.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0), Ordering::SeqCst);
        let streamed = self.reader.join().unwrap();
        let effects = fs::read_to_string(house.in_workspace(&self.id, "effects")).unwrap_or_default();
        let effects = effects.lines().map(str::to_owned).collect();
        (self.id, History { acknowledged, log, streamed, effects })
    }
}

/// Sends one message after the other; returns those that were acknowledged.
fn talk(outside: &Outside, session: &str, number: usize, first: String, is_over: &AtomicBool) -> Vec<String> {
    let (runtime, client) = outside.client();
    runtime.block_on(async {
        let (mut acknowledged, mut dice) = (vec![first], Dice(number as u64));
        while !is_over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(20 + dice.below(250))).await;
            let text = format!("s{number}m{}", acknowledged.len());
            outside.say(&client, session, &text).await;
            acknowledged.push(text);
        }
        acknowledged
    })
}

/// Reads the stream, and goes on where it was after each cut.
fn read(outside: &Outside, session: &str, last: &AtomicU64) -> Vec<Value> {
    let (runtime, client) = outside.client();
    runtime.block_on(async {
        let mut rows: Vec<Value> = Vec::new();
        let mut end = None;
        loop {
            let after = rows.last().and_then(|row| row["seq"].as_u64()).unwrap_or(0);
            let target = last.load(Ordering::SeqCst);
            if target > 0 {
                let end = *end.get_or_insert_with(|| Instant::now() + REST);
                if after >= target || Instant::now() > end {
                    return rows;
                }
            }
            let url = outside.url(&format!("sessions/{session}/events/stream?after={after}"));
            let request = client.get(url).header("x-api-key", &outside.key).timeout(Duration::from_secs(2));
            if let Ok(mut reply) = request.send().await
                && reply.status().is_success()
            {
                let mut text = Vec::new();
                while let Ok(Some(bytes)) = reply.chunk().await {
                    text.extend_from_slice(&bytes);
                    take_rows(&mut text, &mut rows);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Takes whole frames out of `text`; those with a place in the log are kept.
fn take_rows(text: &mut Vec<u8>, rows: &mut Vec<Value>) {
    while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
        let frame: Vec<u8> = text.drain(..end + 2).collect();
        let frame = String::from_utf8_lossy(&frame);
        let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
        let event = data.and_then(|data| serde_json::from_str::<Value>(data).ok());
        rows.extend(event.filter(|event| event["seq"].is_u64()));
    }
}
