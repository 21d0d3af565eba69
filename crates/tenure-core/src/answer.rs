//! What a model's answer, or its failure, becomes in the log.

use crate::agent::{Effect, Permission, Policies};
use crate::budget::{Estimate, Price};
use crate::call::{self, CallKind, Done, MAX_IDENTICAL_CALLS};
use crate::compact;
use crate::event::{Body, Draft, Origin, Outcome, Purpose, Stop};
use crate::failure::{Class, Failure};
use crate::id::EventId;
use crate::json::Json;
use crate::retry;
use crate::session::{Position, Session};
use crate::size::ModelFacts;
use crate::time::{Millis, Timestamp};
use crate::usage::Usage;
use crate::wait::{Wait, WaitKind};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Empty answers in a row before a person is asked.
const MAX_EMPTY_ANSWERS: u32 = 3;

/// Bytes of an answer per token, where nobody counted it.
const BYTES_PER_TOKEN: u64 = 4;

/// How long after a broken key, quota or model the upstream is tried once more without anyone
/// asking: the reconciler of promise P14, rare enough to cost nothing.
const CONDITION_PROBE: Millis = 30 * 60 * 1_000;

/// What the model is told about the calls of an answer that was cut.
const CUT: &str =
    "Not run: the answer was cut at the output limit, so this input may be incomplete. Make a smaller call.";

/// A whole answer of a model, after the provider's terminal marker (promise P2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who can read the raw blocks.
    pub dialect: String,
    /// `provider/model`.
    pub model: String,
    /// In the order of the provider.
    pub blocks: Vec<AnswerBlock>,
    /// Why it stopped.
    pub stop: AnswerStop,
    /// What it used.
    pub usage: Usage,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

/// One block of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerBlock {
    /// The id that its preview had.
    pub id: Option<EventId>,
    /// What it is.
    pub kind: BlockKind,
    /// Verbatim, with unknown blocks that stood next to it.
    pub raw: Vec<Json>,
}

/// What a block of an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the events of the same names")]
pub enum BlockKind {
    Text {
        text: String,
    },
    Thinking {
        text: String,
    },
    /// `input` is the parser's message if it is not JSON.
    ToolUse {
        provider_id: String,
        name: String,
        input: Result<Json, String>,
    },
}

/// Why an answer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerStop {
    /// It is complete.
    EndTurn,
    /// It wants tools.
    ToolUse,
    /// It was cut at the output limit.
    MaxTokens,
    /// It met a stop sequence.
    StopSequence,
    /// The model or a filter refused.
    Refusal,
    /// The provider wants to be called again with the same content.
    Pause,
    /// It was cut at the end of the context.
    ContextWindow,
}

/// What the engine knows about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolFacts {
    /// Who carries it out.
    pub kind: CallKind,
    /// What repeating it would do.
    pub effect: Effect,
    /// Whether a person is asked.
    pub permission: Permission,
}

impl Answer {
    /// Whether there is nothing to keep or to do.
    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(|block| match &block.kind {
            BlockKind::Text { text } => text.trim().is_empty(),
            BlockKind::Thinking { .. } => true,
            BlockKind::ToolUse { .. } => false,
        })
    }
}

