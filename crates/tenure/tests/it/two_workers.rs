//! Two workers in processes of their own, one store, and one condition that both know of.

use crate::house::{House, Process, until};
use crate::postgres;
use crate::upstream::{Says, Upstream};
use serde_json::Value;

/// Sessions that wait.
const SESSIONS: usize = 10;
/// Calls that each worker makes at once.
const SLOTS: usize = 3;

/// A server and two workers, each with a key by which the provider knows it.
struct Pair {
    house: House,
    upstream: Upstream,
    workers: Vec<(&'static str, Process)>,
}

impl Pair {
    /// Both processes and the provider; `settings` go before all others.
    fn start(settings: &str) -> Self {
        let upstream = Upstream::start(Says::AnswersTogether(0));
        let mut house = House::empty();
        let config = std::fs::read_to_string(house.path("tenure.toml")).unwrap();
        let config = config.replace("[worker]", &format!("[worker]\nslots = {SLOTS}"));
        house.write("tenure.toml", format!("{settings}{config}{}api_key_env = \"P_KEY\"\n", upstream.config()));
        house.start_server(&["serve"]);
        let mut pair = Self { house, upstream, workers: Vec::new() };
        pair.add("one");
        pair.add("two");
        // More than one of them can call at once: when all are answered, both work.
        let first: Vec<String> = (0..=SLOTS).map(|_| pair.house.detached("p/m", "go")).collect();
        first.iter().for_each(|session| drop(pair.house.until_idle(session)));
        pair
    }

    fn add(&mut self, key: &'static str) {
        let mut command = self.house.command(&["worker", "--json"]);
        command.env("P_KEY", key);
        let mut worker = Process::start(command);
        worker.line().expect("the worker ends only when it is asked to");
        self.workers.push((key, worker));
    }

    fn kill(&mut self, key: &str) {
        let place = self.workers.iter().position(|(own, _)| *own == key).unwrap();
        self.workers.remove(place).1.kill();
    }

    /// Waits until the only condition is as it is wanted.
    #[track_caller]
    fn until_condition(&self, is_wanted: impl Fn(&Value) -> bool) {
        until(|| {
            let conditions = self.house.run(&["conditions", "--json"]).ok().json();
            matches!(&conditions[..], [condition] if is_wanted(condition))
        });
    }

    fn probe(&self) {
        self.house.run(&["conditions", "probe", "p"]).ok();
    }
}

fn two_workers_make_one_probe_and_let_go_of_all(settings: &str) {
    let mut pair = Pair::start(settings);
    let answered = pair.upstream.asked().len();
    pair.upstream.says(Says::Refuses(401, "authentication_error"));
    let sessions: Vec<String> = (0..SESSIONS).map(|_| pair.house.detached("p/m", "go")).collect();
    pair.until_condition(|condition| condition["waiting"] == SESSIONS);
    let refused = pair.upstream.asked().len();
    assert!(refused - answered <= 2 * SLOTS, "as many as were on the way at once, and nobody tried again: {refused}");

    // The probe hangs. Neither worker sends anything besides it, whoever asks.
    pair.upstream.says(Says::Holds);
    pair.probe();
    let prober = pair.upstream.until_asked(refused + 1).pop().unwrap();
    pair.upstream.says(Says::Refuses(401, "authentication_error"));
    pair.probe();
    pair.until_condition(|condition| condition["probing_session_id"].is_string());
    for session in &sessions {
        let events = pair.house.run(&["logs", session, "--json"]).ok().json();
        let in_line = |events: &[Value]| events.iter().filter(|event| event["wait"]["kind"] == "condition").count();
        // The one that probes is on its way.
        if events.last().unwrap()["type"] == "span.model_request_start" {
            continue;
        }
        let before = in_line(&events);
        pair.house.run(&["send", session, "are you there?"]).ok();
        pair.house.until(session, {
            let seen = std::cell::Cell::new(0);
            move |event| {
                seen.set(seen.get() + usize::from(event["wait"]["kind"] == "condition"));
                seen.get() > before
            }
        });
    }
    assert_eq!(pair.upstream.asked().len(), refused + 1, "one probe, and nobody besides it");

    // Its worker dies. The other one takes the session over, and with it the probe; it is refused again.
    pair.kill(&prober);
    pair.until_condition(|condition| condition["refusals"] == 2 && condition["probing_session_id"].is_null());
    let asked = pair.upstream.asked();
    assert_eq!(asked.len(), refused + 2, "one more, of the worker that lives");
    assert_ne!(asked.last(), Some(&prober));

    // The key is mended: one probe, and then everybody once, on both.
    pair.add(if prober == "one" { "one" } else { "two" });
    // What comes after the probe is answered only when both have asked.
    pair.upstream.says(Says::AnswersTogether(refused + 3));
    pair.probe();
    for session in &sessions {
        let events = pair.house.until_idle(session);
        let said = events.iter().filter(|event| event["type"] == "agent.message").count();
        assert_eq!(said, 1, "{events:#?}");
    }
    assert_eq!(pair.upstream.asked().len(), refused + 2 + SESSIONS, "each of them once");
}

#[test]
fn o_022_two_worker_processes_on_one_file_share_one_probe() {
    two_workers_make_one_probe_and_let_go_of_all("");
}

#[test]
fn o_022_two_worker_processes_on_postgresql_share_one_probe() {
    let Some(url) = postgres::database() else { return };
    two_workers_make_one_probe_and_let_go_of_all(&format!("store = {{ url = \"{url}\" }}\n"));
}
