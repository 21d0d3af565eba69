//! The reference of the metrics, written from the instruments, so that it cannot say what is not counted.

use crate::observed_store;
use std::collections::BTreeSet;
use std::fmt::Write;
use tenure_telemetry::{Kind, MAX_LABEL_BYTES, MAX_SERIES, OVERFLOW, Spec};

/// Where the page is, seen from this crate.
const PAGE: &str = "../../docs/reference/metrics.md";
/// Variable that makes the test write the page instead of comparing it.
const UPDATE: &str = "TENURE_UPDATE_DOCS";

fn page() -> String {
    let mut page = format!(
        "# Metrics\n\n\
         This page is written from the program: `TENURE_UPDATE_DOCS=1 cargo test -p tenure reference` makes it anew, and a\n\
         test fails while it is stale. How to scrape: [observe it](../guides/observe-it.md).\n\n\
         Names follow the conventions of OpenTelemetry where they have one, with underscores for dots. A counter's sample\n\
         ends with `_total`; a histogram has `_bucket`, `_count` and `_sum`. Series of a worker carry the label `node` when\n\
         a server tells them.\n\n\
         An instrument keeps at most {MAX_SERIES} series; what is beyond them is added up in one whose labels say\n\
         `{OVERFLOW}`. A label value is cut at {MAX_LABEL_BYTES} bytes. An empty label is left out.\n"
    );
    for (title, meters) in [
        ("A worker", tenure_engine::METERS),
        ("A server", tenure_server::METERS),
        ("The store, in each process", observed_store::METERS),
        ("Traces, in each process", tenure_telemetry::METERS),
    ] {
        let _ = write!(page, "\n## {title}\n\n| name | kind | labels | what it says |\n|---|---|---|---|\n");
        meters.iter().for_each(|spec| row(&mut page, spec));
    }
    page
}

fn row(page: &mut String, spec: &Spec) {
    let kind = match spec.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let labels: Vec<String> = spec.labels.iter().map(|label| format!("`{label}`")).collect();
    let _ = writeln!(page, "| `{}` | {kind} | {} | {} |", spec.name, labels.join(", "), spec.help);
}

#[test]
fn the_reference_of_the_metrics_says_what_is_counted() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page(), "{} is stale: {UPDATE}=1 cargo test -p tenure reference", path.display());
}

#[test]
fn names_are_used_once_and_well_formed() {
    let all = [tenure_engine::METERS, tenure_server::METERS, observed_store::METERS, tenure_telemetry::METERS];
    let mut names = BTreeSet::new();
    for spec in all.into_iter().flatten() {
        assert!(names.insert(spec.name), "{} comes twice", spec.name);
        assert!(spec.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", spec.name);
        assert!(!spec.name.ends_with("_total"), "{}: the sample gets it", spec.name);
        assert!(spec.help.ends_with('.'), "{}", spec.name);
        assert!(!spec.labels.contains(&"node") && !spec.labels.contains(&"le"), "{}", spec.name);
    }
}
