//! Events as lines for people.

use crate::commands::approvals::text;
use crate::connection::tail;
use crate::output::{inert, time};
use serde_json::Value;
use std::time::Duration;
use tenure_api::client::{self, Client, EventStream, From};

/// Characters of an event's content in a line of the log.
const LINE_CHARS: usize = 160;

/// How often a server that went away before its stream was open is tried again, and after which wait.
const OPEN_TRIES: u32 = 60;
const OPEN_WAIT: Duration = Duration::from_secs(1);

/// Opens a stream of a session that is known to exist: a server that is away just now comes back.
pub(crate) async fn open(client: &Client, id: &str, from: From, previews: bool) -> Result<EventStream, client::Error> {
    for _ in 1..OPEN_TRIES {
        match client.events(id, from.clone(), previews).await {
            Err(client::Error::Unreachable { .. }) => tokio::time::sleep(OPEN_WAIT).await,
            opened => return opened,
        }
    }
    client.events(id, from, previews).await
}

/// One line of the log.
pub(crate) fn log_line(event: &Value) -> String {
    let at = time::parse(text(event, "processed_at")).map_or_else(|| "queued  ".to_owned(), time::clock);
    let seq = event.get("seq").and_then(Value::as_u64).map_or_else(|| "-".to_owned(), |seq| seq.to_string());
    let kind = inert::line(text(event, "type"));
    format!("{at}  {seq:>5}  {kind:<28}  {}", summary(event)).trim_end().to_owned()
}

/// What an event says, in one line.
pub(crate) fn summary(event: &Value) -> String {
    let brief = |text: &str| inert::brief(text, LINE_CHARS);
    match text(event, "type") {
        "agent.tool_use" | "agent.custom_tool_use" | "agent.mcp_tool_use" => {
            let asks = if text(event, "evaluated_permission") == "ask" { "   (needs approval)" } else { "" };
            format!("{}  {}{asks}", brief(text(event, "name")), crate::commands::approvals::input(event, LINE_CHARS))
        }
        "agent.tool_result" => {
            let is_error = event.get("is_error").and_then(Value::as_bool) == Some(true);
            let word = match text(event, "outcome") {
                "" | "done" | "ok" | "finished" if is_error => "error: ",
                "" | "done" | "ok" | "finished" => "",
                other => return brief(&format!("{other}: {}", content(event))),
            };
            brief(&format!("{word}{}", content(event)))
        }
        "session.status_idle" => brief(event.get("stop_reason").map_or("", |reason| text(reason, "type"))),
        "session.status_terminated" => brief(&event.get("end").map(compact).unwrap_or_default()),
        "session.error" => brief(event.pointer("/error/message").and_then(Value::as_str).unwrap_or("")),
        "environment.started" => environment(event),
        "session.forked" => format!("from …{} at event {}", tail(text(event, "from_session_id")), event["at_seq"]),
        "environment.reset" => brief(text(event, "reason")),
        "session.tool_started" => format!("call …{}", tail(text(event, "tool_use_id"))),
        "user.tool_confirmation" => {
            let because = text(event, "deny_message");
            let because = if because.is_empty() { String::new() } else { format!(": {because}") };
            brief(&format!("{} of …{}{because}", text(event, "result"), tail(text(event, "tool_use_id"))))
        }
        "session.wait_resolved" => brief(text(event, "resolution")),
        "session.callback_created" => brief(&format!("{} …{}", text(event, "label"), tail(text(event, "callback_id")))),
        "session.condition" => {
            brief(&format!("{}: {} {}", text(event, "model"), text(event, "class"), text(event, "message")))
        }
        "session.wait_started" => brief(&wait(event.get("wait").unwrap_or(&Value::Null))),
        "span.model_request_start" => {
            let instead = match event["instead_of"]["model"].as_str() {
                Some(model) => format!(" instead of {model} ({})", text(&event["instead_of"], "class")),
                None => String::new(),
            };
            brief(&format!("{}, attempt {}{instead}", text(event, "model"), compact(&event["attempt"])))
        }
        "span.model_request_end" => {
            let failed =
                if event.get("is_error").and_then(Value::as_bool) == Some(true) { "error, dropped" } else { "" };
            let usage = event.get("model_usage").cloned().unwrap_or(Value::Null);
            let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            brief(&format!("{failed} {} tokens in, {} out", tokens("input_tokens"), tokens("output_tokens")))
        }
        "session.usage" => {
            let tokens = |name: &str| event["usage"].get(name).and_then(Value::as_u64).unwrap_or(0);
            brief(&format!("{} tokens in, {} out so far", tokens("input_tokens"), tokens("output_tokens")))
        }
        _ => {
            let content = content(event);
            if !content.is_empty() {
                return brief(&content);
            }
            let own = ["id", "type", "seq", "step", "processed_at"];
            let rest = event
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(name, value)| !own.contains(&name.as_str()) && !value.is_null());
            let rest: Vec<String> = rest.map(|(name, value)| format!("{name} {}", compact(value))).collect();
            brief(&rest.join(", "))
        }
    }
}

