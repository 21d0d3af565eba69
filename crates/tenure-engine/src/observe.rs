//! Spans and counts of what a lease does, in the names of the GenAI conventions of OpenTelemetry.
//!
//! ```text
//! invoke_agent NAME        one trace per lease, linked to the one of the lease before
//!  ├─ chat MODEL           one per attempt
//!  ├─ execute_tool NAME
//!  └─ commit
//! ```
//! What people and models say stands in spans only if the configuration asks for it; secrets are
//! masked on the way out either way. All names of attributes are in this file and in `content`.

mod content;

use crate::meters::{CHAT, Meters, ModelLabels, all_input};
use std::sync::Arc;
use std::time::Instant;
use tenure_api::event::{class_word, outcome_word};
use tenure_core::failure::{Class, Failure};
use tenure_core::{Agent, Answer, AnswerStop, Call, Done, Json, LeaseId, Outcome, Prompt, Session, SessionId};
use tenure_model::{Resolved, StreamEvent};
use tenure_store::{Leased, Then};
use tenure_telemetry::{Span, SpanContext, SpanKind, Tracer};

/// Makes spans and counts, for all leases of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub(crate) meters: Arc<Meters>,
    pub(crate) tracer: Tracer,
}

/// The trace of the lease that a claim gives of a session.
pub(crate) fn trace_of(session: SessionId, claim: LeaseId) -> SpanContext {
    SpanContext::of(&[&session.bits().to_be_bytes(), &claim.bits().to_be_bytes()])
}

impl Observer {
    /// A lease begins.
    pub(crate) fn lease(&self, leased: &Leased, claim: LeaseId) -> LeaseSpan {
        let session = &leased.session;
        self.meters.queued_for(leased.now.since(leased.queued_at));
        self.meters.leases_held.add(&[], 1.0);
        let mut span = self.tracer.root("invoke_agent", trace_of(session.id, claim));
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set("gen_ai.conversation.id", session.id.to_string());
        span.set("gen_ai.agent.id", session.agent.id.to_string());
        span.set("tenure.lease.epoch", leased.lease.epoch);
        span.set("tenure.lease.claims", u64::from(leased.claims));
        span.set("tenure.node.id", leased.lease.node.to_string());
        if let Some(previous) = leased.previous {
            span.link(trace_of(session.id, previous));
        }
        LeaseSpan { observer: self.clone(), span, started: Instant::now(), end: "failed" }
    }

    /// An attempt of a model call begins.
    pub(crate) fn attempt(
        &self,
        of: SpanContext,
        session: &Session,
        resolved: &Resolved,
        prompt: &Prompt,
        (step, attempt): (u64, u32),
    ) -> Attempt {
        let provider = resolved.full_name.split_once('/').map_or("", |(provider, _)| provider).to_owned();
        let labels = ModelLabels { provider, model: resolved.model_name.clone() };
        let mut span = self.tracer.child(format!("{CHAT} {}", labels.model), SpanKind::Client, of);
        span.set("gen_ai.operation.name", CHAT);
        span.set("gen_ai.provider.name", labels.provider.as_str());
        span.set("gen_ai.request.model", labels.model.as_str());
        span.set("gen_ai.request.max_tokens", u64::from(prompt.max_output_tokens));
        span.set("gen_ai.conversation.id", session.id.to_string());
        span.set("tenure.step", step);
        span.set("tenure.attempt", u64::from(attempt));
        if self.tracer.with_content() {
            if let Some(system) = &prompt.system {
                span.set("gen_ai.system_instructions", content::instructions(system));
            }
            span.set("gen_ai.input.messages", content::input(&prompt.messages));
        }
        Attempt { observer: self.clone(), labels, span, started: Instant::now(), has_begun: false, is_over: false }
    }

    /// A tool call begins.
    pub(crate) fn tool(&self, of: SpanContext, session: SessionId, call: &Call, input: &Json) -> ToolCall {
        let mut span = self.tracer.child(format!("execute_tool {}", call.name), SpanKind::Internal, of);
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", call.name.as_str());
        span.set("gen_ai.tool.type", "function");
        span.set("gen_ai.tool.call.id", call.id.to_string());
        span.set("gen_ai.conversation.id", session.to_string());
        span.set("tenure.step", call.step);
        if self.tracer.with_content() {
            span.set("gen_ai.tool.call.arguments", input.as_str());
        }
        let name = call.name.clone();
        ToolCall { observer: self.clone(), name, span, started: Instant::now(), outcome: Outcome::Interrupted }
    }

    /// A commit begins.
    pub(crate) fn commit(&self, of: SpanContext, events: usize, last_seq: u64, then: Then) -> Span {
        let mut span = self.tracer.child("commit", SpanKind::Internal, of);
        span.set("tenure.commit.events", events as u64);
        span.set("tenure.commit.last_seq", last_seq);
        let then = match then {
            Then::Keep => "keep",
            Then::Park => "park",
            Then::Yield => "yield",
        };
        span.set("tenure.commit.then", then);
        span
    }
}

