//! Scenario files: TOML, read into turns that can be played without further checks.

use crate::model::ConfigProblem;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tenure_core::{AnswerStop, Usage};
use toml::Spanned;

/// Longest scenario file that is read, in bytes.
pub(crate) const MAX_SCENARIO_BYTES: usize = 4 * 1024 * 1024;

/// Most pieces of one text.
const MAX_PIECES: u32 = 100_000;

/// A scenario that has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// For people.
    pub description: String,
    /// In the order of the file.
    pub turns: Vec<Turn>,
}

/// One answer of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// When it is played; it is passed over otherwise.
    pub when: When,
    /// What it does.
    pub items: Vec<Item>,
    /// Why it stops, if that does not follow from its items.
    pub stop: Option<AnswerStop>,
    /// What it says that it used.
    pub usage: Option<Usage>,
    /// What the first attempts get instead.
    pub attempts: Vec<Attempt>,
    /// The turn that follows, by place in the list.
    pub next: usize,
}

/// A condition on what the model was last sent; all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Only results of this tool count.
    pub tool: Option<String>,
    /// A newest result holds this text.
    pub result_contains: Option<String>,
    /// No newest result holds this text.
    pub result_lacks: Option<String>,
    /// A newest result is, or none is, an error.
    pub result_is_error: Option<bool>,
    /// The newest user text holds this.
    pub user_contains: Option<String>,
}

/// What an attempt gets instead of its turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempt {
    /// An HTTP reply that is no stream.
    Reply {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: BTreeMap<String, String>,
        /// Its body.
        body: String,
    },
    /// A stream that is played like a turn.
    Stream {
        /// What it does.
        items: Vec<Item>,
        /// Why it stops.
        stop: Option<AnswerStop>,
    },
}

/// One thing that an answer does.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Reasons.
    Think {
        /// What.
        text: String,
        /// How fast.
        pace: Pace,
    },
    /// Speaks.
    Say {
        /// What.
        text: String,
        /// How fast.
        pace: Pace,
    },
    /// Calls a tool.
    Call {
        /// Which one.
        name: String,
        /// With what.
        input: Input,
        /// How fast.
        pace: Pace,
    },
    /// Is silent; for ever if there is no span.
    Stall(Option<Duration>),
    /// Ends the stream without its terminal marker.
    Cut(Cut),
    /// Sends an error inside the stream.
    Error {
        /// The provider's type of it.
        kind: String,
        /// The provider's message.
        message: String,
    },
}

/// The input of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A value; texts in it can use results.
    Value(serde_json::Value),
    /// Exactly this text, whether it is JSON or not.
    Raw(String),
}

/// In how many pieces a text comes, and the silence before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How many pieces.
    pub pieces: u32,
    /// Silence before each.
    pub delay: Duration,
}

/// How a stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The body ends in good order.
    End,
    /// The connection breaks.
    Break,
}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioProblem {
    /// The line, from 1, where that is known.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for ScenarioProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl ScenarioProblem {
    /// The same for the configuration, with the name of the file.
    pub(crate) fn in_file(self, file: &str) -> ConfigProblem {
        let place = self.line.map(|line| format!(", line {line}")).unwrap_or_default();
        ConfigProblem {
            code: "scenario_invalid",
            message: format!("scenario {file}{place}: {}", self.message),
            hint: self.hint,
        }
    }
}

const REFERENCE: &str = "docs/reference/scenario.md lists all fields";

