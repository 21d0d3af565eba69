//! `tenure ls SESSION` or `SESSION:PATH`: files of a session, as they are now or as a snapshot has them.

use super::approvals::text;
use crate::cli::Common;
use crate::connection::session_id;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, progress, table::Table, time};
use clap::Args;
use serde_json::Value;

/// Which folder.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// SESSION or SESSION:PATH.
    place: String,
    /// Sizes, modes and times.
    #[arg(long, short)]
    long: bool,
    /// Which state: live, the id of a snapshot, or seq:NUMBER for what that event saw.
    #[arg(long, value_name = "STATE")]
    at: Option<String>,
}

impl Ls {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let (session, path) = split(&self.place);
        let id = session_id(&client, session).await?;
        let query = query(path, self.at.as_deref());
        let url = ["v1", "sessions", &id, "files"];
        let folder = progress::watch("reading the folder", client.get(&url, &query))
            .await
            .map_err(|error| Failure::from(error).doing(&format!("list {}", self.place)))?;
        let entries: Vec<&Value> = folder.get("data").and_then(Value::as_array).into_iter().flatten().collect();
        if common.format() == Format::Json {
            for entry in entries {
                output::json(entry)?;
            }
            return Ok(Exit::Ok);
        }
        let mut table = Table::plain();
        for entry in &entries {
            let slash = if text(entry, "type") == "folder" { "/" } else { "" };
            let target = match text(entry, "target") {
                "" => String::new(),
                target => format!(" -> {target}"),
            };
            let name = format!("{}{slash}{target}", text(entry, "name"));
            if self.long {
                let mode = entry.get("mode").and_then(Value::as_u64).unwrap_or(0);
                let size = entry.get("size_bytes").and_then(Value::as_u64).map(time::size).unwrap_or_default();
                let changed = time::parse(text(entry, "modified_at")).map(time::clock).unwrap_or_default();
                table.row([format!("{:04o}", mode & 0o7777), size, changed, name]);
            } else {
                table.row([name]);
            }
        }
        for line in table.lines() {
            output::line(&line)?;
        }
        if text(&folder, "at") != "live" {
            output::say(&format!("As stored in {}.", inert::line(text(&folder, "at"))));
        }
        if folder.get("is_cut").and_then(Value::as_bool) == Some(true) {
            output::say("The folder has more entries than one reply takes; name a deeper path.");
        }
        Ok(Exit::Ok)
    }
}

/// What the routes of files are asked with.
pub(crate) fn query<'a>(path: &'a str, at: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
    std::iter::once(("path", path)).chain(at.map(|at| ("at", at))).collect()
}

/// SESSION and PATH of `SESSION:PATH`; the root without a path.
pub(crate) fn split(place: &str) -> (&str, &str) {
    let (session, path) = place.split_once(':').unwrap_or((place, ""));
    (session, path)
}
