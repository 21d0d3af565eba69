//! Spans on their way to a collector: whole, late, refused, and never in the way.

use crate::collector::{Collector, PATIENCE, Reply};
use std::sync::Arc;
use std::time::Duration;
use tenure_telemetry::*;

struct House {
    telemetry: Telemetry,
    exporter: Exporter,
}

fn start(url: &str, variables: &[(&str, &str)], mask: Mask) -> House {
    let mut telemetry = Telemetry::default();
    let settings = Settings {
        endpoint: Some(url.to_owned()),
        headers: Some("x-team=a%20b".to_owned()),
        service_name: Some("agents".to_owned()),
        content: Content::LeftOut,
    };
    let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    let exporter = Exporter::start(&mut telemetry, &settings, &read, mask).unwrap().unwrap();
    House { telemetry, exporter }
}

fn plain() -> Mask {
    Arc::new(|text| text)
}

fn count(telemetry: &Telemetry, name: &str) -> f64 {
    let family = telemetry.registry.snapshot().into_iter().find(|family| family.name == name).unwrap();
    let numbers = family.samples.iter().map(|sample| match sample.value {
        Sampled::Number(number) => number,
        Sampled::Buckets { .. } => panic!("a counter"),
    });
    numbers.sum()
}

async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("so in time");
}

#[tokio::test]
async fn a_collector_gets_whole_spans_with_links_parents_and_attributes() {
    let collector = Collector::start([]).await;
    let House { telemetry, exporter } = start(&collector.url, &[], plain());
    let (before, this) = (SpanContext::of(&[b"session", b"1"]), SpanContext::of(&[b"session", b"2"]));
    let tracer = &telemetry.tracer;
    let mut root = tracer.root("invoke_agent coder", this);
    root.link(before);
    let mut chat = tracer.child("chat m", SpanKind::Client, root.context());
    chat.set("gen_ai.request.model", "m");
    chat.set("gen_ai.usage.input_tokens", 12_345_678_901_u64);
    chat.set("tenure.is_last", true);
    chat.set_all("gen_ai.response.finish_reasons", ["tool_use".to_owned(), "end_turn".to_owned()]);
    chat.fail("transient", "HTTP 529: overloaded");
    let chat_id = chat.context();
    drop(chat);
    drop(root);
    exporter.stop().await;

    let spans = collector.spans();
    assert_eq!(spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["chat m", "invoke_agent coder"]);
    let (chat, root) = (&spans[0], &spans[1]);
    assert_eq!((&root.trace[..], &root.id[..]), (&this.trace.0[..], &this.span.0[..]));
    assert_eq!(root.links, [(before.trace.0.to_vec(), before.span.0.to_vec())]);
    assert_ne!(before.trace, this.trace);
    assert_eq!((root.kind, root.parent.len()), (1, 0));
    assert_eq!((&chat.trace, &chat.parent, chat.kind), (&root.trace, &root.id, 3));
    assert_eq!(chat.id, chat_id.span.0);
    assert_eq!(chat.attributes["gen_ai.request.model"], "m");
    assert_eq!(chat.attributes["gen_ai.usage.input_tokens"], "12345678901");
    assert_eq!(chat.attributes["tenure.is_last"], "true");
    assert_eq!(chat.attributes["gen_ai.response.finish_reasons"], "tool_use|end_turn");
    assert_eq!(chat.attributes["error.type"], "transient");
    assert_eq!(chat.error.as_deref(), Some("HTTP 529: overloaded"));
    assert_eq!(root.error, None);
    assert!(root.start <= chat.start && chat.start <= chat.end && chat.end <= root.end, "{spans:?}");
    assert_eq!(root.resource["service.name"], "agents");
    let (headers, _) = &collector.requests()[0];
    assert_eq!(headers["content-type"], "application/x-protobuf");
    assert_eq!(headers["x-team"], "a b");
    assert_eq!(count(&telemetry, "tenure_spans_exported"), 2.0);
    assert_eq!(count(&telemetry, "tenure_spans_dropped"), 0.0);
}

#[tokio::test]
async fn what_a_collector_refuses_for_a_moment_comes_again_and_what_it_refuses_for_good_does_not() {
    let collector = Collector::start([Reply::Status(503), Reply::Status(429), Reply::Status(200), Reply::Status(400)]);
    let collector = collector.await;
    let House { telemetry, exporter } = start(&collector.url, &[], plain());
    drop(telemetry.tracer.root("first", SpanContext::of(&[b"1"])));
    collector.until_requests(3).await;
    until(|| count(&telemetry, "tenure_spans_exported") == 1.0).await;
    drop(telemetry.tracer.root("second", SpanContext::of(&[b"2"])));
    until(|| count(&telemetry, "tenure_spans_dropped") == 1.0).await;
    drop(telemetry.tracer.root("third", SpanContext::of(&[b"3"])));
    exporter.stop().await;
    let names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["first", "first", "first", "second", "third"], "the fourth request is not repeated");
    assert_eq!(count(&telemetry, "tenure_spans_exported"), 2.0);
}

