//! One model call: begun in the log, streamed as a preview, ended in the log.

use crate::advance::Advance;
use crate::chance::Chance;
use crate::context::seen;
use crate::error::Stopped;
use crate::previews::Previews;
use crate::tools::Tools;
use std::collections::BTreeMap;
use tenure_core::failure::{Class, Failure, plain};
use tenure_core::pace::RateBucket;
use tenure_core::{
    Agent, Answer, AnswerStop, Attempt, Body, Draft, EventId, Plan, Price, Prompt, Purpose, Request, Sent, SessionId,
    answered, cut_at_window, failed, plan, transcript,
};
use tenure_model::{CallContext, ConfigProblem, Resolved, StreamEvent};
use tenure_store::Then;

impl Advance {
    /// Calls the model once, or makes room for the call; whatever comes of it is pending afterwards.
    pub(crate) async fn call_model(&mut self, step: u64, attempt: u32) -> Result<(), Stopped> {
        let Some(chosen) = self.choose_model().await? else { return Ok(()) };
        let (resolved, model) = (chosen.resolved.clone(), chosen.model().to_owned());
        self.chosen = Some(chosen);
        let done = match resolved {
            Ok(resolved) => self.call_chosen(resolved, step, attempt).await,
            Err(problem) => self.cannot_call(step, attempt, &model, &problem).await,
        };
        // Whatever it was not needed for is given up with it.
        self.chosen = None;
        self.leave_turn();
        done
    }