/// What a sandbox is, and what of its limits this machine does not enforce.
fn environment(event: &Value) -> String {
    let missing = event.get("missing").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<&str> = missing.map(|line| line.split_once(':').map_or(line, |(name, _)| name)).collect();
    let driver = text(event, "driver");
    let all = match names[..] {
        [] => format!("driver {driver}; every limit is enforced"),
        _ => format!("driver {driver}; not fully enforced: {}", names.join(", ")),
    };
    inert::brief(&all, LINE_CHARS)
}

/// What `--full` shows below the line of an event.
pub(crate) fn whole(event: &Value) -> String {
    match text(event, "type") {
        "environment.started" => {
            let missing = event.get("missing").and_then(Value::as_array).into_iter().flatten();
            missing.filter_map(Value::as_str).collect::<Vec<&str>>().join("\n")
        }
        "agent.tool_use" | "agent.custom_tool_use" => {
            event.get("input").map(|input| serde_json::to_string_pretty(input).unwrap_or_default()).unwrap_or_default()
        }
        "session.error" => event.pointer("/error/message").and_then(Value::as_str).unwrap_or("").to_owned(),
        _ => content(event),
    }
}

/// The text of an event's content blocks.
pub(crate) fn content(event: &Value) -> String {
    let blocks = event.get("content").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = blocks
        .map(|block| if text(block, "type") == "text" { text(block, "text") } else { text(block, "type") })
        .collect();
    if texts.is_empty() { text(event, "text").to_owned() } else { texts.join("\n") }
}

fn wait(wait: &Value) -> String {
    let until =
        time::parse(text(wait, "until")).map(|until| format!(" until {}", time::clock(until))).unwrap_or_default();
    let class = text(wait, "class");
    format!("{}{}{class}{until}", text(wait, "kind"), if class.is_empty() { "" } else { ": " })
}

fn compact(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn o_081_a_log_line_of_a_hostile_tool_is_one_inert_line() {
        let event = json!({ "type": "agent.tool_result", "seq": 3, "processed_at": null, "content": [{ "type": "text", "text": "\u{1b}[2Jgone\r\nx\u{202e}" }] });
        let line = log_line(&event);
        assert!(!line.contains(['\u{1b}', '\n', '\r', '\u{202e}']), "{line:?}");
    }

    #[test]
    fn limits_that_a_machine_cannot_enforce_are_named_in_the_log() {
        let event = |missing: Value| json!({ "type": "environment.started", "driver": "landlock", "missing": missing });
        let weak = event(json!(["net: TCP is refused; UDP is not", "uts: shares the host's"]));
        assert_eq!(summary(&weak), "driver landlock; not fully enforced: net, uts");
        assert_eq!(whole(&weak), "net: TCP is refused; UDP is not\nuts: shares the host's");
        assert_eq!(summary(&event(json!([]))), "driver landlock; every limit is enforced");
    }

    #[test]
    fn an_event_of_a_later_server_shows_its_fields() {
        let event = json!({ "type": "session.novelty", "seq": 1, "colour": "blue" });
        assert_eq!(summary(&event), "colour blue");
    }
}