/// The events of a complete answer.
///
/// `tools` says what is known about a tool by name, `names` lists them for the model that called
/// one that does not exist (case O-014).
pub fn answered(
    session: &Session,
    answer: Answer,
    price: Option<&Price>,
    tools: &dyn Fn(&str) -> Option<ToolFacts>,
    names: &str,
) -> Vec<Draft> {
    let Position::Calling { span, .. } = session.position else { return Vec::new() };
    let step = session.last_step;
    let cost_usd_micros = price.map(|price| price.cost_usd_micros(answer.usage));
    let end = Body::SpanEnd {
        span,
        model: answer.model.clone(),
        is_error: false,
        usage: answer.usage,
        cost_usd_micros,
        assumed: Estimate::default(),
    };
    let mut end = Some(Draft::of_step(step, end));
    let is_cut = matches!(answer.stop, AnswerStop::MaxTokens | AnswerStop::ContextWindow);
    let (mut drafts, mut results, mut has_calls) = (Vec::new(), Vec::new(), false);
    let mut sketch = session.repeats;
    let mut call_step = session.last_step;
    for block in answer.blocks {
        let origin = Origin { dialect: answer.dialect.clone(), model: answer.model.clone(), blocks: block.raw };
        let body = match block.kind {
            BlockKind::Text { text } => Body::AgentMessage { text, origin },
            BlockKind::Thinking { text } => Body::AgentThinking { text, origin },
            BlockKind::ToolUse { name, input, .. } => {
                drafts.extend(end.take());
                has_calls = true;
                call_step += 1;
                let (body, refused) = tool_use(name, input, origin, is_cut, tools, names, &mut sketch);
                if let (Some(text), Some(id)) = (refused, block.id) {
                    let outcome = if matches!(body, Body::AgentToolUse { permission: Permission::Deny, .. }) {
                        Outcome::Denied
                    } else {
                        Outcome::NotRun
                    };
                    let body =
                        Body::AgentToolResult { tool_use_id: id, content: Done::text(outcome, text).content, outcome };
                    results.push(Draft::of_step(call_step, body));
                }
                body
            }
        };
        drafts.push(Draft { id: block.id, step, body });
    }
    drafts.extend(end.take());
    drafts.extend(results);
    if !has_calls {
        drafts.extend(turn_end(answer.stop));
    }
    drafts
}

fn turn_end(stop: AnswerStop) -> Vec<Draft> {
    let idle = |stop| Draft::new(Body::StatusIdle { stop });
    let cut = |class, message: &str| {
        Draft::new(Body::Error { class, message: message.to_string(), retrying: false, request_id: None, limit: None })
    };
    match stop {
        AnswerStop::EndTurn | AnswerStop::ToolUse | AnswerStop::StopSequence => alloc::vec![idle(Stop::EndTurn)],
        AnswerStop::Refusal => alloc::vec![idle(Stop::Refusal)],
        AnswerStop::MaxTokens => {
            alloc::vec![cut(Class::Request, "the answer was cut at the limit of output tokens"), idle(Stop::EndTurn)]
        }
        AnswerStop::ContextWindow => {
            alloc::vec![
                cut(Class::Overflow, "the answer was cut at the end of the model's context"),
                idle(Stop::EndTurn)
            ]
        }
        // The content goes back unchanged with the next call.
        AnswerStop::Pause => Vec::new(),
    }
}

