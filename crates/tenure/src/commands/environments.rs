//! `tenure environments apply|list`: environments as files.

use super::agents::{Kind, apply, list};
use super::approvals::text;
use crate::cli::Common;
use crate::failure::{Exit, Failure};
use crate::output::table::Table;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::path::PathBuf;

/// What to do with environments.
#[derive(Args, Debug)]
pub(crate) struct Environments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create environments, or change those with the same name.
    Apply {
        /// Definitions, TOML or JSON, with the fields of POST /v1/environments.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// List environments.
    List,
}

impl Environments {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        match self.action {
            Action::Apply { files } => apply(common, Kind::Environment, &files).await,
            Action::List => {
                list(
                    common,
                    Kind::Environment,
                    &["ENVIRONMENT", "NAME", "SANDBOX", "NETWORK"],
                    |table: &mut Table, environment: &Value| {
                        let effective = environment.get("effective").cloned().unwrap_or(Value::Null);
                        table.row([
                            text(environment, "id").to_owned(),
                            text(environment, "name").to_owned(),
                            text(&effective, "driver").to_owned(),
                            text(&effective, "network").to_owned(),
                        ]);
                    },
                )
                .await
            }
        }
    }
}
