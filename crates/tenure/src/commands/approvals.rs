//! `tenure approvals`: what needs a person, across sessions.

use crate::cli::Common;
use crate::connection::{ask, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, table::Table, time};
use clap::Args;
use serde_json::Value;
use tenure_api::client::Client;

/// Most entries that are listed.
const MOST: usize = 1000;
/// Characters of a call's input in a list.
const INPUT_CHARS: usize = 60;

/// Flags of `approvals`.
#[derive(Args, Debug)]
pub(crate) struct Approvals {}

impl Approvals {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let open = list(&client).await?;
        if common.format() == Format::Json {
            for approval in &open {
                output::json(approval)?;
            }
            return Ok(Exit::Ok);
        }
        if open.is_empty() {
            output::say("Nothing needs you.");
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["SESSION", "TOOL", "INPUT", "ASKED", "TITLE"]);
        for approval in &open {
            let asked = text(approval, "since")
                .parse()
                .map(|since| format!("{} ago", time::span(time::age(since))))
                .unwrap_or_default();
            table.row([
                format!("…{}", tail(text(approval, "session_id"))),
                text(approval, "name").to_owned(),
                input(approval, INPUT_CHARS),
                asked,
                inert::brief(text(approval, "session_title"), 40),
            ]);
        }
        for line in table.lines() {
            output::line(&line)?;
        }
        output::hint(
            "tenure approve SESSION, or tenure deny SESSION --because TEXT; a custom tool: tenure send SESSION TEXT --result-for CALL",
        );
        Ok(Exit::Ok)
    }
}

/// Everything that waits for a person.
pub(crate) async fn list(client: &Client) -> Result<Vec<Value>, Failure> {
    Ok(ask(client.list(&["v1", "approvals"], &[], MOST)).await?.data)
}

/// Fields of which the first one there says most about a call.
pub(crate) const MAIN_FIELDS: [&str; 6] = ["command", "file_path", "path", "pattern", "url", "question"];

/// What a call would do, in one line.
pub(crate) fn input(approval: &Value, most: usize) -> String {
    let input = approval.get("input").cloned().unwrap_or(Value::Null);
    let main = MAIN_FIELDS.iter().find_map(|name| input.get(name).and_then(Value::as_str));
    inert::brief(&main.map_or_else(|| input.to_string(), str::to_owned), most)
}

/// A text field; empty if it is not there.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}
