//! What was seen, and the table that says whether the promises held.

use super::text;
use crate::output::{self, inert};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use tenure_api::client::Client;

/// What a client saw of one session.
pub(crate) struct Run {
    pub(crate) session: String,
    /// Durable events by `seq`, as they came first.
    events: BTreeMap<u64, Value>,
    repeats: usize,
    /// What had been seen at each kill.
    seen: Vec<BTreeMap<u64, Value>>,
}

impl Run {
    pub(crate) fn new(session: String) -> Self {
        Self { session, events: BTreeMap::new(), repeats: 0, seen: Vec::new() }
    }

    /// Takes an event of the stream; previews and queued inputs have no `seq`.
    pub(crate) fn take(&mut self, event: &Value) {
        if let Some(seq) = event["seq"].as_u64()
            && self.events.insert(seq, event.clone()).is_some()
        {
            self.repeats += 1;
        }
    }

    /// Remembers what was seen so far.
    pub(crate) fn remember(&mut self) {
        self.seen.push(self.events.clone());
    }

    pub(crate) fn is_gap_free(&self) -> bool {
        self.repeats == 0 && self.events.keys().copied().eq(1..=self.events.len() as u64)
    }

    pub(crate) fn keeps_what_was_seen(&self) -> bool {
        self.seen.iter().flatten().all(|(seq, event)| self.events.get(seq) == Some(event))
    }

    pub(crate) fn has_one_result_per_call(&self) -> bool {
        let of_type = |kind: &'static str| self.events.values().filter(move |event| text(event, "type") == kind);
        of_type("agent.tool_use")
            .all(|call| of_type("agent.tool_result").filter(|result| result["tool_use_id"] == call["id"]).count() == 1)
    }

    /// Messages, calls and results, without ids and times.
    pub(crate) fn conversation(&self) -> Vec<Value> {
        let part = |event: &Value| match text(event, "type") {
            "user.message" | "agent.message" => Some(json!([event["type"], event["content"]])),
            "agent.tool_use" => Some(json!(["call", event["name"], without_ids(&event["input"])])),
            "agent.tool_result" => Some(json!(["result", event["is_error"], without_ids(&event["content"])])),
            _ => None,
        };
        self.events.values().filter_map(part).collect()
    }

    pub(crate) fn text_contains(&self, words: &str) -> bool {
        self.events.values().any(|event| event["content"].to_string().contains(words))
    }

    pub(crate) fn count_text(&self, words: &str) -> usize {
        let messages = self.events.values().filter(|event| text(event, "type") == "agent.message");
        messages.filter(|event| event["content"].to_string().contains(words)).count()
    }

    pub(crate) fn failed_attempts(&self) -> usize {
        self.events.values().filter(|event| text(event, "type") == "session.error").count()
    }
}

/// A value in which ids of callbacks and links to them are replaced: they differ from run to run.
fn without_ids(value: &Value) -> Value {
    let mut words = value.to_string();
    for prefix in ["call_", "sevt_"] {
        let mut from = 0;
        while let Some(start) = words[from..].find(prefix).map(|start| from + start) {
            let end = words[start + prefix.len()..]
                .find(|c: char| !c.is_ascii_alphanumeric())
                .map_or(words.len(), |end| start + prefix.len() + end);
            words.replace_range(start..end, "(id)");
            from = start + 4;
        }
    }
    if let Some(start) = words.find("/v1/callbacks/") {
        let end = words[start..].find(['\\', '"']).map_or(words.len(), |end| start + end);
        words.replace_range(start..end, "/v1/callbacks/(token)");
    }
    Value::String(words)
}

/// Collects the lines of the proof.
pub(crate) struct Proof {
    is_json: bool,
    checks: Vec<(String, bool)>,
    counters: Vec<(String, usize)>,
    spans: Vec<Value>,
    /// Whose spans they are.
    session: String,
}

/// Characters of a line about an event.
const LINE_CHARS: usize = 110;

impl Proof {
    pub(crate) fn new(is_json: bool) -> Self {
        Self { is_json, checks: Vec::new(), counters: Vec::new(), spans: Vec::new(), session: String::new() }
    }

    /// A line for people.
    pub(crate) fn say(&self, line: &str) {
        output::say(line);
    }

    pub(crate) fn warn(&self, line: &str) {
        output::say(&format!("WARNING: {}", inert::line(line)));
    }

    /// One line per event that matters to people.
    pub(crate) fn event(&self, kind: &str, event: &Value) {
        let first =
            |value: &Value| value[0]["text"].as_str().unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        let line = match kind {
            "agent.message" => format!("agent     {}", first(&event["content"])),
            "agent.tool_use" => format!("call      {} {}", text(event, "name"), event["input"]),
            "agent.tool_result" => format!("result    {}", first(&event["content"])),
            "session.error" => format!("error     {}", event["error"]["message"].as_str().unwrap_or_default()),
            "session.wait_started" => format!("waits     {}", event["wait"]["kind"].as_str().unwrap_or_default()),
            "environment.reset" => "reset     the sandbox was started anew; its files are as they were".to_owned(),
            _ => return,
        };
        let shown: String = inert::line(&line).chars().take(LINE_CHARS).collect();
        output::say(&format!("    {shown}"));
    }

    pub(crate) fn check(&mut self, what: &str, holds: bool) {
        self.checks.push((what.to_owned(), holds));
    }

    pub(crate) fn counter(&mut self, what: &str, count: usize) {
        self.counters.push((what.to_owned(), count));
    }

    /// Fetches the timeline of a run.
    pub(crate) async fn timeline(&mut self, client: &Client, run: &Run) -> Result<()> {
        let listed = client.list(&["v1", "sessions", &run.session, "timeline"], &[], 500).await?;
        self.spans = listed.data;
        self.session.clone_from(&run.session);
        Ok(())
    }

    /// Prints timeline and table; returns whether all of it holds.
    pub(crate) fn finish(self) -> bool {
        let holds = !self.checks.is_empty() && self.checks.iter().all(|(_, holds)| *holds);
        if self.is_json {
            let checks: Vec<Value> =
                self.checks.iter().map(|(what, holds)| json!({ "check": what, "holds": holds })).collect();
            let counters: BTreeMap<&str, usize> =
                self.counters.iter().map(|(what, count)| (what.as_str(), *count)).collect();
            let proof = json!({ "holds": holds, "checks": checks, "counters": counters, "timeline": self.spans });
            print(&proof.to_string());
            return holds;
        }
        print(&format!("\nTimeline of the session {}", self.session));
        for span in &self.spans {
            let at = |name: &str| span[name].as_str().unwrap_or("").get(11..23).unwrap_or("").to_owned();
            let label =
                ["title", "name", "model", "label"].iter().find_map(|name| span[*name].as_str()).unwrap_or_default();
            let failed = span["outcome"].as_str().map(|outcome| format!("  {outcome}")).unwrap_or_default();
            let line = format!("{:12} {:12} {:10} {label}{failed}", at("start"), at("end"), text(span, "kind"));
            print(&format!("  {}", inert::line(&line)));
        }
        print("\nProof");
        for (what, holds) in &self.checks {
            print(&format!("  {}  {what}", if *holds { "holds " } else { "BROKEN" }));
        }
        for (what, count) in &self.counters {
            print(&format!("  {count:6}  {what}"));
        }
        holds
    }
}

/// A line of result. A reader that went away must not change what the exit code says.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
