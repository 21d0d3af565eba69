//! What a worker counts and traces, read by a receiver that is shaped like a collector.

use crate::collector::{Collector, Reply};
use crate::house::{House, Running, drivers};
use crate::spans::Seen;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::*;
use tenure_engine::EventMasker;
use tenure_telemetry::*;

const SECRET: &str = "sk-very-secret-0123456789";

const TURNS: &str = r#"
[[turn]]
do = [{ call = "bash", input = { command = "echo the-output-of-the-tool" } }]
usage = { input = 10, output = 20, cache_read = 300, cache_write = 4000 }
attempts = [{ status = 529, type = "overloaded_error" }]
[[turn]]
do = [{ say = "the-answer-of-the-model" }]
[[turn]]
do = [{ say = "second" }]
"#;

struct Observed {
    telemetry: Telemetry,
    exporter: Exporter,
    worker: Running,
}

async fn worker(house: &House, collector: &Collector, content: Content) -> Observed {
    let mut telemetry = Telemetry::default();
    let settings = Settings { endpoint: Some(collector.url.clone()), content, ..Settings::default() };
    let mask: Mask = Arc::new(|text| text.replace(SECRET, "[redacted]"));
    let exporter = Exporter::start(&mut telemetry, &settings, &|_| None, mask).unwrap().unwrap();
    let worker = house.worker_observed(drivers(), EventMasker::new(&[SECRET.to_owned()]), telemetry.clone()).await;
    Observed { telemetry, exporter, worker }
}

/// Plays three turns in two leases; gives the spans.
async fn play(house: &mut House, content: Content) -> (SessionId, Vec<Seen>, Vec<Family>) {
    let collector = Collector::start([]).await;
    let Observed { telemetry, exporter, worker } = worker(house, &collector, content).await;
    let session = house.session().await;
    house.say(session, &format!("the-words-of-the-user {SECRET}")).await;
    house.until(session, Phase::Idle).await;
    house.say(session, "again").await;
    house.until(session, Phase::Idle).await;
    worker.stop().await;
    exporter.stop().await;
    (session, collector.spans(), telemetry.registry.snapshot())
}

fn named<'a>(spans: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    let mut spans: Vec<&Seen> = spans.iter().filter(|span| span.name == name).collect();
    spans.sort_by_key(|span| span.start);
    spans
}

