//! `tenure config show`: what is in force, and who said so. Secrets are never shown.

use crate::cli::Common;
use crate::config;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, table::Table};
use clap::{Args, Subcommand};
use serde_json::json;

/// What to do with the configuration.
#[derive(Args, Debug)]
pub(crate) struct Config {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the settings in force.
    Show {
        /// Say which flag, variable or file each one comes from.
        #[arg(long)]
        origin: bool,
    },
}

impl Config {
    pub(crate) fn run(self, common: &Common) -> Result<Exit, Failure> {
        let Action::Show { origin } = self.action;
        let config = config::load(&common.flags())?;
        if common.format() == Format::Json {
            for setting in &config.settings {
                output::json(&json!({ "key": setting.key, "value": setting.value, "origin": setting.origin }))?;
            }
            return Ok(Exit::Ok);
        }
        let mut table = Table::plain();
        for setting in config.settings {
            let value = format!("{} = {}", setting.key, setting.value.to_string().replace('\n', " "));
            let from = if origin { format!("# {}", setting.origin) } else { String::new() };
            table.row([value, from]);
        }
        for line in table.lines() {
            output::line(&line)?;
        }
        Ok(Exit::Ok)
    }
}
