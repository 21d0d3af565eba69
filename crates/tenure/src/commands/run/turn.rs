//! Follows a session to the end of its turn and prints it.

use crate::commands::approvals::text;
use crate::failure::Failure;
use crate::follow;
use crate::output::{self, Format, inert, time};
use serde_json::Value;
use std::collections::BTreeSet;
use tenure_api::client::{Client, From, Next, is_loopback_address};

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    EndTurn,
    Refusal,
    BudgetReached,
    RetriesExhausted,
    Done,
    Failed(String),
    Cancelled,
}

/// Prints until the turn ends; a wait for a person is said and waited for.
pub(super) async fn follow(client: &Client, id: &str, from: From, printer: &mut Printer) -> Result<TurnEnd, Failure> {
    let mut stream = follow::open(client, id, from, printer.shows_previews()).await?;
    loop {
        match stream.next().await? {
            Next::Frame(frame) => {
                let Ok(event) = serde_json::from_str::<Value>(&frame.data) else { continue };
                printer.print(&event)?;
                if let Some(end) = end_of(&event) {
                    printer.end_line()?;
                    return Ok(end);
                }
            }
            Next::Reconnecting { failures: 3, .. } => {
                output::say("the server is away; waiting for it, nothing is missed")
            }
            Next::Reconnecting { .. } | Next::Reconnected => {}
        }
    }
}

fn end_of(event: &Value) -> Option<TurnEnd> {
    match text(event, "type") {
        "session.status_idle" => match text(&event["stop_reason"], "type") {
            "end_turn" => Some(TurnEnd::EndTurn),
            "refusal" => Some(TurnEnd::Refusal),
            "budget_reached" => Some(TurnEnd::BudgetReached),
            "retries_exhausted" => Some(TurnEnd::RetriesExhausted),
            // A person is asked: the turn goes on after the answer.
            _ => None,
        },
        "session.status_terminated" => Some(match text(&event["end"], "type") {
            "cancelled" => TurnEnd::Cancelled,
            "failed" => TurnEnd::Failed(text(&event["end"], "reason").to_owned()),
            _ => TurnEnd::Done,
        }),
        _ => None,
    }
}

/// Whether a result gives a callback link that only this machine reaches (hazard Z-50).
fn leads_to_this_machine(event: &Value) -> bool {
    let given = serde_json::from_str::<Value>(&follow::content(event)).unwrap_or(Value::Null);
    let url = text(&given, "url");
    url.contains("/v1/callbacks/") && is_loopback_address(url)
}

/// Prints events: the agent's words on stdout, the rest on stderr.
#[derive(Debug)]
pub(super) struct Printer {
    format: Format,
    session: String,
    is_terminal: bool,
    /// Messages that a preview has begun to show.
    open: BTreeSet<String>,
    /// Messages whose preview was dropped; it had been shown.
    is_inside_line: bool,
    previewed: String,
}

impl Printer {
    pub(super) fn new(format: Format, session: &str) -> Self {
        Self {
            format,
            session: session.to_owned(),
            is_terminal: output::is_terminal(),
            open: BTreeSet::new(),
            is_inside_line: false,
            previewed: String::new(),
        }
    }

    /// Previews are for a person who watches; a pipe gets whole messages.
    fn shows_previews(&self) -> bool {
        self.format == Format::Human && self.is_terminal
    }

    /// Ends a line that a preview left open.
    pub(super) fn end_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_inside_line) {
            output::line("")?;
        }
        Ok(())
    }

    fn print(&mut self, event: &Value) -> Result<(), Failure> {
        if self.format == Format::Json {
            return output::json(event);
        }
        match text(event, "type") {
            "event_start" => {
                self.end_line()?;
                self.previewed.clear();
                let message = &event["event"];
                if text(message, "type") == "agent.message" {
                    self.open.insert(text(message, "id").to_owned());
                }
            }
            "event_delta" if self.open.contains(text(event, "event_id")) => {
                let piece = event.pointer("/delta/content/text").and_then(Value::as_str).unwrap_or("");
                self.previewed.push_str(piece);
                self.is_inside_line |= !piece.is_empty();
                output::raw(inert::text(piece).as_bytes())?;
            }
            "agent.message" => self.message(event)?,
            "span.model_request_end" if event.get("is_error").and_then(Value::as_bool) == Some(true) => {
                self.end_line()?;
                if !self.previewed.is_empty() {
                    self.previewed.clear();
                    self.open.clear();
                    output::say("(the answer broke off; it is asked for again)");
                }
            }
            "agent.tool_use" | "agent.custom_tool_use" => self.note(&format!("· {}", follow::summary(event)))?,
            "agent.tool_result" if event.get("is_error").and_then(Value::as_bool) == Some(true) => {
                self.note(&format!("  {}", follow::summary(event)))?
            }
            "agent.tool_result" if leads_to_this_machine(event) => {
                output::say("warning: the callback link leads to this machine only; jobs elsewhere cannot answer it");
                output::hint("set public_url in tenure.toml; tenure doctor checks it");
            }
            "environment.reset" => self.note(&format!("  {}", follow::summary(event)))?,
            "session.error" => self.note(&format!("! {}", follow::summary(event)))?,
            "session.wait_started" => {
                self.note(&format!("  waits: {}", follow::summary(event)))?;
                if text(&event["wait"], "kind") == "condition" {
                    let session = &self.session;
                    output::hint(&format!("tenure why {session} says what to mend; then tenure resume {session}"));
                }
            }
            "session.status_idle" if text(&event["stop_reason"], "type") == "requires_action" => {
                self.note("◇ needs you")?;
                let session = &self.session;
                output::hint(&format!("tenure approve {session}      tenure deny {session}      tenure why {session}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// A committed message; what its preview showed already is not shown again.
    fn message(&mut self, event: &Value) -> Result<(), Failure> {
        let whole = follow::content(event);
        let was_previewed = self.open.remove(text(event, "id"));
        if was_previewed && self.previewed == whole {
            self.previewed.clear();
            return self.end_line();
        }
        self.end_line()?;
        self.previewed.clear();
        output::line(&inert::text(&whole))
    }

    fn note(&mut self, line: &str) -> Result<(), Failure> {
        self.end_line()?;
        output::say(&format!("{}  {line}", time::clock(jiff::Timestamp::now())));
        Ok(())
    }
}