    async fn call_chosen(&mut self, resolved: Resolved, step: u64, attempt: u32) -> Result<(), Stopped> {
        let (prompt, plan) = self.planned(&resolved).await?;
        match plan {
            Plan::Record(drafts) => self.record(drafts).await,
            Plan::Summarise { keep_from, room, before } => {
                let purpose = Purpose::Summary { keep_from, room, before };
                self.summarise(resolved, &prompt, Turn { step, attempt }, purpose).await
            }
            Plan::Send(sent) => {
                self.leave_turn();
                if self.begin_call(Turn { step, attempt }, &resolved.full_name, sent).await? {
                    self.call(&resolved, &prompt, step, attempt).await
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Records a call that cannot be made, because of what is configured.
    pub(crate) async fn cannot_call(
        &mut self,
        step: u64,
        attempt: u32,
        model: &str,
        problem: &ConfigProblem,
    ) -> Result<(), Stopped> {
        if !self.begin_call(Turn { step, attempt }, model, Sent::default()).await? {
            return Ok(());
        }
        let failure = plain(Class::Config, problem.to_string());
        self.record_failure(&failure, &Attempt { model, ..Attempt::default() }).await
    }

    /// Begins a model call in the log, together with what came before it (api.md, rules of the stream).
    /// Returns whether nothing urgent came meanwhile.
    pub(crate) async fn begin_call(&mut self, turn: Turn, model: &str, sent: Sent) -> Result<bool, Stopped> {
        let chosen = self.chosen.as_ref().filter(|chosen| chosen.model() == model);
        let instead_of = chosen.and_then(|chosen| chosen.instead_of.clone());
        let start = Body::SpanStart { model: model.to_owned(), attempt: turn.attempt, instead_of, sent };
        self.journal.push(Draft::of_step(turn.step, start))?;
        self.journal.commit(Then::Keep).await?;
        if self.journal.has_urgent() {
            return Ok(false);
        }
        let committed = self.journal.take_committed();
        self.context.extend(committed);
        Ok(true)
    }

    async fn call(&mut self, resolved: &Resolved, prompt: &Prompt, step: u64, attempt: u32) -> Result<(), Stopped> {
        self.services.may_start_effect(&self.held)?;
        let session = self.journal.session();
        let (id, epoch, after_seq) = (session.id, self.held.lease.epoch, session.last_seq);
        let services = self.services.clone();
        services.previews.begin(id, epoch, after_seq, attempt);
        let mut observed =
            services.observer.attempt(self.held.trace, self.journal.session(), resolved, prompt, (step, attempt));
        let mut blocks = Blocks {
            session: id,
            chance: &services.chance,
            previews: &services.previews,
            ids: BTreeMap::new(),
            limits: Vec::new(),
        };
        let mut chosen = self.chosen.take();
        let mut received = Received::default();
        let context = CallContext { session: id, step, attempt };
        let result = {
            let mut on_event = |event: StreamEvent| {
                observed.piece(&event);
                received.note(&event);
                // The first word of an answer: whoever waits need not wait for the last one.
                if let (StreamEvent::BlockStart { .. }, Some(chosen)) = (&event, &mut chosen) {
                    chosen.is_answering();
                }
                blocks.show(event);
            };
            let mut call = resolved.model.call(prompt, &context, &mut on_event);
            tokio::select! {
                biased;
                result = &mut call => Some(result),
                stop = self.must_stop() => {
                    stop?;
                    None
                }
            }
        };
        services.previews.finish(id);
        self.chosen = chosen;
        match result {
            // Stopped: the connection is closed, and the intake of the interrupt closes the span.
            None => self.note_out_of_time(),
            Some(Err(failure)) => {
                observed.failed(&failure);
                self.record_failure(&failure, &received.attempt(resolved)).await
            }
            Some(Ok(answer)) => {
                observed.answered(&answer);
                let answer = blocks.name(answer);
                let (limits, tokens) = (blocks.limits, answer.usage.total());
                self.record_answer(answer, resolved).await?;
                self.note_answer(resolved, &limits, tokens).await;
                Ok(())
            }
        }
    }

    /// What would be sent now, and what to do about it.
    async fn planned(&mut self, resolved: &Resolved) -> Result<(Prompt, Plan), Stopped> {
        let rows = seen(&mut self.context, &*self.services.store, &self.journal).await?;
        let session = self.journal.session();
        let mut messages = transcript(rows.iter().copied());
        self.services.callback_links(session.id).render(&mut messages, session.context_from_seq > 1);
        let prompt = Prompt { messages, ..prompt_of(&self.services.tools, &self.agent, session.id, resolved) };
        let request = request_of(resolved, &prompt);
        let plan = plan(session, &self.agent.policies, &request, &rows, self.services.clock.now());
        Ok((prompt, plan))
    }

    async fn record_answer(&mut self, answer: Answer, resolved: &Resolved) -> Result<(), Stopped> {
        let price: Option<&Price> = resolved.price.as_ref();
        let (session, now) = (self.journal.session(), self.services.clock.now());
        if let Some(drafts) = cut_at_window(session, &answer, resolved.facts, price, &self.agent.policies, now) {
            return self.record(drafts).await;
        }
        if answer.is_empty() && answer.stop != AnswerStop::Refusal {
            let why = "the model's answer holds neither text nor a tool call";
            return self.record_no_answer(why, &answer, resolved).await;
        }
        let tools = &self.services.tools;
        let (agent, names) = (self.agent.clone(), tools.names(&self.agent));
        let drafts = answered(self.journal.session(), answer, price, &|name| tools.facts(&agent, name), &names);
        self.record(drafts).await
    }

    /// Records a whole answer that there is nothing to keep of; it was counted all the same.
    pub(crate) async fn record_no_answer(
        &mut self,
        why: &str,
        answer: &Answer,
        resolved: &Resolved,
    ) -> Result<(), Stopped> {
        let failure = Failure { request_id: answer.request_id.clone(), ..plain(Class::Empty, why) };
        let attempt = Attempt {
            model: &resolved.full_name,
            price: resolved.price.as_ref(),
            counted: answer.usage,
            has_begun: true,
            received_bytes: 0,
        };
        self.record_failure(&failure, &attempt).await
    }

    pub(crate) async fn record_failure(&mut self, failure: &Failure, attempt: &Attempt<'_>) -> Result<(), Stopped> {
        tracing::info!(
            session = %self.journal.session().id, model = attempt.model, class = ?failure.class,
            status = failure.status, kind = %failure.kind, "model attempt failed"
        );
        let now = self.services.clock.now();
        let drafts =
            failed(self.journal.session(), failure, attempt, &self.agent.policies, self.services.chance.number(), now);
        let drafts = match self.chosen.take().filter(|chosen| chosen.model() == attempt.model) {
            Some(mut chosen) => self.weigh(drafts, failure, &mut chosen).await?,
            None => drafts,
        };
        self.record(drafts).await
    }
}

/// Which step a call is, and which attempt of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) step: u64,
    pub(crate) attempt: u32,
}

/// What a request of a session holds besides its messages.
pub(crate) fn prompt_of(tools: &Tools, agent: &Agent, session: SessionId, resolved: &Resolved) -> Prompt {
    let most = agent.policies.max_output_tokens.unwrap_or(u32::MAX);
    Prompt {
        model: resolved.full_name.clone(),
        model_name: resolved.model_name.clone(),
        system: agent.system.clone(),
        messages: Vec::new(),
        tools: tools.specs(agent),
        max_output_tokens: resolved.max_output_tokens.min(most),
        cache_key: session.to_string(),
    }
}

/// A request as the core judges it.
pub(crate) fn request_of<'a>(resolved: &'a Resolved, prompt: &'a Prompt) -> Request<'a> {
    Request { prompt, counted: resolved.model.count(prompt), facts: resolved.facts, price: resolved.price.as_ref() }
}

/// What came of an attempt until it broke off, which is charged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    has_begun: bool,
    bytes: u64,
}

impl Received {
    pub(crate) fn note(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::Text { text, .. } | StreamEvent::Thinking { text, .. } => self.bytes += text.len() as u64,
            StreamEvent::InputDelta { json, .. } => self.bytes += json.len() as u64,
            StreamEvent::Started { .. }
            | StreamEvent::Limits(_)
            | StreamEvent::BlockStart { .. }
            | StreamEvent::BlockStop { .. } => {}
        }
        self.has_begun = true;
    }

    pub(crate) fn attempt(self, resolved: &Resolved) -> Attempt<'_> {
        Attempt {
            model: &resolved.full_name,
            price: resolved.price.as_ref(),
            has_begun: self.has_begun,
            received_bytes: self.bytes,
            ..Attempt::default()
        }
    }
}

