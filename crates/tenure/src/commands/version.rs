//! `tenure version`: this program, and the server where one answers.

use crate::cli::Common;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};
use clap::Args;
use serde_json::{Value, json};

/// Flags of `version`.
#[derive(Args, Debug)]
pub(crate) struct Version {}

impl Version {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let own = env!("CARGO_PKG_VERSION");
        let server = server_version(common).await;
        match common.format() {
            Format::Json => output::json(&json!({ "version": own, "server_version": server }))?,
            Format::Human => {
                output::line(&format!("tenure {own}"))?;
                match server {
                    Some(server) if server != own => output::say(&format!("the server is version {server}")),
                    Some(_) | None => {}
                }
            }
        }
        Ok(Exit::Ok)
    }
}

/// The version that the server names; nothing if none answers.
pub(crate) async fn server_version(common: &Common) -> Option<String> {
    let client = common.target().connect().ok()?;
    let document = client.get(&["openapi.json"], &[]).await.ok()?;
    document.pointer("/info/version").and_then(Value::as_str).map(str::to_owned)
}
