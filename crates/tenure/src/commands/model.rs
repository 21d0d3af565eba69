//! `tenure model SESSION NAME`: another model from the next request on; the history stays.

use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress};
use clap::Args;
use serde_json::{Map, Value, json};

/// Which model a session uses from its next request on; a wait for the old one ends.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("choice").required(true).multiple(true).args(["model", "fallbacks", "reset"]))]
pub(crate) struct Model {
    /// The session, by id or unique tail.
    session: String,
    /// The model, as PROVIDER/NAME or a name that the configuration knows.
    #[arg(value_name = "MODEL", conflicts_with = "reset")]
    model: Option<String>,
    /// A model to try after it; repeat it for more. Without any, those of the agent stay.
    #[arg(long = "fallback", value_name = "MODEL", conflicts_with = "reset")]
    fallbacks: Vec<String>,
    /// Take the agent's own models again.
    #[arg(long)]
    reset: bool,
}

impl Model {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let mut agent = Map::new();
        if self.reset {
            agent.extend([("model".to_owned(), Value::Null), ("fallback_models".to_owned(), Value::Null)]);
        }
        if let Some(model) = self.model {
            agent.insert("model".to_owned(), Value::from(model));
        }
        if !self.fallbacks.is_empty() {
            agent.insert("fallback_models".to_owned(), Value::from(self.fallbacks));
        }
        let (path, body) = (["v1", "sessions", &id], json!({ "agent": agent }));
        let work = client.post(&path, &body);
        let reply = progress::watch("changing the model", work)
            .await
            .map_err(|error| Failure::from(error).doing(&format!("change the model of …{}", tail(&id))))?;
        let model = reply["agent"]["model"]["id"].as_str().unwrap_or("the agent's own").to_owned();
        match common.format() {
            Format::Json => output::json(&reply)?,
            Format::Human => output::line(&format!("…{}: the next request goes to {model}", tail(&id)))?,
        }
        Ok(Exit::Ok)
    }
}
