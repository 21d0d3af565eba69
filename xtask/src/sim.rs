//! The simulator.

use crate::run::{cargo, program, target};
use anyhow::Result;

/// How long the simulator tries seeds when all tests are run.
pub(crate) const CI_SECONDS: u64 = 30;

/// Builds it, and passes the arguments on.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    cargo("build the simulator", &["build", "--package", "tenure-sim", "--bin", "tenure-sim"])?;
    let path = target().join("debug").join("tenure-sim");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    program("simulate", &path, &arguments)
}