#[tokio::test]
async fn a_collector_that_never_replies_fills_the_queue_and_nothing_else() {
    let collector = Collector::start(std::iter::repeat_n(Reply::Silence, 1_000)).await;
    let House { telemetry, exporter } = start(&collector.url, &[], plain());
    drop(telemetry.tracer.root("first", SpanContext::of(&[b"first"])));
    collector.until_requests(1).await;
    // The first one is on its way; now the queue fills, and whoever ends a span does not wait for
    // anything: these are all made between two turns of the runtime.
    const BEYOND: usize = 500;
    for _ in 0..MAX_QUEUED_SPANS + BEYOND {
        drop(telemetry.tracer.root("more", SpanContext::of(&[b"more"])));
    }
    assert_eq!(count(&telemetry, "tenure_spans_dropped"), BEYOND as f64);
    exporter.stop().await;
    assert_eq!(count(&telemetry, "tenure_spans_exported"), 0.0);
    let all = (MAX_QUEUED_SPANS + BEYOND + 1) as f64;
    assert_eq!(count(&telemetry, "tenure_spans_dropped"), all, "each is counted once");
}

#[tokio::test]
async fn a_collector_that_is_killed_costs_the_spans_of_that_time_and_no_others() {
    let collector = Collector::start([]).await;
    let House { telemetry, exporter } = start(&collector.url, &[], plain());
    drop(telemetry.tracer.root("taken", SpanContext::of(&[b"1"])));
    until(|| count(&telemetry, "tenure_spans_exported") == 1.0).await;
    collector.kill();
    drop(telemetry.tracer.root("lost", SpanContext::of(&[b"2"])));
    until(|| count(&telemetry, "tenure_spans_dropped") == 1.0).await;
    exporter.stop().await;
    assert_eq!(count(&telemetry, "tenure_spans_exported"), 1.0);
}

#[tokio::test]
async fn spans_that_hold_much_are_bounded_by_bytes() {
    let collector = Collector::start(std::iter::repeat_n(Reply::Silence, 1_000)).await;
    let House { telemetry, exporter } = start(&collector.url, &[], plain());
    drop(telemetry.tracer.root("first", SpanContext::of(&[b"first"])));
    collector.until_requests(1).await;
    let large = "x".repeat(2 * MAX_ATTRIBUTE_BYTES);
    let fits = MAX_QUEUED_BYTES / MAX_ATTRIBUTE_BYTES;
    for _ in 0..fits + 10 {
        let mut span = telemetry.tracer.root("large", SpanContext::of(&[b"large"]));
        span.set("text", large.as_str());
    }
    assert!(count(&telemetry, "tenure_spans_dropped") >= 10.0);
    exporter.stop().await;
}

#[tokio::test]
async fn o_088_known_secrets_are_masked_in_names_values_and_errors() {
    let collector = Collector::start([]).await;
    let mask: Mask = Arc::new(|text| text.replace("sk-secret", "[redacted]"));
    let House { telemetry, exporter } = start(&collector.url, &[], mask);
    let mut span = telemetry.tracer.root("call sk-secret", SpanContext::of(&[b"1"]));
    span.set("one", "a sk-secret b");
    span.set_all("many", ["sk-secret".to_owned()]);
    span.fail("other", "HTTP 401: sk-secret is wrong");
    drop(span);
    exporter.stop().await;
    let (_, body) = collector.requests().remove(0);
    assert!(!String::from_utf8_lossy(&body).contains("sk-secret"));
    assert_eq!(collector.spans()[0].attributes["one"], "a [redacted] b");
}

#[tokio::test]
async fn a_span_has_a_bounded_number_of_attributes() {
    const NAMES: [&str; MAX_ATTRIBUTES + 6] = ["same"; MAX_ATTRIBUTES + 6];
    let collector = Collector::start([]).await;
    let House { telemetry, exporter } = start(&collector.url, &[], plain());
    let mut span = telemetry.tracer.root("many", SpanContext::of(&[b"1"]));
    NAMES.iter().for_each(|name| span.set(name, true));
    drop(span);
    exporter.stop().await;
    assert_eq!(collector.spans()[0].left_out, 6);
}

#[tokio::test]
async fn nothing_is_made_without_a_collector() {
    let mut telemetry = Telemetry::default();
    let exporter = Exporter::start(&mut telemetry, &Settings::default(), &|_| None, plain()).unwrap();
    assert!(exporter.is_none() && !telemetry.tracer.with_content());
    let mut span = telemetry.tracer.root("nobody sees it", SpanContext::of(&[b"1"]));
    span.set("a", "b");
    assert_eq!(span.context(), SpanContext::of(&[b"1"]), "its name is there all the same, for logs");
}
