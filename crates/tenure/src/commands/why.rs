//! `tenure why SESSION`: the scheduler's own sentence, and commands that would unblock it.

use super::approvals::text;
use super::ps::state;
use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, progress, time};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

/// Which session.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The session, by id or unique tail.
    session: String,
}

impl Why {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let path = ["v1", "sessions", &id, "explain"];
        let work = client.get(&path, &[]);
        let explanation = progress::watch("asking the server", work)
            .await
            .map_err(|error| Failure::from(error).doing(&format!("explain …{}", tail(&id))))?;
        if common.format() == Format::Json {
            output::json(&explanation)?;
            return Ok(Exit::Ok);
        }
        for line in lines(&explanation, tail(&id)) {
            output::line(&line)?;
        }
        Ok(Exit::Ok)
    }
}

fn lines(explanation: &Value, session: &str) -> Vec<String> {
    let mut lines = vec![format!("{}. {}", state(text(explanation, "phase")), inert::line(text(explanation, "text")))];
    let mut fact = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    if let Some(since) = time::parse(text(explanation, "since")) {
        fact("since", format!("{} ago ({})", time::span(time::age(since)), time::clock(since)));
    }
    if let Some(until) = time::parse(text(explanation, "until")) {
        fact("until", format!("in {} ({})", time::span(until.duration_since(Timestamp::now())), time::clock(until)));
    }
    match explanation.get("holds_worker").and_then(Value::as_bool) {
        Some(true) => fact("worker", inert::line(text(explanation, "node"))),
        Some(false) => fact("worker", "none held".to_owned()),
        None => {}
    }
    if let Some(position) = explanation.get("queue_position").and_then(Value::as_u64) {
        fact("queue", format!("{position} in line"));
    }
    if let Some(waiting) = explanation.get("inbox_len").and_then(Value::as_u64).filter(|waiting| *waiting > 0) {
        fact("inbox", format!("{waiting} queued"));
    }
    let unblock = explanation.get("unblock").and_then(Value::as_array).into_iter().flatten();
    let commands: Vec<(String, String)> =
        unblock.filter_map(|way| Some((arguments(way, session)?.join(" "), inert::line(text(way, "text"))))).collect();
    let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    for (place, (command, effect)) in commands.iter().enumerate() {
        let name = if place == 0 { "unblock" } else { "" };
        lines.push(format!("  {name:<10} tenure {command:<width$}   {effect}"));
    }
    lines
}

/// The command that does what a way out asks for; none if no command does it.
fn arguments(way: &Value, session: &str) -> Option<Vec<String>> {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    let path = text(way, "path");
    match path.rsplit('/').next().unwrap_or(path) {
        "resume" => words(&["resume", session]),
        "cancel" => words(&["cancel", session]),
        "budget" => words(&["budget", session, limit_flag(text(way, "text")), "N"]),
        "events" => {
            let event = way.pointer("/body/events/0")?;
            match text(event, "type") {
                "user.message" => words(&["send", session, "\"…\""]),
                "user.tool_confirmation" => words(&["approve", session, "--call", tail(text(event, "tool_use_id"))]),
                "user.custom_tool_result" => {
                    words(&["send", session, "\"…\"", "--result-for", text(event, "custom_tool_use_id")])
                }
                "user.interrupt" => words(&["send", session, "--interrupt"]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The limit that a sentence speaks of.
fn limit_flag(sentence: &str) -> &'static str {
    match sentence {
        _ if sentence.contains("steps") => "--steps",
        _ if sentence.contains("tokens") => "--tokens",
        _ => "--usd",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;
    use serde_json::json;

    fn way(path: &str, body: Value) -> Value {
        json!({ "text": "x", "method": "POST", "path": format!("/v1/sessions/sesn_1/{path}"), "body": body })
    }

    #[test]
    fn every_command_that_why_prints_exists() {
        let event = |event: Value| way("events", json!({ "events": [event] }));
        let ways = [
            way("resume", json!({})),
            way("cancel", json!({})),
            way("budget", json!({})),
            event(json!({ "type": "user.message" })),
            event(json!({ "type": "user.interrupt" })),
            event(json!({ "type": "user.tool_confirmation", "tool_use_id": "sevt_0123456789" })),
            event(json!({ "type": "user.custom_tool_result", "custom_tool_use_id": "sevt_1" })),
        ];
        for way in ways {
            let mut given = vec!["tenure".to_owned()];
            // N stands for a number.
            given.extend(
                arguments(&way, "9z8").unwrap().into_iter().map(|word| if word == "N" { "3".to_owned() } else { word }),
            );
            assert!(Cli::try_parse_from(&given).is_ok(), "{given:?}");
        }
    }

    #[test]
    fn a_way_out_that_no_command_knows_is_not_printed() {
        assert_eq!(arguments(&way("teleport", json!({})), "9z8"), None);
    }
}
