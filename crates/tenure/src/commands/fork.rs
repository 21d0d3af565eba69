//! `tenure fork SESSION`: a new session from a part of another one's log, and from files of some moment.

use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress};
use clap::Args;
use serde_json::{Map, Value};

/// Where the fork leaves, and what it begins with. The other session goes on as it was.
#[derive(Args, Debug)]
pub(crate) struct Fork {
    /// The session, by id or unique tail.
    session: String,
    /// The last event that both have; the newest one without it, 0 for no conversation.
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// The files that it begins with: as that event saw them (same), the newest (latest), none, or a snapshot.
    #[arg(long, value_name = "same|latest|none|SNAPSHOT", default_value = "same")]
    files: String,
    /// Leave before the newest message, and begin with this one instead of it.
    #[arg(long, value_name = "TEXT")]
    replace: Option<String>,
    /// Its title; that of the other session without it.
    #[arg(long)]
    title: Option<String>,
}

impl Fork {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let mut body = Map::from_iter([("files".to_owned(), Value::from(self.files))]);
        body.extend(self.at.map(|at| ("at_seq".to_owned(), Value::from(at))));
        body.extend(self.replace.map(|text| ("replace_last_input".to_owned(), Value::from(text))));
        body.extend(self.title.map(|title| ("title".to_owned(), Value::from(title))));
        let (path, body) = (["v1", "sessions", &id, "fork"], Value::Object(body));
        let reply = progress::watch("forking", client.post(&path, &body))
            .await
            .map_err(|error| Failure::from(error).doing(&format!("fork …{}", tail(&id))))?;
        if common.format() == Format::Json {
            output::json(&reply)?;
            return Ok(Exit::Ok);
        }
        let fork = reply["id"].as_str().unwrap_or_default();
        let seq = reply["forked_from"]["at_seq"].as_u64().unwrap_or(0);
        output::line(fork)?;
        output::say(&format!(
            "a fork of …{} at event {seq}; tenure send {} \"…\" lets it go on",
            tail(&id),
            tail(fork)
        ));
        Ok(Exit::Ok)
    }
}
