//! Rounds of kill -9: a test like the others, which plays more of them when it is told to.

use crate::run::root;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs the test with these arguments.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let mut filter = "crash::p_12".to_owned();
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} wants a value"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{name} {value}: not a number"));
        match (name.as_str(), value.as_str()) {
            ("--rounds", _) => command.env("TENURE_CRASH_ROUNDS", number()?.to_string()),
            ("--seed", _) => command.env("TENURE_CRASH_SEED", number()?.to_string()),
            ("--store", "sqlite") => {
                filter = "nothing_on_sqlite".to_owned();
                &mut command
            }
            ("--store", "postgres") => {
                filter = "nothing_on_postgresql".to_owned();
                &mut command
            }
            ("--store", other) => bail!("there is no store {other}; those are sqlite and postgres"),
            (other, _) => bail!("there is no {other}; there are --rounds, --store and --seed"),
        };
    }
    command.args(["test", "--package", "tenure", "--test", "it", &filter, "--", "--nocapture"]);
    let status = command.current_dir(root()).status().context("start cargo")?;
    if !status.success() {
        bail!("a round of kill -9 broke a promise, or could not be played");
    }
    Ok(())
}
