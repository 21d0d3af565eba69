//! Logs, metrics and traces of real processes belong together.

use crate::house::House;
use crate::spans::{Seen, spans};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const SCENARIO: &str = r#"
[[turn]]
do = [{ say = "hello" }]
attempts = [{ status = 529, type = "overloaded_error" }]
"#;

/// Takes requests of OTLP until the test ends.
fn collector() -> (String, mpsc::Receiver<(String, Vec<Seen>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || take_requests(stream, &sender));
        }
    });
    (url, requests)
}

fn take_requests(stream: TcpStream, sender: &mpsc::Sender<(String, Vec<Seen>)>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
            head.push_str(&std::mem::take(&mut line).to_lowercase());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let Some(length) = length else { return };
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        // The test may have ended.
        let _ = sender.send((head, spans(&body)));
        let _ = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(house: &House, path: &str, key: &str) -> String {
    let address = fs::read_to_string(house.path("data").join("server.url")).unwrap();
    let host = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn logs_metrics_and_traces_of_a_lease_belong_together() {
    let (url, requests) = collector();
    let mut house = House::empty().scenario("hello", SCENARIO);
    house.start_server(&["serve"]);
    let log = house.path("worker.log");
    let mut worker = house.command(&["worker", "--json"]);
    worker
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret%2Dof-the-collector");
    worker.env("OTEL_SERVICE_NAME", "agents").env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    let _worker = Killed(worker.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap());
    house.run(&["run", "--model", "script/hello", "hi"]).ok();
    let session = house.run(&["ps", "--json"]).ok().one()["id"].as_str().unwrap().to_owned();

    // Traces: the lease is there once it is over.
    let mut seen = Vec::new();
    let lease = loop {
        let (head, spans) = requests.recv_timeout(Duration::from_secs(60)).expect("the collector gets spans");
        assert!(
            head.starts_with("post /v1/traces http/1.1") && head.contains("x-token: secret-of-the-collector"),
            "{head}"
        );
        seen.extend(spans);
        if let Some(lease) = seen.iter().find(|span| span.name.starts_with("invoke_agent ")) {
            break lease.clone();
        }
    };
    assert_eq!(lease.resource["service.name"], "agents");
    assert_eq!(lease.resource["deployment.environment.name"], "test");
    assert_eq!(lease.attributes["gen_ai.conversation.id"], session);

    // Logs: the failed attempt names session, epoch and the same trace.
    let text = fs::read_to_string(&log).unwrap();
    let line = text.lines().find(|line| line.contains("model attempt failed")).unwrap_or_else(|| panic!("{text}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let trace: String = lease.trace.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(line["span"]["trace_id"], trace, "{line}");
    assert_eq!(line["span"]["session"], session);
    assert_eq!(line["span"]["epoch"].to_string(), lease.attributes["tenure.lease.epoch"]);
    assert!(!text.contains("secret-of-the-collector"));

    // Metrics: the server tells what its worker counted.
    let key = fs::read_to_string(house.path("data").join("api.key")).unwrap();
    let reply = get(&house, "/metrics", key.trim());
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let node = &lease.attributes["tenure.node.id"];
    for (name, value) in [
        (
            "tenure_model_attempts_total{gen_ai_provider_name=\"script\",gen_ai_request_model=\"hello\",class=\"transient\"",
            1,
        ),
        (
            "tenure_model_attempts_total{gen_ai_provider_name=\"script\",gen_ai_request_model=\"hello\",class=\"answered\"",
            1,
        ),
    ] {
        assert!(reply.contains(&format!("{name},node=\"{node}\"}} {value}.0\n")), "{name}: {reply}");
    }
    let commits = "tenure_store_operation_duration_seconds_count{operation=\"commit\",outcome=\"done\",node=";
    assert!(reply.contains(commits), "{reply}");
    assert!(reply.contains("tenure_sessions{state=\"parked\"} 1.0\n"), "{reply}");
}

#[test]
fn a_wrong_setting_of_telemetry_is_refused_with_its_name_and_without_its_secret() {
    let house = House::empty();
    for (variable, value, expected) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "telemetry.otlp_endpoint starts with localhost:"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "maybe", "must be true or false"),
    ] {
        let mut command = house.command(&["config", "show"]);
        command.env(variable, value);
        let told = crate::house::finish(command).fails(2);
        assert!(told.contains(expected), "{told}");
    }
    let mut command = house.command(&["config", "show"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret-token");
    let ran = crate::house::finish(command).ok();
    assert!(ran.stdout.contains("telemetry.otlp_headers = \"(hidden)\"\n"), "{}", ran.stdout);
}