/// The event of a call and, if it will not run, what the model is told instead.
fn tool_use(
    name: String,
    input: Result<Json, String>,
    origin: Origin,
    is_cut: bool,
    tools: &dyn Fn(&str) -> Option<ToolFacts>,
    names: &str,
    repeats: &mut crate::session::Repeats,
) -> (Body, Option<String>) {
    let facts = tools(&name);
    let unknown = facts.is_none().then(|| alloc::format!("There is no tool named {name}. The tools are: {names}."));
    let facts =
        facts.unwrap_or(ToolFacts { kind: CallKind::Sandbox, effect: Effect::Pure, permission: Permission::Allow });
    let (input, problem) = match input {
        Ok(input) if input.is_object() => (input, None),
        Ok(other) => {
            (Json::object(), Some(alloc::format!("The input must be a JSON object, not {}.", shorten(other.as_str()))))
        }
        Err(message) => (Json::object(), Some(alloc::format!("The input is not valid JSON: {message}."))),
    };
    // Nobody can answer a question that is not there; the other tools check their inputs when they run.
    let problem = problem.or_else(|| (facts.kind == CallKind::AskUser).then(|| no_question(&input)).flatten());
    // What was cut is not what the model meant, also if it happens to parse (case O-011).
    let malformed = if is_cut { Some(String::from(CUT)) } else { unknown.or(problem) };
    if facts.kind.is_answered_outside() && malformed.is_none() {
        return (Body::AgentCustomToolUse { name, input, kind: facts.kind, origin }, None);
    }
    let digest = call::digest(&name, malformed.as_deref().unwrap_or(input.as_str()));
    repeats.calls = if repeats.digest == digest { repeats.calls.saturating_add(1) } else { 1 };
    repeats.digest = digest;
    let permission = match facts.permission {
        Permission::Allow if repeats.calls >= MAX_IDENTICAL_CALLS && malformed.is_none() => Permission::Ask,
        permission => permission,
    };
    let refused = match (&malformed, permission) {
        (Some(message), _) => Some(message.clone()),
        (None, Permission::Deny) => Some(String::from("This tool is not permitted here.")),
        (None, Permission::Allow | Permission::Ask) => None,
    };
    let permission = if malformed.is_some() && permission == Permission::Ask { Permission::Allow } else { permission };
    let body =
        Body::AgentToolUse { name, input, kind: facts.kind, effect: facts.effect, permission, malformed, origin };
    (body, refused)
}

/// Why an input asks nothing.
fn no_question(input: &Json) -> Option<String> {
    let why = match input.to_value().get("question") {
        None | Some(serde_json::Value::Null) => "question: is missing; give it as a string.",
        Some(serde_json::Value::String(text)) if text.trim().is_empty() => "question: is empty.",
        Some(serde_json::Value::String(_)) => return None,
        Some(_) => "question: must be a string.",
    };
    Some(String::from(why))
}

/// Enough of a value to recognise it.
fn shorten(text: &str) -> &str {
    const SHOWN: usize = 60;
    let end = (0..=SHOWN.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// An attempt that gave no answer that can be kept, as its caller knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempt<'a> {
    /// `provider/model` that was asked.
    pub model: &'a str,
    /// What it costs.
    pub price: Option<&'a Price>,
    /// What the provider counted, if it did.
    pub counted: Usage,
    /// Whether the provider had begun to answer, which nobody does for nothing.
    pub has_begun: bool,
    /// Bytes of the answer until it broke off.
    pub received_bytes: u64,
}

impl Attempt<'_> {
    /// What it probably used, beyond what the provider counted.
    fn assumed(&self, session: &Session) -> Estimate {
        if !self.has_begun || self.counted.total() > 0 {
            return Estimate::default();
        }
        let input = session.sent.map_or(0, |sent| sent.input_tokens);
        let used = Usage { input, output: self.received_bytes.div_ceil(BYTES_PER_TOKEN), ..Usage::default() };
        Estimate { tokens: used.total(), cost_usd_micros: self.price.map(|price| price.cost_usd_micros(used)) }
    }
}

