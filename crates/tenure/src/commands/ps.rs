//! `tenure ps`: sessions, the newest first, each with the reason why it does not run.

use super::approvals::text;
use crate::cli::Common;
use crate::connection::{ask, id_of, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, table::Table, time};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

/// Flags of `ps`.
#[derive(Args, Debug)]
pub(crate) struct Ps {
    /// Most sessions that are listed.
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only sessions in this phase: queued, working, waiting, needs_you, backing_off, paused, idle, done, failed, cancelled.
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Archived ones too.
    #[arg(long, short = 'a')]
    all: bool,
}

/// Sessions that are looked through for a phase.
const MOST_LOOKED_AT: usize = 1000;

impl Ps {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let query: &[(&str, &str)] = if self.all { &[("include_archived", "true")] } else { &[] };
        let most = if self.phase.is_some() { MOST_LOOKED_AT } else { self.limit };
        let listed = ask(client.list(&["v1", "sessions"], query, most)).await?;
        let is_meant = |session: &&Value| self.phase.as_ref().is_none_or(|phase| text(session, "phase") == phase);
        let sessions: Vec<&Value> = listed.data.iter().filter(is_meant).take(self.limit).collect();
        if common.format() == Format::Json {
            for session in sessions {
                output::json(session)?;
            }
            return Ok(Exit::Ok);
        }
        if sessions.is_empty() {
            output::say("No sessions.");
            output::hint("tenure run \"…\" starts one; tenure demo shows the proof");
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["SESSION", "STATE", "WHY", "AGE", "COST", "TITLE"]);
        for session in &sessions {
            let age = time::parse(text(session, "created_at")).map(|at| time::span(time::age(at))).unwrap_or_default();
            table.row([
                format!("…{}", tail(id_of(session))),
                state(text(session, "phase")),
                inert::brief(&why(session), 48),
                age,
                cost(session),
                inert::brief(text(session, "title"), 40),
            ]);
        }
        for line in table.lines() {
            output::line(&line)?;
        }
        if listed.more {
            output::say(&format!("The newest {}; more with -n.", sessions.len()));
        }
        if sessions.iter().any(|session| text(session, "phase") == "needs_you") {
            output::hint("tenure approvals shows what needs you");
        }
        Ok(Exit::Ok)
    }
}

/// Shape and word of a phase.
pub(crate) fn state(phase: &str) -> String {
    let (shape, word) = match phase {
        "queued" => ("○", "queued"),
        "working" => ("●", "working"),
        "waiting" => ("⧗", "waiting"),
        "needs_you" => ("◇", "needs you"),
        "backing_off" => ("~", "backing off"),
        "paused" => ("‖", "paused"),
        "idle" => ("·", "idle"),
        "done" => ("✓", "done"),
        "failed" => ("✗", "failed"),
        "cancelled" => ("⊘", "cancelled"),
        // A word of a later server.
        other => ("?", other),
    };
    format!("{shape} {word}")
}

/// The reason in a few words, from the wait of the session.
fn why(session: &Value) -> String {
    let wait = session.get("wait").cloned().unwrap_or(Value::Null);
    let field = |name: &str| text(&wait, name);
    let until = time::parse(field("until")).map(|at| at.duration_since(Timestamp::now()));
    let next = until.map(|span| format!(", next in {}", time::span(span))).unwrap_or_default();
    match field("kind") {
        "" if text(session, "phase") == "queued" => session
            .get("queue_position")
            .and_then(Value::as_u64)
            .map(|position| format!("{position} in line"))
            .unwrap_or_default(),
        "" if text(session, "phase") == "working" => text(session, "node").to_owned(),
        "" => session.get("stop_reason").map(|reason| text(reason, "type").replace('_', " ")).unwrap_or_default(),
        "action" => {
            let open = session.get("open_calls").and_then(Value::as_array).into_iter().flatten();
            let names: Vec<&str> =
                open.filter(|call| text(call, "state") == "needs_answer").map(|call| text(call, "name")).collect();
            format!("answer to {}", names.join(", "))
        }
        "backoff" | "upstream" | "condition" => format!("{}{next}", field("class").replace('_', " ")),
        "budget" => format!("limit of {} reached", field("limit")),
        kind => format!("{}{next}", kind.replace('_', " ")),
    }
}

/// What a session has cost; a plus sign if a part has no price.
pub(crate) fn cost(session: &Value) -> String {
    let usage = session.get("usage").cloned().unwrap_or(Value::Null);
    let usd = usage.get("cost_usd").and_then(Value::as_f64).map(time::money).unwrap_or_default();
    let plus = if usage.get("has_unpriced").and_then(Value::as_bool) == Some(true) { "+" } else { "" };
    format!("{usd}{plus}")
}