#[tokio::test(flavor = "multi_thread")]
async fn each_lease_is_a_trace_that_is_linked_to_the_one_before() {
    let mut house = House::with(TURNS, Effect::Once).await;
    let (session, spans, _) = play(&mut house, Content::LeftOut).await;
    let leases = named(&spans, "invoke_agent tester");
    assert_eq!(leases.len(), 2, "{spans:#?}");
    let (first, second) = (leases[0], leases[1]);
    assert_ne!(first.trace, second.trace);
    assert_eq!(first.links, []);
    assert_eq!(second.links, [(first.trace.clone(), first.id.clone())]);
    for lease in &leases {
        assert_eq!(lease.parent, Vec::<u8>::new());
        assert_eq!(lease.attributes["gen_ai.operation.name"], "invoke_agent");
        assert_eq!(lease.attributes["gen_ai.conversation.id"], session.to_string());
        assert_eq!(lease.attributes["gen_ai.agent.name"], "tester");
        assert_eq!(lease.attributes["tenure.lease.end"], "let_go");
        assert_eq!(lease.error, None);
    }

    let calls = named(&spans, "chat test");
    assert_eq!(calls.len(), 4, "one for each attempt");
    let (refused, called) = (calls[0], calls[1]);
    for call in &calls {
        assert_eq!(call.kind, 3, "a client");
        assert_eq!(call.attributes["gen_ai.operation.name"], "chat");
        assert_eq!(call.attributes["gen_ai.provider.name"], "script");
        assert_eq!(call.attributes["gen_ai.request.model"], "test");
    }
    assert_eq!(refused.attributes["error.type"], "transient");
    assert_eq!(refused.attributes["http.response.status_code"], "529");
    assert!(refused.error.is_some());
    assert_eq!(
        (refused.attributes["tenure.attempt"].as_str(), called.attributes["tenure.attempt"].as_str()),
        ("1", "2")
    );
    assert_eq!(called.attributes["gen_ai.usage.input_tokens"], "4310", "with what is cached");
    assert_eq!(called.attributes["gen_ai.usage.output_tokens"], "20");
    assert_eq!(called.attributes["gen_ai.usage.cache_read.input_tokens"], "300");
    assert_eq!(called.attributes["gen_ai.usage.cache_write.input_tokens"], "4000");
    assert_eq!(called.attributes["gen_ai.response.finish_reasons"], "tool_call");
    assert_eq!(called.error, None);

    let tools = named(&spans, "execute_tool bash");
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0].attributes["gen_ai.tool.name"], "bash");
    let log = house.log(session).await;
    let use_of = log.iter().find(|event| matches!(event.body, Body::AgentToolUse { .. })).unwrap();
    assert_eq!(tools[0].attributes["gen_ai.tool.call.id"], use_of.id.to_string());
    assert_eq!(tools[0].error, None);

    let commits = named(&spans, "commit");
    let committed: u64 =
        commits.iter().map(|commit| commit.attributes["tenure.commit.events"].parse::<u64>().unwrap()).sum();
    assert_eq!(committed, log.len() as u64, "each event is in one commit");

    for part in calls.iter().chain(&tools).chain(&commits) {
        let lease = leases.iter().find(|lease| lease.trace == part.trace).expect("a part of a lease");
        assert_eq!(part.parent, lease.id);
        assert!(lease.start <= part.start && part.end <= lease.end);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_said_is_in_a_span_unless_it_was_asked_for() {
    let mut house = House::with(TURNS, Effect::Once).await;
    let (_, spans, _) = play(&mut house, Content::LeftOut).await;
    let text = format!("{spans:?}");
    for said in ["the-words-of-the-user", "the-answer-of-the-model", "the-output-of-the-tool", SECRET] {
        assert!(!text.contains(said), "{said}");
    }

    let mut house = House::with(TURNS, Effect::Once).await;
    let (_, spans, _) = play(&mut house, Content::Captured).await;
    assert!(!format!("{spans:?}").contains(SECRET), "o_088: masked all the same");
    let calls = named(&spans, "chat test");
    let json = |span: &Seen, key: &str| -> serde_json::Value { serde_json::from_str(&span.attributes[key]).unwrap() };
    let input = json(calls[2], "gen_ai.input.messages");
    assert_eq!(input[0]["role"], "user");
    assert_eq!(input[0]["parts"][0]["type"], "text");
    assert!(input[0]["parts"][0]["content"].as_str().unwrap().starts_with("the-words-of-the-user ["), "{input}");
    assert_eq!(input[1]["parts"][0]["type"], "tool_call");
    assert_eq!(input[1]["parts"][0]["name"], "bash");
    assert_eq!(input[2]["parts"][0]["type"], "tool_call_response");
    let output = json(calls[2], "gen_ai.output.messages");
    assert_eq!(output[0]["parts"][0]["content"], "the-answer-of-the-model");
    assert_eq!(output[0]["finish_reason"], "stop");
    let tool = named(&spans, "execute_tool bash")[0];
    assert!(tool.attributes["gen_ai.tool.call.arguments"].contains("echo"));
    assert!(tool.attributes["gen_ai.tool.call.result"].contains("the-output-of-the-tool"));
}

/// Values of an instrument by its label values.
fn series(families: &[Family], name: &str) -> BTreeMap<String, f64> {
    let family = families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"));
    let value = |sample: &Sample| match &sample.value {
        Sampled::Number(number) => *number,
        Sampled::Buckets { counts, .. } => counts.iter().sum::<u64>() as f64,
    };
    let key = |sample: &Sample| sample.labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("|");
    family.samples.iter().map(|sample| (key(sample), value(sample))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_tokens_tools_leases_and_sandboxes_are_counted() {
    let mut house = House::with(TURNS, Effect::Once).await;
    let (session, _, families) = play(&mut house, Content::LeftOut).await;
    let of = |name: &str, key: &str| series(&families, name).get(key).copied().unwrap_or_default();
    assert_eq!(of("tenure_model_attempts", "script|test|answered"), 3.0);
    assert_eq!(of("tenure_model_attempts", "script|test|transient"), 1.0);
    assert_eq!(of("gen_ai_client_operation_duration_seconds", "chat|script|test"), 3.0);
    assert_eq!(of("gen_ai_client_operation_duration_seconds", "chat|script|test|transient"), 1.0);
    assert_eq!(of("gen_ai_client_operation_time_to_first_chunk_seconds", "chat|script|test"), 3.0);
    assert_eq!(of("gen_ai_client_token_usage", "chat|script|test|input"), 3.0);
    assert_eq!(of("gen_ai_client_token_usage", "chat|script|test|output"), 3.0);
    assert_eq!(of("tenure_model_cached_tokens", "script|test|read"), 300.0);
    assert_eq!(of("tenure_model_cached_tokens", "script|test|write"), 4_000.0);
    assert_eq!(of("gen_ai_execute_tool_duration_seconds", "bash|done"), 1.0);
    assert_eq!(of("tenure_lease_duration_seconds", "let_go"), 2.0);
    assert_eq!(of("tenure_queue_wait_seconds", ""), 2.0);
    assert_eq!(of("tenure_leases_held", ""), 0.0);
    assert_eq!(of("tenure_sandbox_start_duration_seconds", "process|done"), 1.0);
    assert_eq!(of("tenure_committed_events", ""), house.log(session).await.len() as f64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_replies_keeps_no_step_waiting() {
    let mut house = House::with(TURNS, Effect::Once).await;
    let collector = Collector::start(std::iter::repeat_n(Reply::Silence, 1_000)).await;
    let Observed { telemetry, exporter, worker } = worker(&house, &collector, Content::LeftOut).await;
    let session = house.session().await;
    house.say(session, "hi").await;
    house.until(session, Phase::Idle).await;
    // The collector holds the first batch and will never take it; the next turn goes on all the same.
    collector.until_requests(1).await;
    house.say(session, "again").await;
    house.until(session, Phase::Idle).await;
    worker.stop().await;
    exporter.stop().await;
    assert_eq!(series(&telemetry.registry.snapshot(), "tenure_spans_exported")[""], 0.0);
    assert!(series(&telemetry.registry.snapshot(), "tenure_spans_dropped")["stopped"] > 0.0);
}
