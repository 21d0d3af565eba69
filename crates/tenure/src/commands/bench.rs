//! `tenure bench NAME`: measurements.

use crate::bench;
use crate::cli::Common;
use crate::failure::{Exit, Failure};
use clap::Args;
use clap::builder::PossibleValuesParser;

/// Flags of a bench.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// What to measure.
    #[arg(value_parser = PossibleValuesParser::new(bench::NAMES))]
    name: String,
}

impl Bench {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        bench::run(&self.name, common.json, common.data.clone()).await?;
        Ok(Exit::Ok)
    }
}
