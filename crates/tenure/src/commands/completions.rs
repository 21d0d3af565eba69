//! `tenure completions SHELL`.

use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Flags of completions.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell; put the output where it looks for completions.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tenure", &mut script);
        output::raw(&script)?;
        Ok(Exit::Ok)
    }
}
