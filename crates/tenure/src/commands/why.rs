//! `tenure why SESSION`: the scheduler's own sentence, and commands that would unblock it.

use super::approvals::{self, text};
use super::ps::state;
use crate::cli::Common;
use crate::connection::{ask, id_of, session, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, time};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use tenure_api::client::Client;

/// Which session.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The session, by id or unique tail.
    session: String,
}

/// Characters of a call's input that are shown.
const INPUT_CHARS: usize = 100;

impl Why {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let session = session(&client, &self.session).await?;
        let id = id_of(&session).to_owned();
        let path = ["v1", "sessions", &id, "explain"];
        let explanation =
            ask(client.get(&path, &[])).await.map_err(|failure| failure.doing(&format!("explain …{}", tail(&id))))?;
        if common.format() == Format::Json {
            output::json(&explanation)?;
            return Ok(Exit::Ok);
        }
        let more = More::read(&client, &session, &explanation).await?;
        for line in lines(&explanation, &session, &more) {
            output::line(&line)?;
        }
        Ok(Exit::Ok)
    }
}

/// What people want to know beside the explanation.
#[derive(Debug, Default)]
struct More {
    /// Calls that need an answer.
    open: Vec<Value>,
    /// The newest error of an upstream.
    error: Option<Value>,
    /// The newest start of a sandbox.
    sandbox: Option<Value>,
}

impl More {
    async fn read(client: &Client, session: &Value, explanation: &Value) -> Result<Self, Failure> {
        let id = id_of(session);
        let newest = async |kind: &str| {
            let query = [("types[]", kind), ("order", "desc"), ("limit", "1")];
            let mut page = ask(client.get(&["v1", "sessions", id, "events"], &query)).await?;
            Ok::<_, Failure>(page["data"].as_array_mut().and_then(Vec::pop))
        };
        let mut more = Self { sandbox: newest("environment.started").await?, ..Self::default() };
        match text(explanation, "kind") {
            "action" => {
                more.open = approvals::list(client).await?;
                more.open.retain(|call| text(call, "session_id") == id);
            }
            "backoff" | "condition" | "upstream" => more.error = newest("session.error").await?,
            _ => {}
        }
        Ok(more)
    }
}

fn lines(explanation: &Value, session: &Value, more: &More) -> Vec<String> {
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
    for call in &more.open {
        let name = inert::line(text(call, "name"));
        fact("asks", format!("{name}  {}", approvals::input(call, INPUT_CHARS)));
    }
    if let Some(error) = &more.error {
        fact("last error", crate::follow::summary(error));
    }
    if let Some(sandbox) = &more.sandbox {
        fact("sandbox", crate::follow::summary(sandbox));
    }
    let unblock = explanation.get("unblock").and_then(Value::as_array).into_iter().flatten();
    let commands: Vec<(String, String)> = unblock
        .flat_map(|way| arguments(way, session))
        .map(|(words, effect)| (words.join(" "), inert::line(&effect)))
        .collect();
    let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    for (place, (command, effect)) in commands.iter().enumerate() {
        let name = if place == 0 { "unblock" } else { "" };
        lines.push(format!("  {name:<10} tenure {command:<width$}   {effect}"));
    }
    lines
}

