//! Checkpoints per second and their latency, next to a bare loop of the same SQL.

use super::{Figure, fresh, millis};
use anyhow::Result;
use serde_json::json;
use std::path::Path;
use tenure_store_sqlite::bench::{run_bare, run_store};

/// Rounds of each measurement, in turns with the baseline.
const ROUNDS: usize = 8;

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (concurrency, commits) in [(1, 900), (64, 8_000), (1_024, 20_000)] {
        let (mut rates, mut bare, mut middle, mut high) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // Whoever comes second tends to be faster: the order changes with each round.
            if round % 2 == 0 {
                bare.push(baseline(folder, concurrency, commits).await?);
            }
            let measured = run_store(&fresh(folder, "store"), concurrency, commits).await?;
            rates.push(measured.per_second());
            middle.push(millis(measured.quantile(0.5)));
            high.push(millis(measured.quantile(0.99)));
            if round % 2 == 1 {
                bare.push(baseline(folder, concurrency, commits).await?);
            }
        }
        bare.sort_by(f64::total_cmp);
        let params = json!({ "concurrency": concurrency, "commits": commits });
        figures.push(
            Figure::new("commits", format!("checkpoints/s at {concurrency}"), "1/s", rates)
                .against(super::quantile(&bare, 0.5))
                .with(params.clone()),
        );
        figures.push(Figure::new("commits", format!("ack p50 at {concurrency}"), "ms", middle).with(params.clone()));
        figures.push(Figure::new("commits", format!("ack p99 at {concurrency}"), "ms", high).with(params));
    }
    Ok(figures)
}

/// Checkpoints per second of the bare loop.
async fn baseline(folder: &Path, concurrency: usize, commits: usize) -> Result<f64> {
    let place = fresh(folder, "bare");
    Ok(tokio::task::spawn_blocking(move || run_bare(&place, concurrency, commits)).await??.per_second())
}
