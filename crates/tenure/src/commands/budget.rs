//! `tenure budget SESSION`: changes limits; a session that waits at one goes on.

use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress, time};
use clap::Args;
use serde_json::{Map, Value};
use std::time::Duration;

/// New limits; at least one.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["usd", "steps", "tokens", "wall"]))]
pub(crate) struct Budget {
    /// The session, by id or unique tail.
    session: String,
    /// Money, in US dollars, since the session was made.
    #[arg(long, value_name = "DOLLARS")]
    usd: Option<f64>,
    /// Model and tool calls.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Tokens of all kinds.
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Time since the session was made, such as 2h.
    #[arg(long, value_name = "SPAN", value_parser = time::duration)]
    wall: Option<Duration>,
}

impl Budget {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let limits = [
            ("cost_usd", self.usd.map(Value::from)),
            ("steps", self.steps.map(Value::from)),
            ("tokens", self.tokens.map(Value::from)),
            ("wall_seconds", self.wall.map(|wall| Value::from(wall.as_secs().max(1)))),
        ];
        let body: Map<String, Value> =
            limits.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let (path, body) = (["v1", "sessions", &id, "budget"], Value::Object(body));
        let work = client.post(&path, &body);
        let reply = progress::watch("changing limits", work)
            .await
            .map_err(|error| Failure::from(error).doing(&format!("change the limits of …{}", tail(&id))))?;
        match common.format() {
            Format::Json => output::json(&reply)?,
            Format::Human => output::line(&format!("…{}: limits are changed", tail(&id)))?,
        }
        Ok(Exit::Ok)
    }
}