impl Scenario {
    /// Reads the text of a scenario file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, ScenarioProblem> {
        if text.len() > MAX_SCENARIO_BYTES {
            return Err(ScenarioProblem {
                line: None,
                message: format!("the file is larger than {MAX_SCENARIO_BYTES} bytes"),
                hint: "split it into several scenarios".to_owned(),
            });
        }
        let file: FileForm = toml::from_str(text).map_err(|error| ScenarioProblem {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().lines().collect::<Vec<_>>().join(" "),
            hint: REFERENCE.to_owned(),
        })?;
        let reader = Reader { text, labels: labels(text, &file)? };
        if file.turn.is_empty() {
            return Err(ScenarioProblem {
                line: None,
                message: "there is no turn".to_owned(),
                hint: "add at least one [[turn]]".to_owned(),
            });
        }
        let turns = file
            .turn
            .into_iter()
            .enumerate()
            .map(|(place, turn)| reader.turn(place, turn))
            .collect::<Result<_, _>>()?;
        Ok(Self { description: file.description, turns })
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

fn labels(text: &str, file: &FileForm) -> Result<BTreeMap<String, usize>, ScenarioProblem> {
    let mut labels = BTreeMap::new();
    for (place, turn) in file.turn.iter().enumerate() {
        let Some(label) = &turn.get_ref().label else {
            continue;
        };
        if labels.insert(label.clone(), place).is_some() {
            return Err(ScenarioProblem {
                line: Some(line_of(text, turn.span().start)),
                message: format!("the label {label:?} is used twice"),
                hint: "give each turn its own label".to_owned(),
            });
        }
    }
    Ok(labels)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    #[serde(default)]
    description: String,
    #[serde(default)]
    turn: Vec<Spanned<TurnForm>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnForm {
    label: Option<String>,
    #[serde(default)]
    when: WhenForm,
    #[serde(default, rename = "do")]
    items: Vec<Spanned<ItemForm>>,
    stop: Option<Spanned<String>>,
    usage: Option<UsageForm>,
    #[serde(default)]
    attempts: Vec<Spanned<AttemptForm>>,
    next: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WhenForm {
    tool: Option<String>,
    result_contains: Option<String>,
    result_lacks: Option<String>,
    result_is_error: Option<bool>,
    user_contains: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageForm {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cache_write: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AttemptForm {
    times: Option<u32>,
    status: Option<u16>,
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    #[serde(default, rename = "do")]
    items: Vec<Spanned<ItemForm>>,
    stop: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemForm {
    think: Option<String>,
    say: Option<String>,
    call: Option<String>,
    input: Option<serde_json::Value>,
    raw_input: Option<String>,
    pieces: Option<u32>,
    delay_ms: Option<u64>,
    stall_ms: Option<u64>,
    stall: Option<String>,
    cut: Option<String>,
    error: Option<String>,
    message: Option<String>,
}

/// Most attempts that one entry can stand for.
const MAX_TIMES: u32 = 1_000;

struct Reader<'a> {
    text: &'a str,
    labels: BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn problem<T>(
        &self,
        offset: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, ScenarioProblem> {
        Err(ScenarioProblem { line: Some(line_of(self.text, offset)), message: message.into(), hint: hint.into() })
    }

    fn turn(&self, place: usize, form: Spanned<TurnForm>) -> Result<Turn, ScenarioProblem> {
        let at = form.span().start;
        let form = form.into_inner();
        let next = match form.next {
            None => place + 1,
            Some(label) => match self.labels.get(label.get_ref()) {
                Some(place) => *place,
                None => {
                    let known = self.labels.keys().cloned().collect::<Vec<_>>().join(", ");
                    return self.problem(
                        label.span().start,
                        format!("no turn has the label {:?}", label.get_ref()),
                        format!("the labels are: {known}"),
                    );
                }
            },
        };
        if form.items.is_empty() && form.stop.is_none() && form.attempts.is_empty() {
            return self.problem(
                at,
                "the turn does nothing",
                "add do = [{ say = \"…\" }], or do = [] with stop = \"end_turn\" for an empty answer",
            );
        }
        let when = WhenForm { ..form.when };
        Ok(Turn {
            when: When {
                tool: when.tool,
                result_contains: when.result_contains,
                result_lacks: when.result_lacks,
                result_is_error: when.result_is_error,
                user_contains: when.user_contains,
            },
            items: self.items(form.items)?,
            stop: self.stop(form.stop)?,
            usage: form.usage.map(|usage| Usage {
                input: usage.input,
                output: usage.output,
                cache_read: usage.cache_read,
                cache_write: usage.cache_write,
            }),
            attempts: self.attempts(form.attempts)?,
            next,
        })
    }

    fn stop(&self, word: Option<Spanned<String>>) -> Result<Option<AnswerStop>, ScenarioProblem> {
        let Some(word) = word else { return Ok(None) };
        let stop = match word.get_ref().as_str() {
            "end_turn" => AnswerStop::EndTurn,
            "tool_use" => AnswerStop::ToolUse,
            "max_tokens" => AnswerStop::MaxTokens,
            "stop_sequence" => AnswerStop::StopSequence,
            "refusal" => AnswerStop::Refusal,
            "pause" => AnswerStop::Pause,
            "context_window" => AnswerStop::ContextWindow,
            other => {
                let hint = "use end_turn, tool_use, max_tokens, stop_sequence, refusal, pause or context_window";
                return self.problem(word.span().start, format!("{other:?} is no reason to stop"), hint);
            }
        };
        Ok(Some(stop))
    }

    fn attempts(&self, forms: Vec<Spanned<AttemptForm>>) -> Result<Vec<Attempt>, ScenarioProblem> {
        let mut attempts = Vec::new();
        for form in forms {
            let at = form.span().start;
            let form = form.into_inner();
            let times = form.times.unwrap_or(1);
            if times == 0 || times > MAX_TIMES {
                return self.problem(at, format!("times = {times} is out of range"), format!("use 1 to {MAX_TIMES}"));
            }
            let attempt = match form.status {
                Some(status) if !form.items.is_empty() || form.stop.is_some() => {
                    return self.problem(
                        at,
                        format!("an attempt has either status = {status} or do"),
                        "split it into two entries",
                    );
                }
                Some(status) if !(100..=599).contains(&status) => {
                    return self.problem(at, format!("{status} is no HTTP status"), "use for example 429, 500 or 529");
                }
                Some(status) => {
                    let kind = form.kind.unwrap_or_else(|| kind_of(status).to_owned());
                    let message = form.message.unwrap_or_else(|| kind.clone());
                    let body = form.body.unwrap_or_else(|| error_body(&kind, &message));
                    let headers =
                        form.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
                    Attempt::Reply { status, headers, body }
                }
                None if form.items.is_empty() && form.stop.is_none() => {
                    return self.problem(
                        at,
                        "the attempt has neither status nor do",
                        "write for example { status = 529 }",
                    );
                }
                None => Attempt::Stream { items: self.items(form.items)?, stop: self.stop(form.stop)? },
            };
            attempts.extend((0..times).map(|_| attempt.clone()));
        }
        Ok(attempts)
    }

    fn items(&self, forms: Vec<Spanned<ItemForm>>) -> Result<Vec<Item>, ScenarioProblem> {
        forms.into_iter().map(|form| self.item(form)).collect()
    }

    fn item(&self, form: Spanned<ItemForm>) -> Result<Item, ScenarioProblem> {
        let at = form.span().start;
        let form = form.into_inner();
        let pieces = form.pieces.unwrap_or(1);
        if pieces == 0 || pieces > MAX_PIECES {
            return self.problem(at, format!("pieces = {pieces} is out of range"), format!("use 1 to {MAX_PIECES}"));
        }
        let has_pace = form.pieces.is_some() || form.delay_ms.is_some();
        let pace = Pace { pieces, delay: Duration::from_millis(form.delay_ms.unwrap_or(0)) };
        let has_input = form.input.is_some() || form.raw_input.is_some();
        let item = match form {
            ItemForm {
                think: Some(text),
                say: None,
                call: None,
                stall_ms: None,
                stall: None,
                cut: None,
                error: None,
                ..
            } => Item::Think { text, pace },
            ItemForm {
                say: Some(text),
                think: None,
                call: None,
                stall_ms: None,
                stall: None,
                cut: None,
                error: None,
                ..
            } => Item::Say { text, pace },
            ItemForm {
                call: Some(name),
                think: None,
                say: None,
                stall_ms: None,
                stall: None,
                cut: None,
                error: None,
                input,
                raw_input,
                ..
            } => {
                let input = match (input, raw_input) {
                    (Some(_), Some(_)) => {
                        return self.problem(at, "a call has either input or raw_input", "keep one of them");
                    }
                    (Some(value), None) => Input::Value(value),
                    (None, Some(text)) => Input::Raw(text),
                    (None, None) => Input::Value(serde_json::json!({})),
                };
                return Ok(Item::Call { name, input, pace });
            }
            ItemForm {
                stall_ms: Some(millis),
                think: None,
                say: None,
                call: None,
                stall: None,
                cut: None,
                error: None,
                ..
            } => Item::Stall(Some(Duration::from_millis(millis))),
            ItemForm {
                stall: Some(word),
                think: None,
                say: None,
                call: None,
                stall_ms: None,
                cut: None,
                error: None,
                ..
            } => match word.as_str() {
                "forever" => Item::Stall(None),
                other => {
                    return self.problem(
                        at,
                        format!("stall = {other:?} is unknown"),
                        "use stall = \"forever\" or stall_ms = 500",
                    );
                }
            },
            ItemForm {
                cut: Some(word),
                think: None,
                say: None,
                call: None,
                stall_ms: None,
                stall: None,
                error: None,
                ..
            } => match word.as_str() {
                "end" => Item::Cut(Cut::End),
                "break" => Item::Cut(Cut::Break),
                other => {
                    return self.problem(
                        at,
                        format!("cut = {other:?} is unknown"),
                        "use \"end\" (the body ends) or \"break\" (the connection breaks)",
                    );
                }
            },
            ItemForm {
                error: Some(kind),
                think: None,
                say: None,
                call: None,
                stall_ms: None,
                stall: None,
                cut: None,
                message,
                ..
            } => {
                let message = message.unwrap_or_else(|| kind.clone());
                Item::Error { kind, message }
            }
            _ => {
                return self.problem(
                    at,
                    "an item does exactly one thing",
                    "use one of think, say, call, stall_ms, stall, cut, error in each { … }",
                );
            }
        };
        if has_input {
            return self.problem(at, "only a call has an input", "move input to an item with call");
        }
        if has_pace && !matches!(item, Item::Think { .. } | Item::Say { .. }) {
            return self.problem(at, "pieces and delay_ms belong to think, say or call", "use stall_ms for silence");
        }
        Ok(item)
    }
}

fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// An error body that both big dialects can read.
pub(crate) fn error_body(kind: &str, message: &str) -> String {
    serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
}