/// The events of a failed attempt: what is told, and how the session waits.
pub fn failed(
    session: &Session,
    failure: &Failure,
    attempt: &Attempt<'_>,
    policies: &Policies,
    random: u64,
    now: Timestamp,
) -> Vec<Draft> {
    let Position::Calling { span, attempt: count } = session.position else { return Vec::new() };
    let step = session.last_step;
    let end = ended(session, span, attempt);
    let error = |is_retried| Draft::of_step(step, error(session, failure, attempt.model, is_retried));
    let failures = session.retry.failures.saturating_add(1);
    let empty = session.retry.empty.saturating_add(u32::from(is_no_answer(failure.class)));
    let is_spent = failures >= policies.retry.max_attempts || empty >= MAX_EMPTY_ANSWERS;
    let until = |span: Millis| Some(now.after(span));
    let (kind, until, told) = match failure.class {
        Class::RateLimit | Class::Transient | Class::Incomplete | Class::Empty | Class::Malformed if !is_spent => {
            let delay = retry::delay(&policies.retry, failures, failure.retry_after, random);
            (WaitKind::Backoff { class: failure.class, attempt: count }, until(delay), Body::StatusRescheduled)
        }
        Class::Quota | Class::Credential | Class::Config => {
            let model = attempt.model.to_string();
            let kind = WaitKind::Condition { class: failure.class, model, condition: None };
            (kind, until(CONDITION_PROBE), Body::StatusRescheduled)
        }
        // Something else is sent next: less of the conversation, or the same in our own words.
        Class::Overflow | Class::TooBig if compact::may_compact(session, policies) => {
            return alloc::vec![end, error(true)];
        }
        Class::BadHistory if !session.retry.is_repaired => {
            return alloc::vec![end, error(true)];
        }
        Class::RateLimit
        | Class::Transient
        | Class::Incomplete
        | Class::Empty
        | Class::Malformed
        | Class::Overflow
        | Class::TooBig
        | Class::BadHistory
        | Class::Request => {
            (WaitKind::Upstream { class: failure.class }, None, Body::StatusIdle { stop: Stop::RetriesExhausted })
        }
        Class::Refused => {
            return alloc::vec![end, error(false), Draft::new(Body::StatusIdle { stop: Stop::Refusal }),];
        }
    };
    let retrying = matches!(kind, WaitKind::Backoff { .. });
    alloc::vec![
        end,
        error(retrying),
        Draft::of_step(step, Body::WaitStarted { wait: Wait { kind, since: now, until, calls: Vec::new() } }),
        Draft::new(told),
    ]
}

/// Whether the provider answered in full, and there is nothing to keep of it.
fn is_no_answer(class: Class) -> bool {
    matches!(class, Class::Empty | Class::Malformed)
}

/// The events of an answer that is not one to the whole conversation, because that filled the model's
/// context: the answer was cut at the end, or its server left out the beginning of the request without
/// a word. The conversation is made smaller, and the step is tried again. `None` if that was tried
/// enough; then the answer counts as it is.
pub fn cut_at_window(
    session: &Session,
    answer: &Answer,
    facts: ModelFacts,
    price: Option<&Price>,
    policies: &Policies,
    now: Timestamp,
) -> Option<Vec<Draft>> {
    let message = if answer.stop == AnswerStop::ContextWindow {
        "the answer was cut at the end of the model's context"
    } else if is_cut_in_front(session, answer, facts) {
        "the server read about half of its context although the conversation has more: it left out the beginning"
    } else {
        return None;
    };
    if !compact::may_compact(session, policies) {
        return None;
    }
    let failure = Failure { request_id: answer.request_id.clone(), ..crate::failure::plain(Class::Overflow, message) };
    let attempt = Attempt { model: &answer.model, price, counted: answer.usage, has_begun: true, received_bytes: 0 };
    Some(failed(session, &failure, &attempt, policies, 0, now))
}

/// Whether a server that says nothing about it left out the beginning of a request.
///
/// It keeps about half of its context then, and what it counts is the only sign. A count that is small
/// alone says nothing: it can be of what was not cached. So it counts only if the conversation grew, and
/// the count fell from more to about that half.
fn is_cut_in_front(session: &Session, answer: &Answer, facts: ModelFacts) -> bool {
    let learnt = session.learnt.of(&answer.model);
    let (Some(sent), Some(window)) = (session.sent, learnt.window(facts)) else { return false };
    let (before, read) = (learnt.usage.all_input(), answer.usage.all_input());
    let has_grown = sent.size.text_bytes >= learnt.size.text_bytes && sent.purpose == Purpose::Answer;
    let about_half = window / 8 * 3..=window / 8 * 5;
    facts.cuts_silently && has_grown && read < before / 4 * 3 && about_half.contains(&read)
}

