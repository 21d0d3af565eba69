//! Measures checkpoints per second: `cargo run --release -p tenure-store-sqlite --example commits -- FOLDER [CONCURRENCY]`.

use std::path::PathBuf;
use tenure_store_sqlite::bench::{Measured, run_bare, run_store};

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("give an empty folder on the disk to measure"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    println!("{:>6} {:>8} {:>10} {:>10} {:>10}", "open", "what", "commits/s", "p50 ms", "p99 ms");
    let only: Option<usize> =
        std::env::args().nth(2).map(|text| text.parse().expect("the second argument is a number"));
    let sizes = [(1, 500), (64, 20_000), (1_024, 40_000)];
    let wanted = sizes.into_iter().filter(|(concurrency, _)| only.is_none_or(|only| only == *concurrency));
    for (round, (concurrency, commits)) in wanted.clone().chain(wanted).enumerate() {
        let bare = run_bare(&folder.join(format!("bare-{round}")), concurrency, commits).expect("the bare loop runs");
        show(concurrency, "bare", &bare);
        let store = runtime.block_on(run_store(&folder.join(format!("store-{round}")), concurrency, commits));
        let store = store.expect("the store runs");
        show(concurrency, "store", &store);
        println!("{:>6} {:>8} {:>10.2}", concurrency, "ratio", store.per_second() / bare.per_second());
    }
}

fn show(concurrency: usize, what: &str, measured: &Measured) {
    let millis = |share| measured.quantile(share).as_secs_f64() * 1_000.0;
    println!("{concurrency:>6} {what:>8} {:>10.0} {:>10.2} {:>10.2}", measured.per_second(), millis(0.5), millis(0.99));
}
