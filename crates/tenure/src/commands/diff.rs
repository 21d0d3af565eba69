//! `tenure diff SESSION[:PATH] [--from STATE] [--to STATE]`: which files differ between two states.

use super::approvals::text;
use super::ls::split;
use crate::cli::Common;
use crate::connection::session_id;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, progress};
use clap::Args;
use serde_json::Value;

/// Changes that are asked for.
const MOST: &str = "10000";

/// Which files.
#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// SESSION or SESSION:PATH.
    place: String,
    /// Compare with this state: start, the id of a snapshot, or seq:NUMBER for what that event saw.
    #[arg(long, value_name = "STATE", default_value = "start")]
    from: String,
    /// The state that is compared: live, the id of a snapshot, or seq:NUMBER; default: the newest.
    #[arg(long, value_name = "STATE")]
    to: Option<String>,
}

impl Diff {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let (session, path) = split(&self.place);
        let id = session_id(&client, session).await?;
        let mut query = vec![("path", path), ("from", self.from.as_str()), ("limit", MOST)];
        query.extend(self.to.as_deref().map(|to| ("to", to)));
        let url = ["v1", "sessions", &id, "diff"];
        let diff = progress::watch("comparing the files", client.get(&url, &query))
            .await
            .map_err(|error| Failure::from(error).doing(&format!("compare the files of {}", self.place)))?;
        let changes: Vec<&Value> = diff.get("data").and_then(Value::as_array).into_iter().flatten().collect();
        for change in &changes {
            if common.format() == Format::Json {
                output::json(change)?;
                continue;
            }
            let entry = change.get("after").or_else(|| change.get("before")).unwrap_or(&Value::Null);
            let sign = match text(change, "change") {
                "added" => "+",
                "removed" => "-",
                _ => "~",
            };
            let slash = if text(entry, "type") == "folder" { "/" } else { "" };
            output::line(&format!("{sign} {}{slash}", inert::line(text(entry, "path"))))?;
        }
        if common.format() == Format::Human {
            let states = format!("from {} to {}", inert::line(text(&diff, "from")), inert::line(text(&diff, "to")));
            match changes.len() {
                0 => output::say(&format!("No difference {states}.")),
                count => output::say(&format!("{count} changes {states}.")),
            }
        }
        if diff.get("is_cut").and_then(Value::as_bool) == Some(true) {
            output::say("There are more changes than one reply takes; name a deeper path.");
        }
        Ok(Exit::Ok)
    }
}
