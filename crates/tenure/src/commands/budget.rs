//! `tenure budget SESSION`: changes limits; a session that waits at one goes on.

use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress, time};
use clap::Args;
use serde_json::{Map, Value};

/// New limits; at least one. `none` takes a limit away.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["usd", "steps", "tokens", "wall", "failures", "identical_calls"]))]
pub(crate) struct Budget {
    /// The session, by id or unique tail.
    session: String,
    /// Money, in US dollars, since the session was made.
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    usd: Option<Value>,
    /// Model and tool calls.
    #[arg(long, value_name = "N", value_parser = number)]
    steps: Option<Value>,
    /// Tokens of all kinds.
    #[arg(long, value_name = "N", value_parser = number)]
    tokens: Option<Value>,
    /// Time since the session was made, such as 2h.
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    wall: Option<Value>,
    /// Tool calls that failed in a row.
    #[arg(long, value_name = "N", value_parser = number)]
    failures: Option<Value>,
    /// The same call in a row.
    #[arg(long, value_name = "N", value_parser = number)]
    identical_calls: Option<Value>,
}

/// Takes a limit away.
const NONE: &str = "none";

fn dollars(text: &str) -> Result<Value, String> {
    let dollars = || text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd >= 0.0).map(Value::from);
    limit(text, dollars, "dollars")
}

fn number(text: &str) -> Result<Value, String> {
    limit(text, || text.parse().ok().map(|number: u64| Value::from(number)), "a whole number")
}

fn seconds(text: &str) -> Result<Value, String> {
    if text == NONE {
        return Ok(Value::Null);
    }
    time::duration(text).map(|span| Value::from(span.as_secs().max(1)))
}

fn limit(text: &str, read: impl Fn() -> Option<Value>, expected: &str) -> Result<Value, String> {
    if text == NONE {
        return Ok(Value::Null);
    }
    read().ok_or_else(|| format!("expected {expected}, or {NONE} for no limit"))
}

impl Budget {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let limits = [
            ("cost_usd", self.usd),
            ("steps", self.steps),
            ("tokens", self.tokens),
            ("wall_seconds", self.wall),
            ("failures", self.failures),
            ("identical_calls", self.identical_calls),
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
