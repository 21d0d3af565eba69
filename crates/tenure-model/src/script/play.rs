//! Which turn of a scenario is due, with its placeholders filled in. Pure: the same conversation and
//! attempt always give the same.

use super::conversation::{Conversation, Said, SaidResult};
use super::scenario::{Attempt, Input, Item, Scenario, Turn, When};
use serde_json::Value;
use std::collections::BTreeMap;
use tenure_core::{AnswerStop, Usage};

/// Characters per token, roughly; scenarios that say nothing get counts by it.
const CHARS_PER_TOKEN: u64 = 4;

/// Said when all turns are played.
const THE_END: &str = "The scenario has no more turns.";

/// What one attempt gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Play {
    /// An HTTP reply that is no stream.
    Reply {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: BTreeMap<String, String>,
        /// Its body.
        body: String,
    },
    /// A stream.
    Stream {
        /// What it does, placeholders filled in.
        items: Vec<Item>,
        /// Why it stops.
        stop: AnswerStop,
        /// What it says that it used.
        usage: Usage,
    },
}

/// What the given attempt, counted from 1, at this point of the conversation gets.
///
/// # Errors
/// A placeholder that finds nothing.
pub fn play(scenario: &Scenario, conversation: &Conversation, attempt: u32) -> Result<Play, String> {
    let Some(turn) = due(scenario, &conversation.messages) else {
        let items = vec![Item::Say {
            text: THE_END.to_owned(),
            pace: super::Pace { pieces: 1, delay: std::time::Duration::ZERO },
        }];
        let usage = usage_of(&items, conversation);
        return Ok(Play::Stream { items, stop: AnswerStop::EndTurn, usage });
    };
    let place = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    let (items, stop) = match turn.attempts.get(place) {
        Some(Attempt::Reply { status, headers, body }) => {
            return Ok(Play::Reply { status: *status, headers: headers.clone(), body: body.clone() });
        }
        Some(Attempt::Stream { items, stop }) => (items, *stop),
        None => (&turn.items, turn.stop),
    };
    let filler = Filler { conversation };
    let items: Vec<Item> = items.iter().map(|item| filler.item(item)).collect::<Result<_, _>>()?;
    let has_calls = items.iter().any(|item| matches!(item, Item::Call { .. }));
    let usage = turn.usage.unwrap_or_else(|| usage_of(&items, conversation));
    Ok(Play::Stream {
        items,
        stop: stop.unwrap_or(if has_calls { AnswerStop::ToolUse } else { AnswerStop::EndTurn }),
        usage,
    })
}

/// Plays the conversation again from its start: each answer in it was the turn that was due then.
fn due<'a>(scenario: &'a Scenario, messages: &[Said]) -> Option<&'a Turn> {
    let mut place = 0;
    for (index, said) in messages.iter().enumerate() {
        if matches!(said, Said::Assistant) {
            place = choose(scenario, place, &messages[..index])
                .map_or(scenario.turns.len(), |turn| scenario.turns[turn].next);
        }
    }
    choose(scenario, place, messages).map(|turn| &scenario.turns[turn])
}

/// The first turn from `place` on whose condition holds.
fn choose(scenario: &Scenario, place: usize, messages: &[Said]) -> Option<usize> {
    (place..scenario.turns.len()).find(|turn| holds(&scenario.turns[*turn].when, messages))
}

fn holds(when: &When, messages: &[Said]) -> bool {
    let (text, results) = match messages.last() {
        Some(Said::User { text, results }) => (text.as_str(), results.as_slice()),
        Some(Said::Assistant) | None => ("", [].as_slice()),
    };
    let results: Vec<&SaidResult> =
        results.iter().filter(|result| when.tool.as_ref().is_none_or(|tool| result.tool == *tool)).collect();
    let any_contains = |words: &String| results.iter().any(|result| result.text.contains(words.as_str()));
    (when.tool.is_none() || !results.is_empty())
        && when.result_contains.as_ref().is_none_or(any_contains)
        && when.result_lacks.as_ref().is_none_or(|words| !results.is_empty() && !any_contains(words))
        && when
            .result_is_error
            .is_none_or(|wanted| !results.is_empty() && results.iter().any(|result| result.is_error) == wanted)
        && when.user_contains.as_ref().is_none_or(|words| text.contains(words.as_str()))
}

