//! What a model saw at a step: the request of a call that was made, built again from the log.
//!
//! Nothing of a request is stored, because all of it follows from the rows before it (promise P7). What
//! the configuration says may have changed since, so the result says whether it has the size that was
//! recorded when the call was made.

use crate::links::CallbackLinks;
use crate::model_step::prompt_of;
use crate::tools::Tools;
use std::fmt;
use std::sync::Arc;
use tenure_core::{Agent, Body, Event, Prompt, Purpose, Session, Size, summary_prompt, transcript};
use tenure_model::{Models, Written};

/// Builds requests again.
pub struct Requests {
    models: Arc<dyn Models>,
    tools: Tools,
    public_url: String,
    installation_key: [u8; 32],
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("public_url", &self.public_url).finish_non_exhaustive()
    }
}

/// A request that was built again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// As it goes over the wire, with placeholders where links of callbacks stand.
    pub written: Written,
    /// Whether it is as large as what was recorded before it was sent.
    pub is_exact: bool,
}

impl Requests {
    /// With the models of the configuration, and what links of callbacks are made of.
    pub fn new(models: Arc<dyn Models>, public_url: String, installation_key: [u8; 32]) -> Self {
        Self { models, tools: Tools::default(), public_url, installation_key }
    }

    /// The request of the call that `start` began. `session` is the head right before it, and `rows`
    /// are those that the model saw.
    ///
    /// # Errors
    /// Why it cannot be built any more, in words for people.
    pub fn rebuild(&self, agent: &Agent, session: &Session, rows: &[Event], start: &Event) -> Result<Rebuilt, String> {
        let Body::SpanStart { model, sent, .. } = &start.body else {
            return Err(format!("row {} begins no model call", start.seq));
        };
        let agent = agent.with_models(&session.models);
        let resolved = self.models.resolve(model).map_err(|problem| problem.to_string())?;
        let base = prompt_of(&self.tools, &agent, session.id, &resolved);
        let (prompt, size) = match sent.purpose {
            Purpose::Answer => {
                let prompt = Prompt { messages: transcript(rows), ..base };
                let (public_url, key) = (self.public_url.as_str(), &self.installation_key);
                let mut linked = prompt.clone();
                CallbackLinks { session: session.id, public_url, key }
                    .render(&mut linked.messages, session.context_from_seq > 1);
                (prompt, Size::of_prompt(&linked))
            }
            Purpose::Summary { keep_from, room, .. } => {
                let working = self.models.resolve(&agent.model).map_or(u32::MAX, |working| working.max_output_tokens);
                let base = Prompt { max_output_tokens: base.max_output_tokens.min(working), ..base };
                let rows: Vec<&Event> = rows.iter().collect();
                let prompt = summary_prompt(session, &base, &rows, keep_from, room);
                let size = Size::of_prompt(&prompt);
                (prompt, size)
            }
        };
        let written = resolved.model.written(&prompt);
        let written = written.ok_or_else(|| format!("the model {model} sends nothing over a wire"))?;
        Ok(Rebuilt { written, is_exact: size == sent.size })
    }
}
