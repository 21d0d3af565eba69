//! The port: what the engine knows of models.

use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use tenure_core::failure::{Class, Failure, plain};
use tenure_core::pace::RateBucket;
use tenure_core::{Answer, ModelFacts, Price, Prompt, SessionId, validate};

/// Finds models by the names that agents use.
pub trait Models: fmt::Debug + Send + Sync {
    /// The model behind `provider/name`, or behind a bare name that the configuration knows.
    ///
    /// # Errors
    /// When nothing is configured under this name; says what to change.
    fn resolve(&self, name: &str) -> Result<Resolved, ConfigProblem>;
}

/// One model, ready to be called.
#[async_trait]
pub trait Model: fmt::Debug + Send + Sync {
    /// Makes one attempt. Previews go to `on_event` as soon as their bytes are here.
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// Whatever kept the answer from being whole, with its class.
    async fn call(
        &self,
        prompt: &Prompt,
        context: &CallContext,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure>;

    /// Input tokens of a request that is not sent yet, for models that know without asking anybody.
    fn count(&self, _prompt: &Prompt) -> Option<u64> {
        None
    }

    /// The request that a prompt becomes, without key and headers; nothing is sent.
    fn written(&self, _prompt: &Prompt) -> Option<Written> {
        None
    }
}

/// A request as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The dialect of its provider.
    pub dialect: String,
    /// Strict JSON.
    pub body: Vec<u8>,
}

/// A model with what the engine needs besides.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The model.
    pub model: Arc<dyn Model>,
    /// `provider/name`.
    pub full_name: String,
    /// Names the key that its calls use: conditions are shared by all who use it.
    pub credential: String,
    /// The name of the model as the provider knows it.
    pub model_name: String,
    /// What it costs, if the configuration says so.
    pub price: Option<Price>,
    /// Most output tokens per call.
    pub max_output_tokens: u32,
    /// How much it takes.
    pub facts: ModelFacts,
}

/// Which call this is; models that play a scenario look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The session.
    pub session: SessionId,
    /// The step.
    pub step: u64,
    /// Which attempt of it, counted from 1.
    pub attempt: u32,
}

/// A preview of an answer; never history.
///
/// `index` is the place of a block in [`Answer::blocks`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is documented; its fields are its place and what is added")]
pub enum StreamEvent {
    /// The provider has begun to answer.
    Started { request_id: Option<String> },
    /// What the headers of the reply say about the provider's limits.
    Limits(Vec<RateBucket>),
    /// A block begins.
    BlockStart { index: usize, kind: BlockPreview },
    /// More text of a text block.
    Text { index: usize, text: String },
    /// More text of a reasoning block.
    Thinking { index: usize, text: String },
    /// More of the JSON text of a tool's input.
    InputDelta { index: usize, json: String },
    /// A block is complete.
    BlockStop { index: usize },
}

/// What a block is, at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockPreview {
    /// Text.
    Text,
    /// Reasoning.
    Thinking,
    /// A tool call.
    ToolUse {
        /// The tool.
        name: String,
    },
}

impl BlockPreview {
    /// The type of the event that previews it; calls have no preview.
    pub fn preview_type(&self) -> Option<&'static str> {
        match self {
            Self::Text => Some("agent.message"),
            Self::Thinking => Some("agent.thinking"),
            Self::ToolUse { .. } => None,
        }
    }
}

/// Something in the configuration of models that has to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Stable, for programs.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for ConfigProblem {}

/// Refuses a conversation that no provider would take, before anything is sent (promise P4).
pub(crate) fn check_history(prompt: &Prompt) -> Result<(), Failure> {
    validate::validate(&prompt.messages).map_err(|problem| {
        let message = format!("message {} of the request breaks a rule: {}", problem.message, problem.rule);
        plain(Class::BadHistory, message)
    })
}
