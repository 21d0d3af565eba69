//! `tenure agents apply|list`: agents as files.

use super::approvals::text;
use crate::cli::Common;
use crate::failure::{Exit, Failure};
use crate::output::table::Table;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::path::PathBuf;

mod definition;

pub(crate) use definition::{Kind, apply, list};

/// What to do with agents.
#[derive(Args, Debug)]
pub(crate) struct Agents {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create agents, or make new versions of those with the same name.
    Apply {
        /// Definitions, TOML or JSON, with the fields of POST /v1/agents.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// List agents.
    List,
}

impl Agents {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        match self.action {
            Action::Apply { files } => apply(common, Kind::Agent, &files).await,
            Action::List => {
                list(common, Kind::Agent, &["AGENT", "NAME", "VERSION", "MODEL"], |table: &mut Table, agent: &Value| {
                    let version = agent.get("version").map(ToString::to_string).unwrap_or_default();
                    let model = agent.get("model").map_or("", |model| model.as_str().unwrap_or(text(model, "id")));
                    table.row([
                        text(agent, "id").to_owned(),
                        text(agent, "name").to_owned(),
                        version,
                        model.to_owned(),
                    ]);
                })
                .await
            }
        }
    }
}
