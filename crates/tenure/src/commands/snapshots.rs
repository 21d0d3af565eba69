//! `tenure snapshots SESSION [--take]`: what of a session's files is stored.

use super::approvals::text;
use crate::cli::Common;
use crate::connection::{ask, session_id};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, progress, table::Table, time};
use clap::Args;
use serde_json::{Value, json};

/// Which session.
#[derive(Args, Debug)]
pub(crate) struct Snapshots {
    /// The session, by id or unique tail.
    session: String,
    /// Store the files as they are now, and show that snapshot.
    #[arg(long)]
    take: bool,
    /// List at most so many, newest first.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with = "take")]
    limit: u32,
}

impl Snapshots {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let url = ["v1", "sessions", &id, "snapshots"];
        let snapshots = if self.take {
            let taken = progress::watch("storing the files", client.post(&url, &json!({}))).await;
            vec![taken.map_err(|error| Failure::from(error).doing(&format!("store the files of {id}")))?]
        } else {
            ask(client.list(&url, &[], self.limit as usize)).await?.data
        };
        if common.format() == Format::Json {
            for snapshot in &snapshots {
                output::json(snapshot)?;
            }
            return Ok(Exit::Ok);
        }
        if snapshots.is_empty() {
            output::say("No snapshot of this session yet.");
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["SNAPSHOT", "TAKEN", "EVENT", "ENTRIES", "SIZE", "STORED", "STATE"]);
        for snapshot in &snapshots {
            let number = |name: &str| snapshot.get(name).and_then(Value::as_u64).unwrap_or(0);
            let taken = time::parse(text(snapshot, "created_at")).map(time::clock).unwrap_or_default();
            let left_out = match number("left_out_count") {
                0 => String::new(),
                count => format!(", {count} left out"),
            };
            table.row([
                inert::line(text(snapshot, "id")).to_string(),
                taken,
                number("seq").to_string(),
                number("entries").to_string(),
                time::size(number("bytes")),
                time::size(number("new_bytes")),
                format!("{}{left_out}", inert::line(text(snapshot, "consistency"))),
            ]);
        }
        for line in table.lines() {
            output::line(&line)?;
        }
        Ok(Exit::Ok)
    }
}
