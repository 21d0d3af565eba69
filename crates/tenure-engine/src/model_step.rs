//! One model call: begun in the log, streamed as a preview, ended in the log.

use crate::advance::Advance;
use crate::error::Stopped;
use crate::ids;
use crate::previews::Previews;
use std::collections::BTreeMap;
use tenure_core::failure::{Class, Failure};
use tenure_core::{Answer, Body, Draft, EventId, Price, Prompt, SessionId, answered, failed, transcript};
use tenure_model::{CallContext, Resolved, StreamEvent};
use tenure_store::Then;

impl Advance {
    /// Calls the model once; whatever comes of it is pending afterwards.
    pub(crate) async fn call_model(&mut self, step: u64, attempt: u32) -> Result<(), Stopped> {
        let resolved = self.services.models.resolve(&self.agent.model);
        let model = resolved.as_ref().map_or(self.agent.model.clone(), |resolved| resolved.full_name.clone());
        // The span's start is committed together with what came before it (api.md, rules of the stream).
        self.journal.push(Draft::of_step(step, Body::SpanStart { model: model.clone(), attempt, instead_of: None }))?;
        self.journal.commit(Then::Keep).await?;
        if self.journal.has_urgent() {
            return Ok(());
        }
        let committed = self.journal.take_committed();
        self.context.extend(committed);
        match resolved {
            Err(problem) => {
                let failure = Failure {
                    class: Class::Config,
                    status: None,
                    kind: String::new(),
                    message: problem.to_string(),
                    retry_after: None,
                    request_id: None,
                };
                self.record_failure(&failure, &model)
            }
            Ok(resolved) => self.call(resolved, step, attempt).await,
        }
    }

    async fn call(&mut self, resolved: Resolved, step: u64, attempt: u32) -> Result<(), Stopped> {
        let prompt = self.prompt(&resolved).await?;
        self.services.may_start_effect(&self.held)?;
        let session = self.journal.session();
        let (id, epoch, after_seq) = (session.id, self.held.lease.epoch, session.last_seq);
        let services = self.services.clone();
        services.previews.begin(id, epoch, after_seq, attempt);
        let mut observed =
            services.observer.attempt(self.held.trace, self.journal.session(), &resolved, &prompt, (step, attempt));
        let mut blocks = Blocks { session: id, previews: &services.previews, ids: BTreeMap::new() };
        let context = CallContext { session: id, step, attempt };
        let result = {
            let mut on_event = |event: StreamEvent| {
                observed.piece(&event);
                blocks.show(event);
            };
            let mut call = resolved.model.call(&prompt, &context, &mut on_event);
            tokio::select! {
                result = &mut call => Some(result),
                stop = self.must_stop() => {
                    stop?;
                    None
                }
            }
        };
        services.previews.finish(id);
        match result {
            // Interrupted: the connection is closed, and the intake of the interrupt closes the span.
            None => Ok(()),
            Some(Err(failure)) => {
                observed.failed(&failure);
                self.record_failure(&failure, &resolved.full_name)
            }
            Some(Ok(answer)) => {
                observed.answered(&answer);
                let answer = blocks.name(answer);
                self.record_answer(answer, &resolved)
            }
        }
    }

    /// The conversation as the model gets it.
    async fn prompt(&mut self, resolved: &Resolved) -> Result<Prompt, Stopped> {
        let session = self.journal.session().clone();
        let rows = self.context.rows(&*self.services.store, &session).await?;
        let links = self.services.callback_links(session.id);
        let mut messages = transcript(rows);
        for message in &mut messages {
            links.render(message);
        }
        let most = self.agent.policies.max_output_tokens.unwrap_or(u32::MAX);
        Ok(Prompt {
            model: resolved.full_name.clone(),
            model_name: resolved.model_name.clone(),
            system: self.agent.system.clone(),
            messages,
            tools: self.services.tools.specs(&self.agent),
            max_output_tokens: resolved.max_output_tokens.min(most),
        })
    }

    fn record_answer(&mut self, answer: Answer, resolved: &Resolved) -> Result<(), Stopped> {
        if answer.is_empty() && answer.stop != tenure_core::AnswerStop::Refusal {
            let failure = Failure {
                class: Class::Empty,
                status: None,
                kind: String::new(),
                message: "the model's answer holds neither text nor a tool call".to_owned(),
                retry_after: None,
                request_id: answer.request_id,
            };
            return self.record_failure(&failure, &resolved.full_name);
        }
        let price: Option<&Price> = resolved.price.as_ref();
        let tools = &self.services.tools;
        let (agent, names) = (self.agent.clone(), tools.names(&self.agent));
        let drafts = answered(self.journal.session(), answer, price, &|name| tools.facts(&agent, name), &names);
        self.journal.push_all(drafts)?;
        Ok(())
    }

    fn record_failure(&mut self, failure: &Failure, model: &str) -> Result<(), Stopped> {
        tracing::info!(
            session = %self.journal.session().id, model, class = ?failure.class, status = failure.status,
            kind = %failure.kind, "model attempt failed"
        );
        let now = self.services.clock.now();
        let drafts = failed(self.journal.session(), failure, model, &self.agent.policies, rand::random(), now);
        self.journal.push_all(drafts)?;
        Ok(())
    }
}

/// The blocks of one attempt as clients see them: each has the id of the event that it may become.
struct Blocks<'a> {
    session: SessionId,
    previews: &'a Previews,
    ids: BTreeMap<usize, EventId>,
}

impl Blocks<'_> {
    fn show(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::BlockStart { index, kind } => {
                let id = ids::event();
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
            StreamEvent::Started { .. } | StreamEvent::InputDelta { .. } | StreamEvent::BlockStop { .. } => {}
        }
    }

    /// Gives the blocks of the answer the ids that their previews had.
    fn name(&self, mut answer: Answer) -> Answer {
        for (index, block) in answer.blocks.iter_mut().enumerate() {
            block.id = Some(self.ids.get(&index).copied().unwrap_or_else(ids::event));
        }
        answer
    }
}
