//! `tenure ps`: sessions, the newest first, each with the reason why it does not run.

use super::approvals::text;
use crate::cli::Common;
use crate::connection::{ask, id_of, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, table::Table, time};
use crate::stop;
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;
use tenure_api::client::Client;

/// Flags of `ps`.
#[derive(Args, Debug)]
pub(crate) struct Ps {
    /// Most sessions that are listed.
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only sessions in this phase.
    #[arg(long, value_name = "PHASE", value_parser = PHASES)]
    phase: Option<String>,
    /// Only sessions that match, such as 'phase:waiting agent:coder age:>1h'.
    #[arg(long, short, value_name = "QUERY")]
    query: Option<String>,
    /// Shows the list again every two seconds, until Ctrl-C.
    #[arg(long, short, conflicts_with = "json")]
    watch: bool,
    /// Archived ones too.
    #[arg(long, short = 'a')]
    all: bool,
}

/// All phases, in the order of a session's life.
const PHASES: [&str; 10] =
    ["queued", "working", "waiting", "needs_you", "backing_off", "paused", "idle", "done", "failed", "cancelled"];

/// How often the list is shown again.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Moves to the first column of the first line; what stood there is overwritten.
const HOME: &str = "\x1b[H";
/// Clears from here to the end of the line, and from here to the end of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

impl Ps {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        if !self.watch {
            let (sessions, more) = self.list(&client).await?;
            return self.show(&sessions, more, common.format());
        }
        if !output::is_terminal() {
            return Err(Failure::new(Exit::Usage, "--watch needs a terminal").fix("tenure ps --json, again and again"));
        }
        let stop = stop::on_signals().map_err(anyhow::Error::from)?;
        loop {
            let (sessions, _) = self.list(&client).await?;
            let lines = self.table(&sessions);
            let shown: String = lines.iter().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
            output::raw(format!("{HOME}{shown}{CLEAR_REST}").as_bytes())?;
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                () = stop.cancelled() => return Ok(Exit::Ok),
            }
        }
    }

    /// The sessions that are meant, and whether there are more.
    async fn list(&self, client: &Client) -> Result<(Vec<Value>, bool), Failure> {
        let mut query: Vec<(&str, &str)> = Vec::new();
        query.extend(self.all.then_some(("include_archived", "true")));
        query.extend(self.query.as_deref().map(|text| ("q", text)));
        query.extend(self.phase.as_deref().map(|phase| ("phases[]", phase)));
        let listed = ask(client.list(&["v1", "sessions"], &query, self.limit)).await?;
        Ok((listed.data, listed.more))
    }

    fn show(&self, sessions: &[Value], more: bool, format: Format) -> Result<Exit, Failure> {
        if format == Format::Json {
            for session in sessions {
                output::json(session)?;
            }
            return Ok(Exit::Ok);
        }
        if sessions.is_empty() {
            match (&self.phase, &self.query) {
                (Some(phase), None) => output::say(&format!("No session is in the phase {phase}.")),
                (Some(_) | None, Some(_)) => output::say("No session matches."),
                (None, None) => {
                    output::say("No sessions.");
                    output::hint("tenure run \"…\" starts one; tenure demo shows the proof");
                }
            }
            return Ok(Exit::Ok);
        }
        for line in self.table(sessions) {
            output::line(&line)?;
        }
        if more {
            output::say(&format!("The newest {}; more with -n.", sessions.len()));
        }
        if sessions.iter().any(|session| text(session, "phase") == "needs_you") {
            output::hint("tenure approvals shows what needs you");
        }
        Ok(Exit::Ok)
    }

    fn table(&self, sessions: &[Value]) -> Vec<String> {
        let mut table = Table::new(&["SESSION", "STATE", "WHY", "AGE", "COST", "TITLE"]);
        for session in sessions {
            let age = time::parse(text(session, "created_at")).map(|at| time::span(time::age(at))).unwrap_or_default();
            table.row([
                format!("…{}", tail(id_of(session))),
                state(text(session, "phase")),
                inert::brief(&why(session), WHY_WIDTH),
                age,
                cost(session),
                inert::brief(text(session, "title"), TITLE_WIDTH),
            ]);
        }
        table.lines()
    }
}

/// Most columns of the reason and of the title.
const WHY_WIDTH: usize = 48;
const TITLE_WIDTH: usize = 40;

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
        // The condition says when, to all of them; the time of the wait is only that of a look at it.
        "condition" if !field("condition_id").is_empty() => {
            format!("{} of {}, shared", field("class").replace('_', " "), field("model"))
        }
        "backoff" | "upstream" | "condition" => format!("{}{next}", field("class").replace('_', " ")),
        "callback" => format!("callback{}", next.replace("next in", "gives up in")),
        "budget" => format!("limit of {} reached", limit(field("limit"))),
        kind => format!("{}{next}", kind.replace('_', " ")),
    }
}

/// A limit of the API in words.
fn limit(name: &str) -> &str {
    match name {
        "cost_usd" => "money",
        "wall_seconds" => "time",
        "identical_calls" => "identical calls",
        other => other,
    }
}

/// What a session has cost; a plus sign if a part has no price.
pub(crate) fn cost(session: &Value) -> String {
    let usage = session.get("usage").cloned().unwrap_or(Value::Null);
    let usd = usage.get("cost_usd").and_then(Value::as_f64).map(time::money).unwrap_or_default();
    let plus = if usage.get("has_unpriced").and_then(Value::as_bool) == Some(true) { "+" } else { "" };
    format!("{usd}{plus}")
}