fn usage_of(items: &[Item], conversation: &Conversation) -> Usage {
    let written: usize = items
        .iter()
        .map(|item| match item {
            Item::Think { text, .. } | Item::Say { text, .. } => text.len(),
            Item::Call { name, input, .. } => name.len() + input_text(input).len(),
            Item::Stall(_) | Item::Cut(_) | Item::Error { .. } => 0,
        })
        .sum();
    Usage { input: input_tokens(conversation), output: tokens(written), ..Usage::default() }
}

/// The count of tokens of a conversation.
pub(crate) fn input_tokens(conversation: &Conversation) -> u64 {
    tokens(conversation.size)
}

fn tokens(chars: usize) -> u64 {
    u64::try_from(chars).unwrap_or(u64::MAX) / CHARS_PER_TOKEN + 1
}

/// The text of an input as it is streamed.
pub(crate) fn input_text(input: &Input) -> String {
    match input {
        Input::Value(value) => value.to_string(),
        Input::Raw(text) => text.clone(),
    }
}

/// A text in as many pieces as it should come in, none of them empty.
pub(crate) fn pieces(text: &str, count: u32) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(usize::try_from(count).unwrap_or(usize::MAX)).max(1);
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}

struct Filler<'a> {
    conversation: &'a Conversation,
}

impl Filler<'_> {
    fn item(&self, item: &Item) -> Result<Item, String> {
        Ok(match item {
            Item::Think { text, pace } => Item::Think { text: self.text(text)?, pace: *pace },
            Item::Say { text, pace } => Item::Say { text: self.text(text)?, pace: *pace },
            Item::Call { name, input, pace } => {
                let input = match input {
                    Input::Value(value) => Input::Value(self.value(value)?),
                    Input::Raw(text) => Input::Raw(self.text(text)?),
                };
                Item::Call { name: name.clone(), input, pace: *pace }
            }
            Item::Stall(_) | Item::Cut(_) | Item::Error { .. } => item.clone(),
        })
    }

    fn value(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.text(text)?),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let fill = |(name, value): (&String, &Value)| Ok::<_, String>((name.clone(), self.value(value)?));
                Value::Object(fields.iter().map(fill).collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    /// Fills in `{{user}}` and `{{result…}}`; other braces stay as they are.
    fn text(&self, text: &str) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(start) = rest.find("{{") {
            let Some(end) = rest[start..].find("}}") else {
                break;
            };
            let expression = &rest[start + 2..start + end];
            out.push_str(&rest[..start]);
            match self.expression(expression.trim())? {
                Some(found) => out.push_str(&found),
                None => out.push_str(&rest[start..start + end + 2]),
            }
            rest = &rest[start + end + 2..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn expression(&self, expression: &str) -> Result<Option<String>, String> {
        let missing =
            || format!("the placeholder {{{{{expression}}}}} of the scenario finds nothing in the conversation");
        let (path, marker) = match expression.split_once(" after ") {
            Some((path, marker)) => (path.trim(), Some(marker.trim().trim_matches('"'))),
            None => (expression, None),
        };
        let mut parts = path.split('.');
        let found = match parts.next() {
            Some("user") => self.user(),
            Some("result") => self.result(&mut parts),
            _ => return Ok(None),
        };
        let found = found.ok_or_else(missing)?;
        match marker {
            None => Ok(Some(found)),
            Some(marker) => word_after(&found, marker).map(Some).ok_or_else(missing),
        }
    }

    fn user(&self) -> Option<String> {
        self.conversation.messages.iter().rev().find_map(|said| match said {
            Said::User { text, .. } if !text.is_empty() => Some(text.clone()),
            Said::User { .. } | Said::Assistant => None,
        })
    }

    fn result<'p>(&self, parts: &mut impl Iterator<Item = &'p str>) -> Option<String> {
        let tool = parts.next();
        let results = self.conversation.messages.iter().rev().filter_map(|said| match said {
            Said::User { results, .. } => Some(results),
            Said::Assistant => None,
        });
        let newest = results
            .flat_map(|results| results.iter().rev())
            .find(|result| tool.is_none_or(|tool| result.tool == tool))?;
        let mut fields = parts.peekable();
        if fields.peek().is_none() {
            return Some(newest.text.clone());
        }
        let json: Value = serde_json::from_str(&newest.text).ok()?;
        let found = fields.try_fold(&json, |value, field| match field.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(field),
        })?;
        Some(found.as_str().map_or_else(|| found.to_string(), str::to_owned))
    }
}

/// What stands after `marker`, up to white space or a quotation mark.
fn word_after(text: &str, marker: &str) -> Option<String> {
    let (_, rest) = text.split_once(marker)?;
    let word: String = rest.chars().take_while(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect();
    (!word.is_empty()).then_some(word)
}
