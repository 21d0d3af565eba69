//! The world outside: a provider that answers, and hands that carry out calls. Both are seen by the referee.

use crate::dice::Dice;
use crate::plan::Outage;
use crate::world::{Process, World};
use async_trait::async_trait;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::failure::{Failure, Reply, classify, incomplete, unreachable};
use tenure_core::{
    Answer, AnswerBlock, AnswerStop, Block, BlockKind, Call, Done, Json, Message, ModelFacts, Outcome, Price, Prompt,
    SessionId, Usage, UserPart, validate,
};
use tenure_engine::Hands;
use tenure_model::{BlockPreview, CallContext, ConfigProblem, Model, Models, Resolved, StreamEvent};

/// The only model of the world.
pub(crate) const MODEL: &str = "played/model";

/// Most output tokens of an answer.
const MAX_OUTPUT: u32 = 100;

/// Most tokens that an answer is counted as.
pub(crate) const MAX_ANSWER_TOKENS: u64 = 60;

/// Attempts out of a hundred that fail without any outage.
const FAILS: u64 = 3;

/// Answers out of a hundred that call tools.
const CALLS: u64 = 55;

/// What all workers share of the world outside.
#[derive(Debug)]
pub(crate) struct Outside {
    dice: Mutex<Dice>,
}

impl Outside {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Mutex::new(Dice::of(seed, 3)) }
    }

    fn throw<T>(&self, throw: impl FnOnce(&mut Dice) -> T) -> T {
        throw(&mut self.dice.lock().expect("nobody panics while holding it"))
    }
}

/// The way of one process to the world outside.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) world: Arc<World>,
    pub(crate) process: Arc<Process>,
    pub(crate) outside: Arc<Outside>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").finish_non_exhaustive()
    }
}

impl Way {
    async fn takes(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        self.process.lives().await;
    }
}

impl Models for Way {
    fn resolve(&self, _: &str) -> Result<Resolved, ConfigProblem> {
        Ok(Resolved {
            model: Arc::new(self.clone()),
            full_name: MODEL.to_owned(),
            credential: "played".into(),
            model_name: "model".into(),
            price: Some(Price { input: 1, output: 1, cache_read: 1, cache_write: 1 }),
            max_output_tokens: MAX_OUTPUT,
            facts: ModelFacts { context_window: None, max_request_bytes: 32 * 1024 * 1024, cuts_silently: false },
        })
    }
}

#[async_trait]
impl Model for Way {
    async fn call(
        &self,
        prompt: &Prompt,
        context: &CallContext,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        self.process.lives().await;
        let session = context.session;
        self.world.judge(|referee| referee.model_called(session, context.step, context.attempt));
        self.world.note(format!("provider: {session} step {} attempt {}", context.step, context.attempt));
        if let Err(problem) = validate::validate(&prompt.messages) {
            let what = format!("{session}: no provider would take step {}: {problem:?}", context.step);
            self.world.judge(|referee| referee.broken("P4 every prefix is a valid request", what));
        }
        let (time, fails, plan) =
            self.outside.throw(|dice| (dice.pick(&[20, 400, 3_000, 15_000]), dice.percent(FAILS), dice.next()));
        let refuse = |status, kind: &str| {
            let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"no"}}}}"#);
            Err(classify(&Reply { status, body: &body, headers: &[] }))
        };
        let outage = self.world.outage();
        match outage {
            Some(Outage::Unreachable) => return Err(unreachable("connection refused")),
            Some(Outage::Overloaded) => return refuse(529, "overloaded_error"),
            Some(Outage::Limited) => return refuse(429, "rate_limit_error"),
            Some(Outage::Slow) => self.takes(20_000).await,
            Some(Outage::BrokenStreams) | None => {}
        }
        self.takes(time / 2).await;
        on_event(StreamEvent::BlockStart { index: 0, kind: BlockPreview::Text });
        on_event(StreamEvent::Text { index: 0, text: "I say".into() });
        self.takes(time / 2).await;
        if outage == Some(Outage::BrokenStreams) || fails {
            return Err(incomplete("the stream ended before its terminal marker"));
        }
        let answer = answer(prompt, &mut Dice::new(plan));
        self.world.judge(|referee| referee.answered(session, answer.usage.total()));
        Ok(answer)
    }
}

fn answer(prompt: &Prompt, dice: &mut Dice) -> Answer {
    let text = AnswerBlock { id: None, kind: BlockKind::Text { text: "I say so".into() }, raw: Vec::new() };
    let mut blocks = vec![text];
    let calls = if dice.percent(CALLS) { dice.between(1, 3) } else { 0 };
    blocks.extend((0..calls).map(|place| {
        let (name, input) = call(prompt, dice);
        let input = Json::parse(&input).map_err(|error| format!("{error:?}"));
        let kind = BlockKind::ToolUse { provider_id: format!("call_{place}"), name: name.to_owned(), input };
        AnswerBlock { id: None, kind, raw: Vec::new() }
    }));
    Answer {
        dialect: "played".into(),
        model: MODEL.into(),
        blocks,
        stop: if calls > 0 { AnswerStop::ToolUse } else { AnswerStop::EndTurn },
        usage: Usage { input: 10, output: dice.between(5, 50), ..Usage::default() },
        request_id: None,
    }
}

fn call(prompt: &Prompt, dice: &mut Dice) -> (&'static str, String) {
    let number = dice.next() % 1_000_000;
    match dice.between(1, 100) {
        1..=35 => ("bash", format!(r#"{{"command":"count {number}"}}"#)),
        36..=50 => ("read", format!(r#"{{"file_path":"/{number}"}}"#)),
        51..=62 => ("write", format!(r#"{{"file_path":"/{number}","content":"x"}}"#)),
        63..=76 => ("sleep", format!(r#"{{"seconds":{}}}"#, dice.pick(&["0.05", "1.5", "20", "70"]))),
        77..=83 => ("ask_user", format!(r#"{{"question":"{number}?"}}"#)),
        84..=90 => ("form", format!(r#"{{"number":{number}}}"#)),
        91..=95 => ("create_callback", format!(r#"{{"label":"{number}"}}"#)),
        _ => match open_callback(prompt) {
            Some(id) => ("wait_for_callback", format!(r#"{{"callback_id":"{id}","timeout_seconds":60}}"#)),
            None => ("create_callback", format!(r#"{{"label":"{number}"}}"#)),
        },
    }
}

/// The callback that was made last.
fn open_callback(prompt: &Prompt) -> Option<String> {
    let texts = prompt.messages.iter().rev().flat_map(|message| match message {
        Message::User(parts) => parts.as_slice(),
        Message::Assistant(_) => &[],
    });
    texts
        .filter_map(|part| match part {
            UserPart::Result { content, .. } => content.first(),
            UserPart::Block(_) => None,
        })
        .find_map(|block| match block {
            Block::Text(text) => {
                let (_, rest) = text.split_once(r#""callback_id":""#)?;
                Some(rest.split_once('"')?.0.to_owned())
            }
            Block::Media { .. } => None,
        })
}

#[async_trait]
impl Hands for Way {
    async fn run(&self, session: SessionId, call: &Call, _: &Json) -> Done {
        self.process.lives().await;
        let time = self.outside.throw(|dice| dice.pick(&[10, 200, 2_000, 12_000]));
        self.takes(time / 2).await;
        self.world.judge(|referee| referee.carried_out(session, call));
        self.world.note(format!("hands: {session} {} {}", call.name, call.id));
        self.takes(time / 2).await;
        Done::text(Outcome::Done, "it is done")
    }
}