/// The commands that do what a way out asks for, each with its effect; none if no command does it.
fn arguments(way: &Value, session: &Value) -> Vec<(Vec<String>, String)> {
    let short = tail(id_of(session));
    let effect = text(way, "text");
    let one = |words: &[&str], effect: &str| {
        (words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>(), effect.to_owned())
    };
    let path = text(way, "path");
    match path.rsplit('/').next().unwrap_or(path) {
        "resume" => vec![one(&["resume", short], effect)],
        "cancel" => vec![one(&["cancel", short], effect)],
        action @ ("probe" | "clear") if path.starts_with("/v1/conditions/") => {
            let id = path.split('/').nth(3).unwrap_or_default();
            vec![one(&["conditions", action, tail(id)], effect)]
        }
        "budget" => {
            let limits = way.get("body").and_then(Value::as_object).into_iter().flatten();
            let flags: Vec<String> = limits.filter_map(|(name, value)| limit(name, value)).flatten().collect();
            let words: Vec<&str> = ["budget", short].into_iter().chain(flags.iter().map(String::as_str)).collect();
            if flags.is_empty() { Vec::new() } else { vec![one(&words, effect)] }
        }
        "events" => {
            let event = way.pointer("/body/events/0").cloned().unwrap_or(Value::Null);
            match text(&event, "type") {
                "user.message" => vec![one(&["send", short, "\"…\""], effect)],
                "user.tool_confirmation" => {
                    let call = tail(text(&event, "tool_use_id"));
                    vec![
                        one(&["approve", short, "--call", call], effect),
                        one(&["deny", short, "--call", call, "--because", "\"…\""], "refuse it; the model is told why"),
                    ]
                }
                "user.custom_tool_result" => {
                    let call = tail(text(&event, "custom_tool_use_id"));
                    vec![one(&["send", short, "\"…\"", "--result-for", call], effect)]
                }
                "user.interrupt" => vec![one(&["send", short, "--interrupt"], effect)],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// The flag for a limit of the API, with its value; nothing for a limit of a later server.
fn limit(name: &str, value: &Value) -> Option<[String; 2]> {
    let (flag, unit) = match name {
        "steps" => ("--steps", ""),
        "tokens" => ("--tokens", ""),
        "cost_usd" => ("--usd", ""),
        "wall_seconds" => ("--wall", "s"),
        "failures" => ("--failures", ""),
        "identical_calls" => ("--identical-calls", ""),
        _ => return None,
    };
    let value = if value.is_null() { "none".to_owned() } else { format!("{value}{unit}") };
    Some([flag.to_owned(), value])
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

    /// The commands for a way out, each parsed by the real definition.
    fn commands(way: &Value) -> Vec<String> {
        let given = arguments(way, &json!({ "id": "sesn_0009z8" }));
        for (words, _) in &given {
            let words: Vec<&str> = ["tenure"].into_iter().chain(words.iter().map(String::as_str)).collect();
            assert!(Cli::try_parse_from(&words).is_ok(), "{words:?}");
        }
        given.into_iter().map(|(words, _)| words.join(" ")).collect()
    }

    #[test]
    fn every_command_that_why_prints_exists() {
        let event = |event: Value| way("events", json!({ "events": [event] }));
        let call = json!({ "type": "user.tool_confirmation", "tool_use_id": "sevt_0123456789" });
        let result = json!({ "type": "user.custom_tool_result", "custom_tool_use_id": "sevt_0123456789" });
        for (way, expected) in [
            (way("resume", json!({})), vec!["resume 0009z8"]),
            (way("cancel", json!({})), vec!["cancel 0009z8"]),
            (
                json!({ "text": "x", "method": "POST", "path": "/v1/conditions/cond_0004ab/probe", "body": {} }),
                vec!["conditions probe 0004ab"],
            ),
            (way("budget", json!({ "steps": 1000 })), vec!["budget 0009z8 --steps 1000"]),
            (way("budget", json!({ "tokens": 200 })), vec!["budget 0009z8 --tokens 200"]),
            (way("budget", json!({ "cost_usd": 0.5 })), vec!["budget 0009z8 --usd 0.5"]),
            (way("budget", json!({ "cost_usd": null })), vec!["budget 0009z8 --usd none"]),
            (way("budget", json!({ "failures": 100 })), vec!["budget 0009z8 --failures 100"]),
            (way("budget", json!({ "identical_calls": 40 })), vec!["budget 0009z8 --identical-calls 40"]),
            (way("budget", json!({ "wall_seconds": 120 })), vec!["budget 0009z8 --wall 120s"]),
            (event(json!({ "type": "user.message" })), vec!["send 0009z8 \"…\""]),
            (event(json!({ "type": "user.interrupt" })), vec!["send 0009z8 --interrupt"]),
            (event(call), vec!["approve 0009z8 --call 456789", "deny 0009z8 --call 456789 --because \"…\""]),
            (event(result), vec!["send 0009z8 \"…\" --result-for 456789"]),
        ] {
            assert_eq!(commands(&way), expected);
        }
    }

    #[test]
    fn every_way_out_that_the_core_names_has_a_command() {
        use tenure_core::{
            AgentId, AgentRef, Call, CallKind, CallState, CallbackId, Effect, EnvironmentId, EventId, SessionId,
            TenantId, Timestamp, Wait, WaitKind, Which, explain,
        };
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let mut core = tenure_core::Session::new(
            SessionId::from_bits(1),
            TenantId::default_tenant(),
            agent,
            EnvironmentId::from_bits(1),
            Timestamp(0),
        );
        let call = |kind| Call {
            id: EventId::from_bits(0x0123_4567_89ab_cdef),
            seq: 1,
            step: 1,
            name: "x".to_owned(),
            kind,
            effect: Effect::Once,
            state: CallState::NeedsAnswer { deadline: None },
            was_started: false,
        };
        core.calls = vec![call(CallKind::Sandbox), call(CallKind::Custom), call(CallKind::AskUser)];
        let wait = |kind| Some(Wait { kind, since: Timestamp(0), until: None, calls: Vec::new() });
        let class = tenure_core::failure::Class::Transient;
        let limits = [Which::Steps, Which::Tokens, Which::Cost, Which::Wall, Which::Failures, Which::IdenticalCalls];
        let mut waits = vec![
            None,
            wait(WaitKind::Timer),
            wait(WaitKind::Action),
            wait(WaitKind::Callback { callback: CallbackId::from_bits(1) }),
            wait(WaitKind::Backoff { class, attempt: 1 }),
            wait(WaitKind::Condition { class, model: "a/b".to_owned(), condition: None }),
            wait(WaitKind::Upstream { class }),
            wait(WaitKind::Stuck),
        ];
        waits.extend(limits.into_iter().map(|which| wait(WaitKind::Budget { which })));
        let check = |core: &tenure_core::Session| {
            let explanation = explain(core);
            let wire = tenure_api::explain::WireExplanation::of(core.id, &explanation);
            let wire = serde_json::to_value(&wire).unwrap();
            let ways = wire["unblock"].as_array().unwrap();
            assert!(!ways.is_empty(), "{explanation:?}");
            for way in ways {
                let mut way = way.clone();
                if way["path"].as_str().unwrap().ends_with("/budget") {
                    // The server names the limit, which the core leaves to it.
                    way["body"] = json!({ "steps": 1000 });
                }
                assert!(!commands(&way).is_empty(), "{way}");
            }
        };
        for wait in waits {
            core.wait = wait;
            check(&core);
        }
        core.is_paused = true;
        check(&core);
    }

    #[test]
    fn a_way_out_that_no_command_knows_is_not_printed() {
        assert_eq!(commands(&way("teleport", json!({}))), Vec::<String>::new());
    }
}
