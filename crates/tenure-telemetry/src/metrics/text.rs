//! The text that scrapers read: OpenMetrics 1.0, and the older format of Prometheus.

use super::snapshot::{Family, Sampled};
use std::fmt::Write;

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4, which every scraper reads.
    Prometheus,
}

impl Format {
    /// What an `Accept` header asks for.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Units that a name can end with.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// Writes all families; those without a series too, so that their names are known.
pub fn write(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for family in families {
        head(&mut text, family, format);
        for sample in &family.samples {
            let labels = labels(&sample.labels);
            match &sample.value {
                Sampled::Number(value) => {
                    let suffix = if family.kind == "counter" { "_total" } else { "" };
                    line(&mut text, &family.name, suffix, &labels, number(*value));
                }
                Sampled::Buckets { bounds, counts, sum } => {
                    let mut so_far = 0;
                    let bounds = bounds.iter().copied().chain([f64::INFINITY]);
                    for (bound, count) in bounds.zip(counts) {
                        so_far += count;
                        let bound = format!("le=\"{}\"", number(bound));
                        let labels = if labels.is_empty() { bound } else { format!("{labels},{bound}") };
                        line(&mut text, &family.name, "_bucket", &labels, so_far.to_string());
                    }
                    line(&mut text, &family.name, "_count", &labels, so_far.to_string());
                    line(&mut text, &family.name, "_sum", &labels, number(*sum));
                }
            }
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn head(text: &mut String, family: &Family, format: Format) {
    // The older format names the sample, OpenMetrics the family.
    let name = match (format, family.kind.as_str()) {
        (Format::Prometheus, "counter") => format!("{}_total", family.name),
        (Format::Prometheus | Format::OpenMetrics, _) => family.name.clone(),
    };
    let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", family.kind);
    let unit = family.name.rsplit('_').next().filter(|end| UNITS.contains(end));
    if let (Format::OpenMetrics, Some(unit)) = (format, unit) {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &str, value: String) {
    let _ = match labels {
        "" => writeln!(text, "{name}{suffix} {value}"),
        labels => writeln!(text, "{name}{suffix}{{{labels}}} {value}"),
    };
}

fn labels(labels: &[(String, String)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect::<Vec<_>>().join(",")
}

/// A number as both formats write it: bounds of OpenMetrics are never bare integers.
fn number(value: f64) -> String {
    if value == f64::INFINITY {
        return "+Inf".to_owned();
    }
    format!("{value:?}")
}
