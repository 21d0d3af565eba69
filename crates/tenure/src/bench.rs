//! `tenure bench NAME`: measurements, each next to what it is compared with, in the same run.

mod allocations;
mod chaos;
mod commits;
mod decoders;
mod fanout;
mod outage;
mod previews;
mod sandbox;
mod start;
mod steps;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names of the benches that exist.
pub(crate) const NAMES: [&str; 9] =
    ["commits", "steps", "previews", "fanout", "sandbox", "start", "decoders", "outage", "chaos"];

/// One measured figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    bench: &'static str,
    figure: String,
    unit: &'static str,
    values: Vec<f64>,
    baseline: Option<f64>,
    params: Value,
}

impl Figure {
    /// A figure of several values, all in `unit`.
    pub(crate) fn new(bench: &'static str, figure: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self { bench, figure: figure.into(), unit, values, baseline: None, params: json!({}) }
    }

    /// What it is compared with, measured in the same run.
    #[must_use]
    pub(crate) fn against(mut self, baseline: f64) -> Self {
        self.baseline = Some(baseline);
        self
    }

    /// What was varied.
    #[must_use]
    pub(crate) fn with(mut self, params: Value) -> Self {
        self.params = params;
        self
    }

    fn line(&self) -> Value {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 0.5);
        let mut line = json!({
            "bench": self.bench, "figure": self.figure, "unit": self.unit, "n": sorted.len(),
            "min": sorted.first(), "median": median, "max": sorted.last(), "params": self.params,
        });
        if let Some(baseline) = self.baseline {
            line["baseline"] = json!(baseline);
            line["ratio"] = json!(median / baseline);
        }
        line
    }
}

/// The value below which a share of sorted values lies.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Milliseconds of a duration.
pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

/// Runs a bench and prints its figures, one JSON object a line under `--json`.
///
/// # Errors
/// When there is no such bench, or a part of it cannot be started.
pub(crate) async fn run(name: &str, is_json: bool, data: Option<PathBuf>) -> Result<()> {
    let folder = data.unwrap_or_else(|| std::env::temp_dir().join(format!("tenure-bench-{}", std::process::id())));
    std::fs::create_dir_all(&folder)?;
    let figures = match name {
        "chaos" => chaos::run(&folder).await,
        "commits" => commits::run(&folder).await,
        "decoders" => decoders::run(),
        "steps" => steps::run(&folder).await,
        "fanout" => fanout::run(&folder).await,
        "previews" => previews::run(&folder).await,
        "sandbox" => sandbox::run(&folder).await,
        "start" => start::run(&folder).await,
        "outage" => outage::run(&folder).await,
        other => bail!("there is no bench {other:?}; there are: {}", NAMES.join(", ")),
    };
    let _ = std::fs::remove_dir_all(&folder);
    for figure in figures? {
        let line = figure.line();
        if is_json {
            println!("{line}");
        } else {
            let number = |name: &str| line[name].as_f64().map(|value| format!("{value:.2}")).unwrap_or_default();
            let compared = if line["ratio"].is_null() {
                String::new()
            } else {
                format!("  baseline {}  ratio {}", number("baseline"), number("ratio"))
            };
            println!(
                "{:10} {:44} {:>10} {}  (min {}, max {}, n {}){compared}",
                figure.bench,
                figure.figure,
                number("median"),
                figure.unit,
                number("min"),
                number("max"),
                line["n"]
            );
        }
    }
    Ok(())
}

/// A folder for one measurement.
pub(crate) fn fresh(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-{:08x}", rand::random::<u32>()))
}