fn ended(session: &Session, span: EventId, attempt: &Attempt<'_>) -> Draft {
    let has_price = attempt.counted.total() > 0;
    let body = Body::SpanEnd {
        span,
        model: attempt.model.to_string(),
        is_error: true,
        usage: attempt.counted,
        cost_usd_micros: attempt.price.filter(|_| has_price).map(|price| price.cost_usd_micros(attempt.counted)),
        assumed: attempt.assumed(session),
    };
    Draft::of_step(session.last_step, body)
}

fn error(session: &Session, failure: &Failure, model: &str, retrying: bool) -> Body {
    let sent = session.sent.unwrap_or_default();
    // A summary by another model teaches nothing about the one that works.
    let is_about_model = sent.purpose == Purpose::Answer || session.learnt.model == model;
    let limit = match failure.class {
        Class::Overflow => Some(compact::learnt_window(&failure.message, sent.input_tokens)),
        Class::TooBig => Some(sent.size.bytes()),
        Class::RateLimit
        | Class::Quota
        | Class::Transient
        | Class::Credential
        | Class::Config
        | Class::BadHistory
        | Class::Request
        | Class::Incomplete
        | Class::Empty
        | Class::Malformed
        | Class::Refused => None,
    };
    Body::Error {
        class: failure.class,
        message: failure.message.clone(),
        retrying,
        request_id: failure.request_id.clone(),
        limit: limit.filter(|limit| *limit > 0 && is_about_model),
    }
}

/// Closes whatever is open, because the turn is stopped.
pub(crate) fn close_turn(session: &Session, why: &str) -> Vec<Draft> {
    let mut drafts = Vec::new();
    if let Position::Calling { span, .. } = session.position {
        drafts.push(call::lost_span(session, span));
    }
    drafts.extend(call::close_all(session, why));
    if session.wait.is_some() {
        drafts.push(Draft::new(Body::WaitResolved { resolution: crate::wait::Resolution::Cleared }));
    }
    drafts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentRef;
    use crate::event::Sent;
    use crate::id::{AgentId, EnvironmentId, SessionId, TenantId};
    use crate::size::Size;

    #[test]
    fn a_count_that_falls_to_half_of_the_window_although_more_was_sent_is_a_conversation_without_its_beginning() {
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let (id, environment) = (SessionId::from_bits(1), EnvironmentId::from_bits(1));
        let mut session = Session::new(id, TenantId::default_tenant(), agent, environment, Timestamp(0));
        session.position = Position::Calling { span: EventId::from_bits(1), attempt: 1 };
        session.learnt.model = "o/m".into();
        let size = |text_bytes| Size { text_bytes, ..Size::default() };
        session.learnt.answered(Usage { input: 7_900, ..Usage::default() }, size(20_000));
        session.sent = Some(Sent { size: size(21_000), input_tokens: 8_100, ..Sent::default() });
        let policies = Policies::default();
        let facts = ModelFacts { context_window: Some(8_192), max_request_bytes: u64::MAX, cuts_silently: true };
        let answer = |input| Answer {
            dialect: "ollama".into(),
            model: "o/m".into(),
            blocks: Vec::new(),
            stop: AnswerStop::EndTurn,
            usage: Usage { input, ..Usage::default() },
            request_id: None,
        };
        let check = |session: &Session, input, facts| {
            cut_at_window(session, &answer(input), facts, None, &policies, Timestamp(0)).is_some()
        };
        assert!(check(&session, 4_100, facts));
        for input in [8_150, 7_000, 0, 40] {
            assert!(!check(&session, input, facts), "{input}: all of it, or only what was not cached");
        }
        assert!(!check(&session, 4_100, ModelFacts { cuts_silently: false, ..facts }), "others say so");
        assert!(!check(&session, 4_100, ModelFacts { context_window: None, ..facts }));
        session.sent = Some(Sent { size: size(10_000), ..Sent::default() });
        assert!(!check(&session, 4_100, facts), "less was sent");
    }
}
