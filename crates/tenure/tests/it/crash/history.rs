//! Judges what clients saw: inputs that were acknowledged, the log as it is read, the stream as it was
//! followed, and the traces of effects in files. Knows nothing of the system but these.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What was seen of one session.
#[derive(Debug)]
pub(crate) struct History {
    /// Texts of messages, in the order in which their sender was told that they are kept.
    pub(crate) acknowledged: Vec<String>,
    /// The log, read after the last fault.
    pub(crate) log: Vec<Value>,
    /// What a reader saw that followed the stream through all faults.
    pub(crate) streamed: Vec<Value>,
    /// Lines that the effects left.
    pub(crate) effects: Vec<String>,
}

/// What is wrong with it; nothing if all is right.
pub(crate) fn audit(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, rows) in [("log", &history.log), ("stream", &history.streamed)] {
        for (place, row) in (1..).zip(rows) {
            if row["seq"].as_u64() != Some(place) {
                problems.push(format!("{name}: seq {} at place {place}", row["seq"]));
                break;
            }
        }
    }
    if let Some(place) = (0..history.log.len().max(history.streamed.len()))
        .find(|place| history.log.get(*place) != history.streamed.get(*place))
    {
        let (log, streamed) = (history.log.get(place), history.streamed.get(place));
        problems.push(format!("a reader saw {streamed:?} where the log has {log:?}"));
    }
    let ids: BTreeSet<&str> = history.log.iter().filter_map(|row| row["id"].as_str()).collect();
    if ids.len() != history.log.len() {
        problems.push("an event is there twice".to_owned());
    }
    inputs(history, &mut problems);
    effects(history, &mut problems);
    problems
}

/// Every acknowledged input is there once and in order, and no other.
fn inputs(history: &History, problems: &mut Vec<String>) {
    let said: Vec<&str> = history
        .log
        .iter()
        .filter(|row| row["type"] == "user.message")
        .filter_map(|row| row["content"][0]["text"].as_str())
        .collect();
    if said != history.acknowledged.iter().map(String::as_str).collect::<Vec<_>>() {
        problems.push(format!("{:?} were acknowledged, the log has {said:?}", history.acknowledged));
    }
}

/// Each call has one result, which says what the effects show.
fn effects(history: &History, problems: &mut Vec<String>) {
    let mut outcomes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in history.log.iter().filter(|row| row["type"] == "agent.tool_result") {
        let (call, outcome) = (row["tool_use_id"].as_str().unwrap_or(""), row["outcome"].as_str().unwrap_or("done"));
        outcomes.entry(call).or_default().push(outcome);
    }
    let (mut least, mut most): (BTreeMap<&str, usize>, BTreeMap<&str, usize>) = Default::default();
    for call in history.log.iter().filter(|row| row["type"] == "agent.tool_use") {
        let id = call["id"].as_str().unwrap_or("");
        let outcome = match outcomes.remove(id).as_deref() {
            Some([outcome]) => *outcome,
            other => {
                problems.push(format!("call {id} has the results {other:?}"));
                continue;
            }
        };
        let command = call["input"]["command"].as_str().unwrap_or("");
        // All that is between the quotation marks, line by line.
        let text = command.split_once("' '").and_then(|(_, rest)| rest.rsplit_once('\''));
        for line in text.map(|(text, _)| text).unwrap_or("").lines() {
            *least.entry(line).or_default() += usize::from(outcome == "done");
            *most.entry(line).or_default() += usize::from(matches!(outcome, "done" | "unknown" | "interrupted"));
        }
    }
    if let Some(call) = outcomes.keys().next() {
        problems.push(format!("a result without a call: {call}"));
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    history.effects.iter().for_each(|line| *seen.entry(line).or_default() += 1);
    let lines: BTreeSet<&str> = seen.keys().chain(most.keys()).copied().collect();
    for line in lines {
        let of = |counts: &BTreeMap<&str, usize>| counts.get(line).copied().unwrap_or(0);
        if !(of(&least)..=of(&most)).contains(&of(&seen)) {
            let (least, most) = (of(&least), of(&most));
            problems.push(format!("the effect of {line} is there {} times, and not {least} to {most}", of(&seen)));
        }
    }
}

fn right() -> History {
    let row = |seq: u64, kind: &str, more: Value| {
        let mut row = serde_json::json!({ "id": format!("e{seq}"), "seq": seq, "type": kind });
        for (name, value) in more.as_object().unwrap() {
            row[name.as_str()] = value.clone();
        }
        row
    };
    let message = |text: &str| serde_json::json!({ "content": [{ "type": "text", "text": text }] });
    let command =
        |text: &str| serde_json::json!({ "input": { "command": format!("printf '%s\\n' '{text}' >> effects") } });
    let result = |call: &str, outcome: &str| serde_json::json!({ "tool_use_id": call, "outcome": outcome });
    let log = vec![
        row(1, "user.message", message("a")),
        row(2, "agent.tool_use", command("a")),
        row(3, "agent.tool_result", result("e2", "done")),
        row(4, "user.message", message("b")),
        row(5, "agent.tool_use", command("b")),
        row(6, "agent.tool_result", result("e5", "unknown")),
    ];
    History {
        acknowledged: vec!["a".into(), "b".into()],
        streamed: log.clone(),
        log,
        effects: vec!["a".into(), "b".into()],
    }
}

#[test]
fn the_checker_takes_a_right_history_and_finds_what_is_wrong_with_others() {
    assert_eq!(audit(&right()), Vec::<String>::new());
    let unknown_did_not_happen = History { effects: vec!["a".into()], ..right() };
    assert_eq!(audit(&unknown_did_not_happen), Vec::<String>::new());
    let wrong: [(&str, &dyn Fn(&mut History)); 9] = [
        ("an acknowledged input is lost", &|history| history.acknowledged.push("c".into())),
        ("the order is another", &|history| history.acknowledged.reverse()),
        ("an input came twice", &|history| history.acknowledged.truncate(1)),
        ("a gap in the log", &|history| drop(history.log.remove(2))),
        ("a gap in the stream", &|history| drop(history.streamed.remove(2))),
        ("a reader saw another row", &|history| history.streamed[5]["outcome"] = "done".into()),
        ("an effect happened twice", &|history| history.effects.push("b".into())),
        ("an effect is missing", &|history| drop(history.effects.remove(0))),
        ("an effect that nobody asked for", &|history| history.effects.push("x".into())),
    ];
    for (what, change) in wrong {
        let mut history = right();
        change(&mut history);
        assert!(!audit(&history).is_empty(), "{what}");
    }
}
