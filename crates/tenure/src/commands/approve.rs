//! `tenure approve SESSION`: allows calls that wait for it.

use super::approvals::{self, text};
use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, progress};
use clap::Args;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};

/// Which calls.
#[derive(Args, Debug)]
pub(crate) struct Approve {
    #[command(flatten)]
    calls: Calls,
    /// Does not ask back on a terminal.
    #[arg(long, short = 'y')]
    yes: bool,
}

/// Which calls of which session.
#[derive(Args, Debug)]
pub(crate) struct Calls {
    /// The session, by id or unique tail.
    session: String,
    /// One call, by id or unique tail; needed if several wait.
    #[arg(long, value_name = "CALL", conflicts_with = "all")]
    call: Option<String>,
    /// All calls of the session that wait.
    #[arg(long)]
    all: bool,
}

impl Approve {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let asks = !self.yes && common.format() == Format::Human && std::io::stdin().is_terminal();
        self.calls.answer(common, if asks { Consent::Ask } else { Consent::Given }, json!({ "result": "allow" })).await
    }
}

/// Whether the person still has to say yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The command itself is the consent.
    Given,
    /// Show the call and ask.
    Ask,
}

impl Calls {
    /// Answers the calls that were meant.
    pub(crate) async fn answer(self, common: &Common, consent: Consent, answer: Value) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let calls = self.pick(&id, approvals::list(&client).await?)?;
        let mut events = Vec::new();
        for call in &calls {
            output::say(&format!("{}   {}", inert::line(text(call, "name")), shown(call)));
            details(call).iter().for_each(|line| output::say(line));
            if consent == Consent::Ask && !asked("Approve this once? [y/N] ")? {
                continue;
            }
            let mut event = answer.clone();
            event["type"] = "user.tool_confirmation".into();
            event["tool_use_id"] = call["tool_use_id"].clone();
            events.push(event);
        }
        if events.is_empty() {
            output::say("Nothing is changed; it still waits.");
            return Ok(Exit::Ok);
        }
        let body = json!({ "events": events });
        let path = ["v1", "sessions", &id, "events"];
        let reply = progress::watch("answering", client.post(&path, &body))
            .await
            .map_err(|error| Failure::from(error).doing(&format!("answer the call of …{}", tail(&id))))?;
        if common.format() == Format::Json {
            output::json(&reply)?;
            return Ok(Exit::Ok);
        }
        // The first answer wins: the reply says what is in force, which may be somebody else's.
        let effective =
            reply.get("data").and_then(Value::as_array).into_iter().flatten().map(|event| text(event, "result"));
        let wanted = text(&answer, "result");
        let was_first = effective.clone().all(|result| result == wanted || result.is_empty());
        match (was_first, wanted) {
            (true, "allow") => output::line(&format!("Approved once. …{} is runnable.", tail(&id)))?,
            (true, _) => output::line(&format!("Denied. …{} is runnable; the model is told.", tail(&id)))?,
            (false, _) => {
                return Err(Failure::new(
                    Exit::Conflict,
                    format!("a call of …{} was answered before, otherwise", tail(&id)),
                )
                .why("the first answer stays in force")
                .fix(format!("tenure logs {}", tail(&id))));
            }
        }
        Ok(Exit::Ok)
    }

    fn pick(&self, session: &str, open: Vec<Value>) -> Result<Vec<Value>, Failure> {
        // Custom tools and questions are answered with a result, not with a yes.
        let is_meant = |call: &Value| text(call, "session_id") == session && text(call, "kind") == "approval";
        let mut calls: Vec<Value> = open.into_iter().filter(is_meant).collect();
        if let Some(wanted) = &self.call {
            calls.retain(|call| text(call, "tool_use_id").ends_with(wanted.trim_start_matches('…')));
        }
        match calls.len() {
            0 => Err(Failure::new(Exit::NotFound, format!("no call of …{} waits for an approval", tail(session)))
                .fix(format!("tenure why {}", tail(session)))
                .code("approval_not_found")),
            1 => Ok(calls),
            _ if self.all => Ok(calls),
            many => {
                let failure = Failure::new(Exit::Usage, format!("{many} calls of …{} wait", tail(session)));
                let list = calls
                    .iter()
                    .map(|call| format!("{}  {}  {}", text(call, "tool_use_id"), text(call, "name"), shown(call)));
                Err(list.fold(failure, Failure::why).fix("--call CALL, or --all"))
            }
        }
    }
}

/// The rest of the input, such as the content that would be written: a person decides about all of it.
fn details(call: &Value) -> Vec<String> {
    /// Most lines of one field; the rest is counted.
    const MOST_LINES: usize = 40;
    let mut lines = Vec::new();
    for (name, value) in call.get("input").and_then(Value::as_object).into_iter().flatten() {
        if approvals::MAIN_FIELDS.contains(&name.as_str()) {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        lines.push(format!("  {}:", inert::line(name)));
        let all = inert::text(&value);
        lines.extend(all.lines().take(MOST_LINES).map(|line| format!("    {line}")));
        let rest = all.lines().count().saturating_sub(MOST_LINES);
        if rest > 0 {
            lines.push(format!("    … {rest} more lines: tenure approvals --json"));
        }
    }
    lines
}

fn shown(call: &Value) -> String {
    /// Characters of the input that are shown before a person decides: enough to see a long command.
    const INPUT_CHARS: usize = 2000;
    approvals::input(call, INPUT_CHARS)
}

fn asked(question: &str) -> Result<bool, Failure> {
    let mut err = std::io::stderr().lock();
    // A closed stderr is no reason to fail; then nobody says yes.
    let _ = write!(err, "{question}").and_then(|()| err.flush());
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::new(Exit::Failed, "cannot read the answer").why(error.to_string()))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
