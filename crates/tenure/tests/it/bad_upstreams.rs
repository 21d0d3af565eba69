//! Providers that send what no provider should, to the built binary: the step that meets it fails with a clear
//! word, within bounds; the session goes on with another model, and nobody else notices.

use crate::house::House;
use crate::upstream::{Says, Upstream};
use serde_json::Value;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// Most memory that the worker may ever have had: a few times the largest answer, and itself.
const MOST_KIB: u64 = 512 * 1024;

fn bytes(head: &str, body: impl AsRef<[u8]>) -> Says {
    Says::Sends([head.as_bytes(), body.as_ref()].concat())
}

/// What is sent, and a part of what the session is told about it.
fn hostile() -> Vec<(&'static str, Says, &'static str)> {
    let deep = format!("data: {{\"choices\":{}", "[".repeat(1_000_000));
    let many: String = (0..5_000).map(|number| format!("x-{number}: {number}\r\n")).collect();
    let long = format!("HTTP/1.1 200 OK\r\nx-long: {}", "x".repeat(8 << 20));
    vec![
        ("a line without end", Says::SendsWithoutEnd(HEAD, vec![b'x'; 1 << 20]), "too large"),
        ("pings without end", Says::SendsWithoutEnd(HEAD, [&[b':'; 1 << 16][..], b"\n\n"].concat()), "larger than"),
        ("deep JSON", bytes(HEAD, deep + "\n\n"), "cannot be read"),
        ("no UTF-8", bytes(HEAD, b"data: \xff\xfe\x00\x80{\"choices\":\xc3\x28}\n\n"), "cannot be read"),
        ("half an answer", bytes(HEAD, "data: {\"choices\":[{\"delta\":{\"content\":\"ha"), "ended before"),
        ("a page", bytes("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n", "<html>"), "status 200"),
        ("a bomb", bytes("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n", b"\x1f\x8b\x08\x00"), "compressed"),
        ("many headers", bytes("HTTP/1.1 200 OK\r\n", many + "\r\n"), "no reply that can be read"),
        ("a long header", bytes("", long), "no reply that can be read"),
    ]
}

fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn o_090_hostile_bytes_of_a_provider_end_one_step_with_a_clear_word_and_within_bounds() {
    let upstream = Upstream::start(Says::Answers);
    let mut house = House::empty();
    let config = std::fs::read_to_string(house.path("tenure.toml")).unwrap();
    house.write("tenure.toml", config + &upstream.config());
    house.start_server(&["dev"]);
    let worker = house.worker_of_dev();
    for (name, says, expected) in hostile() {
        upstream.says(says);
        let session = house.detached("p/m", "hello");
        let events = house.until(&session, |event| event["type"] == "session.error");
        let told: &Value = &events.last().unwrap()["error"];
        let message = told["message"].as_str().unwrap_or_else(|| panic!("{name}: {told}"));
        assert!(message.contains(expected) && message.len() < 400, "{name}: {message}");
        assert!(!events.iter().any(|event| event["type"] == "agent.message"), "{name}: nothing of it is kept");
        // The way out is another model, and what the user said is still there.
        house.run(&["model", &session, "script/echo"]).ok();
        let events = house.until_idle(&session);
        let said: Vec<&Value> = events.iter().filter(|event| event["type"] == "agent.message").collect();
        assert_eq!(said.len(), 1, "{name}");
        assert_eq!(said[0]["content"][0]["text"], "hello", "{name}");
    }
    assert_eq!(house.worker_of_dev(), worker, "the worker lives");
    assert!(peak_kib(worker) < MOST_KIB, "{} KiB", peak_kib(worker));
    // Ten megabytes in a field that nobody knows are an ordinary event.
    let long = format!("data: {{\"x\":\"{}\",\"choices\":[]}}\n\n", "x".repeat(10 << 20));
    let end = "data: {\"choices\":[{\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    upstream.says(bytes(HEAD, long + end));
    assert_eq!(house.run(&["run", "--model", "p/m", "hello"]).ok().stdout, "fine\n");
}

#[test]
fn a_model_that_is_misspelt_or_has_no_price_is_refused_before_anything_begins() {
    let upstream = Upstream::start(Says::Answers);
    let mut house = House::empty();
    let config = std::fs::read_to_string(house.path("tenure.toml")).unwrap();
    let gone = "\n[providers.gone]\ndialect = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    house.write("tenure.toml", config + &upstream.config() + gone);
    house.start_server(&["dev"]);
    let said = house.run(&["run", "--model", "q/m", "hello"]).fails(2);
    assert!(said.contains("\"q/m\"") && said.contains("gone, p, script"), "{said}");
    let said = house.run(&["run", "--model", "p/m", "--budget", "1", "hello"]).fails(2);
    assert!(said.contains("the price of p/m is not known") && said.contains("model_without_price"), "{said}");
    assert_eq!(upstream.asked().len(), 0);
    assert_eq!(house.run(&["ps", "--json"]).ok().json().len(), 0, "nothing was made");
    // Without a limit of money it runs, and says that the price is not known; an address at which nobody
    // is says so too, and is tried again.
    house.run(&["run", "--model", "p/m", "hello"]).ok();
    let view = house.run(&["ps", "--json"]).ok().one();
    assert_eq!(view["usage"]["has_unpriced"], true, "{view:#}");
    let session = house.detached("gone/m", "hello");
    let events = house.until(&session, |event| event["type"] == "session.error");
    let told = events.last().unwrap()["error"]["message"].as_str().unwrap();
    assert!(told.contains("the provider cannot be reached"), "{told}");
    assert_eq!(house.run(&["run", "--model", "script/echo", "still here"]).ok().stdout, "still here\n");
}
