//! The text of metrics, judged by a reader of the grammar that is written for the test.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tenure_telemetry::*;

const ASKED: Spec =
    Spec { name: "asked", kind: Kind::Counter, labels: &["model", "class"], help: "How often\nit was asked \\ told." };
const OPEN: Spec = Spec { name: "open", kind: Kind::Gauge, labels: &[], help: "What is open." };
const TOOK: Spec =
    Spec { name: "took_seconds", kind: Kind::Histogram(&[0.5, 1.0]), labels: &["tool"], help: "How long." };

fn registry() -> Registry {
    let registry = Registry::default();
    registry.counter(&ASKED).add(&["a\"b\\c\nd", ""], 3);
    registry.gauge(&OPEN).set(&[], 1.5);
    for value in [0.1, 0.5, 0.7, 9.0] {
        registry.histogram(&TOOK).observe(&["bash"], value);
    }
    registry
}

#[test]
fn openmetrics_is_written_to_the_letter() {
    let text = write(&registry().snapshot(), Format::OpenMetrics);
    let expected = r#"# HELP asked How often\nit was asked \\ told.
# TYPE asked counter
asked_total{model="a\"b\\c\nd"} 3.0
# HELP open What is open.
# TYPE open gauge
open 1.5
# HELP took_seconds How long.
# TYPE took_seconds histogram
# UNIT took_seconds seconds
took_seconds_bucket{tool="bash",le="0.5"} 2
took_seconds_bucket{tool="bash",le="1.0"} 3
took_seconds_bucket{tool="bash",le="+Inf"} 4
took_seconds_count{tool="bash"} 4
took_seconds_sum{tool="bash"} 10.3
# EOF
"#;
    assert_eq!(text, expected);
}

#[test]
fn the_older_format_names_the_sample_and_has_neither_unit_nor_end() {
    let text = write(&registry().snapshot(), Format::Prometheus);
    assert!(text.contains("# TYPE asked_total counter\nasked_total{"), "{text}");
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    for (accept, format) in [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1", Format::OpenMetrics),
        ("text/plain;version=0.0.4", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("", Format::Prometheus),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

#[test]
fn series_of_several_nodes_stand_under_one_name() {
    let (own, other) = (registry().snapshot(), registry().snapshot());
    let json = serde_json::to_string(&other).unwrap();
    let told: Vec<Family> = serde_json::from_str(&json).unwrap();
    assert_eq!(told, other, "as it is told from node to node");
    let mut wrong = other.clone();
    wrong[0].kind = "gauge".into();
    let merged = merge(own, vec![("node_1".into(), told), ("node_2".into(), wrong)]);
    let text = write(&merged, Format::OpenMetrics);
    assert_eq!(text.matches("# TYPE asked counter").count(), 1);
    assert!(
        text.contains(
            "asked_total{model=\"a\\\"b\\\\c\\nd\"} 3.0\nasked_total{model=\"a\\\"b\\\\c\\nd\",node=\"node_1\"} 3.0\n# "
        ),
        "{text}"
    );
    read(&text);
}

/// Reads a text by the grammar of OpenMetrics, strictly.
fn read(text: &str) -> BTreeMap<String, f64> {
    let (body, end) = text.split_at(text.len() - "# EOF\n".len());
    assert_eq!(end, "# EOF\n");
    let (mut family, mut known, mut samples) = (String::new(), Vec::new(), BTreeMap::new());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (keyword, name) = (words.next().unwrap(), words.next().unwrap());
            assert!(["HELP", "TYPE", "UNIT"].contains(&keyword), "{line}");
            if name != family {
                assert!(!known.contains(&name.to_owned()), "{name} is in two places");
                known.push(name.to_owned());
                family = name.to_owned();
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(name.starts_with(&family), "{line} under {family}");
        if let Some(labels) = series.strip_prefix(name).and_then(|rest| rest.strip_prefix('{')) {
            check_labels(labels.strip_suffix('}').unwrap());
        }
        assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{series} comes twice");
    }
    samples
}

fn check_labels(mut labels: &str) {
    loop {
        let (name, rest) = labels.split_once("=\"").unwrap();
        assert!(name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'), "{name:?}");
        let mut escaped = false;
        let end = rest.find(|letter| {
            let is_end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            is_end
        });
        let rest = &rest[end.unwrap() + 1..];
        match rest.strip_prefix(',') {
            Some(more) => labels = more,
            None => return assert_eq!(rest, ""),
        }
    }
}

proptest! {
    #[test]
    fn no_label_value_breaks_the_text(values in proptest::collection::vec((any::<String>(), any::<String>()), 0..40)) {
        let registry = registry();
        let counter = registry.counter(&ASKED);
        for (model, class) in &values {
            counter.add(&[model, class], 1);
        }
        let text = write(&registry.snapshot(), Format::OpenMetrics);
        let samples = read(&text);
        let asked: f64 = samples.iter().filter(|(name, _)| name.starts_with("asked_total")).map(|(_, value)| value).sum();
        prop_assert_eq!(asked, values.len() as f64 + 3.0);
    }
}