/// A lease under way.
#[derive(Debug)]
pub(crate) struct LeaseSpan {
    observer: Observer,
    span: Span,
    started: Instant,
    end: &'static str,
}

impl LeaseSpan {
    pub(crate) fn context(&self) -> SpanContext {
        self.span.context()
    }

    /// The agent is known.
    pub(crate) fn agent(&mut self, agent: &Agent) {
        self.span.rename(format!("invoke_agent {}", agent.name));
        self.span.set("gen_ai.agent.name", agent.name.as_str());
        self.span.set("gen_ai.agent.version", agent.version.to_string());
    }

    /// It is over, one way or another.
    pub(crate) fn ends(&mut self, end: &'static str) {
        self.end = end;
    }
}

impl Drop for LeaseSpan {
    fn drop(&mut self) {
        self.observer.meters.leases_held.add(&[], -1.0);
        self.observer.meters.lease(self.end, self.started.elapsed());
        self.span.set("tenure.lease.end", self.end);
        if matches!(self.end, "lost" | "failed") {
            self.span.fail(self.end, "");
        }
    }
}

/// An attempt under way; one that is dropped was interrupted.
#[derive(Debug)]
pub(crate) struct Attempt {
    observer: Observer,
    labels: ModelLabels,
    span: Span,
    started: Instant,
    has_begun: bool,
    is_over: bool,
}

impl Attempt {
    /// A piece of the answer came.
    pub(crate) fn piece(&mut self, event: &StreamEvent) {
        let is_content = !matches!(event, StreamEvent::Started { .. } | StreamEvent::Limits(_));
        if is_content && !std::mem::replace(&mut self.has_begun, true) {
            self.observer.meters.first_chunk(&self.labels, self.started.elapsed());
        }
    }

    pub(crate) fn answered(mut self, answer: &Answer) {
        let (usage, span) = (answer.usage, &mut self.span);
        self.observer.meters.tokens(&self.labels, usage);
        span.set("gen_ai.usage.input_tokens", all_input(usage));
        span.set("gen_ai.usage.output_tokens", usage.output);
        span.set("gen_ai.usage.cache_read.input_tokens", usage.cache_read);
        span.set("gen_ai.usage.cache_write.input_tokens", usage.cache_write);
        span.set_all("gen_ai.response.finish_reasons", [stop_word(answer.stop).to_owned()]);
        if let Some(id) = &answer.request_id {
            span.set("tenure.request_id", id.as_str());
        }
        if self.observer.tracer.with_content() {
            span.set("gen_ai.output.messages", content::output(answer));
        }
        let is_empty = answer.is_empty() && answer.stop != AnswerStop::Refusal;
        match is_empty {
            true => self.over(class_word(Class::Empty), Some("the answer holds nothing")),
            false => self.over("answered", None),
        }
    }

    pub(crate) fn failed(mut self, failure: &Failure) {
        if let Some(status) = failure.status {
            self.span.set("http.response.status_code", u64::from(status));
        }
        if let Some(id) = &failure.request_id {
            self.span.set("tenure.request_id", id.as_str());
        }
        self.over(class_word(failure.class), Some(&failure.message));
    }

    fn over(&mut self, class: &str, error: Option<&str>) {
        self.is_over = true;
        if let Some(message) = error {
            self.span.fail(class, message);
        }
        self.observer.meters.attempt(&self.labels, class, error.map(|_| class), self.started.elapsed());
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.over("interrupted", Some("given up because something urgent came, or the lease ended"));
        }
    }
}

/// A tool call under way; one that is dropped was interrupted.
#[derive(Debug)]
pub(crate) struct ToolCall {
    observer: Observer,
    name: String,
    span: Span,
    started: Instant,
    outcome: Outcome,
}

impl ToolCall {
    pub(crate) fn done(mut self, done: &Done) {
        self.outcome = done.outcome;
        if self.observer.tracer.with_content() {
            self.span.set("gen_ai.tool.call.result", content::blocks(&done.content));
        }
    }
}

impl Drop for ToolCall {
    fn drop(&mut self) {
        self.observer.meters.tool(&self.name, self.outcome, self.started.elapsed());
        if self.outcome != Outcome::Done {
            self.span.fail(outcome_word(self.outcome), "");
        }
    }
}

/// Why an answer stopped, in the words of the conventions where they have one.
fn stop_word(stop: AnswerStop) -> &'static str {
    match stop {
        AnswerStop::EndTurn | AnswerStop::StopSequence => "stop",
        AnswerStop::ToolUse => "tool_call",
        AnswerStop::MaxTokens | AnswerStop::ContextWindow => "length",
        AnswerStop::Refusal => "content_filter",
        AnswerStop::Pause => "pause",
    }
}
