//! `tenure workbench`: a link that opens the workbench.

use crate::cli::Common;
use crate::connection::ask;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};
use clap::Args;
use serde_json::json;

/// Flags of `workbench`.
#[derive(Args, Debug)]
pub(crate) struct Workbench {}

impl Workbench {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let link = ask(client.post(&["v1", "logins"], &json!({}))).await?;
        match common.format() {
            Format::Json => output::json(&link)?,
            Format::Human => {
                output::line(link.get("url").and_then(serde_json::Value::as_str).unwrap_or_default())?;
                output::hint("open it in a browser; it works once, within an hour");
            }
        }
        Ok(Exit::Ok)
    }
}
