//! The model call that summarises the beginning of a long conversation.

use crate::advance::Advance;
use crate::context::seen;
use crate::error::Stopped;
use crate::model_step::{Received, Turn, request_of};
use tenure_core::failure::{Class, Failure, plain};
use tenure_core::pace::RateBucket;
use tenure_core::{
    Answer, AnswerStop, Body, Draft, Estimate, Position, Prompt, Purpose, Sent, compaction, cut_at_window, futile,
    reserve_summary, summary_of, summary_prompt,
};
use tenure_model::{CallContext, Resolved, StreamEvent};

impl Advance {
    /// Asks for a summary; the compaction, or why there is none, is pending afterwards.
    ///
    /// `working` is the model that works on the session and `prompt` what it would have been sent.
    pub(crate) async fn summarise(
        &mut self,
        working: Resolved,
        prompt: &Prompt,
        turn: Turn,
        purpose: Purpose,
    ) -> Result<(), Stopped> {
        let Purpose::Summary { keep_from, room, before } = purpose else { return Ok(()) };
        let writer = match self.agent.policies.compaction.model.clone() {
            None => working,
            Some(name) => {
                // The call goes to another upstream, with conditions, circuit and pace of its own.
                let Some(chosen) = self.choose_writer(&name).await? else { return Ok(()) };
                let (resolved, model) = (chosen.resolved.clone(), chosen.model().to_owned());
                self.chosen = Some(chosen);
                match resolved {
                    Ok(writer) => writer,
                    Err(problem) => return self.cannot_call(turn.step, turn.attempt, &model, &problem).await,
                }
            }
        };
        self.leave_turn();
        let base = Prompt {
            model: writer.full_name.clone(),
            model_name: writer.model_name.clone(),
            max_output_tokens: writer.max_output_tokens.min(prompt.max_output_tokens),
            ..prompt.clone()
        };
        let rows = seen(&mut self.context, &*self.services.store, &self.journal).await?;
        let session = self.journal.session();
        // Links of callbacks stay placeholders: what the model writes goes into the log (design 7.9).
        let ask = summary_prompt(session, &base, &rows, keep_from, room);
        let sent = match reserve_summary(session, &request_of(&writer, &ask), purpose, self.services.clock.now()) {
            Ok(sent) => sent,
            Err(drafts) => return self.journal.push_all(drafts).map_err(Stopped::from),
        };
        let Some((answer, limits)) = self.ask(&writer, &ask, turn, sent).await? else { return Ok(()) };
        let policies = self.agent.policies.clone();
        let now = self.services.clock.now();
        let session = self.journal.session();
        if let Some(drafts) = cut_at_window(session, &answer, writer.facts, writer.price.as_ref(), &policies, now) {
            return self.journal.push_all(drafts).map_err(Stopped::from);
        }
        let rows = seen(&mut self.context, &*self.services.store, &self.journal).await?;
        let Some(summary) = summary_of(&rows, keep_from, &answer).filter(|_| answer.stop != AnswerStop::Refusal) else {
            let why = "the model was asked for a summary and wrote none";
            return self.record_no_answer(why, &answer, &writer).await;
        };
        self.end_summary(&answer, &writer)?;
        self.note_answer(&writer, &limits, answer.usage.total()).await;
        let rows = seen(&mut self.context, &*self.services.store, &self.journal).await?;
        let session = self.journal.session();
        match compaction(session, prompt, &rows, keep_from, summary, before) {
            Ok(draft) => self.journal.push(draft).map(drop)?,
            Err(after) => {
                let drafts = futile(session, before, after, now);
                self.journal.push_all(drafts)?;
            }
        }
        Ok(())
    }

    /// Begins the call in the log and makes it; nothing of it is a preview. `None` if what came of it
    /// is recorded already.
    async fn ask(
        &mut self,
        writer: &Resolved,
        prompt: &Prompt,
        turn: Turn,
        sent: Sent,
    ) -> Result<Option<(Answer, Vec<RateBucket>)>, Stopped> {
        if !self.begin_call(turn, &writer.full_name, sent).await? {
            return Ok(None);
        }
        self.services.may_start_effect(&self.held)?;
        let context = CallContext { session: self.journal.session().id, step: turn.step, attempt: turn.attempt };
        let services = self.services.clone();
        let at = (turn.step, turn.attempt);
        let mut observed = services.observer.attempt(self.held.trace, self.journal.session(), writer, prompt, at);
        let (mut received, mut limits) = (Received::default(), Vec::new());
        let mut chosen = self.chosen.take();
        let result = {
            let mut on_event = |event: StreamEvent| {
                observed.piece(&event);
                received.note(&event);
                match (event, &mut chosen) {
                    (StreamEvent::BlockStart { .. }, Some(chosen)) => chosen.is_answering(),
                    (StreamEvent::Limits(told), _) => limits = told,
                    _ => {}
                }
            };
            let mut call = writer.model.call(prompt, &context, &mut on_event);
            tokio::select! {
                biased;
                result = &mut call => result,
                stop = self.must_stop() => {
                    stop?;
                    self.note_out_of_time()?;
                    return Ok(None);
                }
            }
        };
        self.chosen = chosen;
        match result {
            Ok(answer) => {
                observed.answered(&answer);
                Ok(Some((answer, limits)))
            }
            Err(failure) => {
                observed.failed(&failure);
                // A filter that refuses the summary refuses no answer to the user.
                let failure = match failure.class {
                    Class::Refused => {
                        Failure { request_id: failure.request_id, ..plain(Class::Empty, failure.message) }
                    }
                    _ => failure,
                };
                self.record_failure(&failure, &received.attempt(writer)).await?;
                Ok(None)
            }
        }
    }

    /// Records that the summary came.
    fn end_summary(&mut self, answer: &Answer, writer: &Resolved) -> Result<(), Stopped> {
        let session = self.journal.session();
        let Position::Calling { span, .. } = session.position else { return Ok(()) };
        let end = Body::SpanEnd {
            span,
            model: writer.full_name.clone(),
            is_error: false,
            usage: answer.usage,
            cost_usd_micros: writer.price.map(|price| price.cost_usd_micros(answer.usage)),
            assumed: Estimate::default(),
        };
        let draft = Draft::of_step(session.last_step, end);
        self.journal.push(draft).map(drop).map_err(Stopped::from)
    }
}