/// The blocks of one attempt as clients see them: each has the id of the event that it may become.
struct Blocks<'a> {
    session: SessionId,
    chance: &'a Chance,
    previews: &'a Previews,
    ids: BTreeMap<usize, EventId>,
    /// What the headers said about the provider's limits.
    limits: Vec<RateBucket>,
}

impl Blocks<'_> {
    fn show(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::BlockStart { index, kind } => {
                let id = self.chance.event();
                self.ids.insert(index, id);
                if let Some(event_type) = kind.preview_type() {
                    self.previews.start(self.session, id, event_type);
                }
            }
            StreamEvent::Text { index, text } | StreamEvent::Thinking { index, text } => {
                if let Some(id) = self.ids.get(&index) {
                    self.previews.delta(self.session, *id, &text);
                }
            }
            StreamEvent::Limits(limits) => self.limits = limits,
            StreamEvent::Started { .. } | StreamEvent::InputDelta { .. } | StreamEvent::BlockStop { .. } => {}
        }
    }

    /// Gives the blocks of the answer the ids that their previews had.
    fn name(&self, mut answer: Answer) -> Answer {
        for (index, block) in answer.blocks.iter_mut().enumerate() {
            block.id = Some(self.ids.get(&index).copied().unwrap_or_else(|| self.chance.event()));
        }
        answer
    }
}
