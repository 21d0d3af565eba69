//! Reads streamed answers of Ollama: one JSON object a line.
//!
//! ```text
//! {"message":{…},"done":false}* {"message":{…},"done":true,"done_reason":…}     {"error":"…"}: anywhere
//! ```
//! One text, one reasoning and any number of calls, which come whole and without ids.

use crate::decoder::{EventError, MAX_ANSWER_BLOCKS, OnEvent, Protocol, Sign, StreamDecoder, tool_input_value};
use crate::lines::LineReader;
use crate::model::{BlockPreview, StreamEvent};
use crate::reason::{Reason, reason};
use crate::sse::SseEvent;
use crate::text::Text;
use crate::verbatim::is_nothing;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::failure::{Failure, incomplete};
use tenure_core::{Answer, AnswerBlock, AnswerStop, BlockKind, Json, Usage, clean_surrogates};

/// A reader for one answer of `model` (`provider/model`).
pub(crate) fn decoder(model: &str) -> StreamDecoder<LineReader, Lines> {
    StreamDecoder::new(Lines { model: model.to_owned(), ..Lines::default() })
}

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    model: String,
    blocks: Vec<OpenBlock>,
    stop: Option<AnswerStop>,
    usage: Usage,
}

#[derive(Debug)]
enum OpenBlock {
    Text(String),
    Thinking(String),
    Call { id: String, name: String, input: Result<Json, String> },
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    message: Option<Said<'a>>,
    #[serde(default)]
    done: bool,
    #[serde(borrow, default)]
    done_reason: Text<'a>,
    #[serde(default)]
    prompt_eval_count: Option<u64>,
    #[serde(default)]
    eval_count: Option<u64>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl Protocol for Lines {
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<Sign, EventError> {
        let data = clean_surrogates(&event.data);
        if data.starts_with('[') {
            // No answer is an array, but proxies wrap errors in one.
            return Err(EventError::of_error(&data));
        }
        let line: Line<'_> = serde_json::from_str(&data).map_err(|error| EventError::unreadable(&error))?;
        if !is_nothing(&line.error) {
            return Err(EventError::of_error(&data));
        }
        let mut has_come = false;
        if let Some(said) = line.message {
            for (piece, is_thought) in [(said.thinking, true), (said.content, false)] {
                has_come |= !piece.is_empty();
                self.add_text(&piece, is_thought, &mut *on_event);
            }
            for call in said.tool_calls.into_iter().flatten() {
                has_come = true;
                self.add_call(call, &mut *on_event)?;
            }
        }
        if line.done {
            self.usage.input = line.prompt_eval_count.unwrap_or(0);
            self.usage.output = line.eval_count.unwrap_or(0);
            self.finish(&line.done_reason)?;
        }
        Ok(Sign::of(has_come || line.done))
    }

    fn is_complete(&self) -> bool {
        self.stop.is_some()
    }

    fn answer(&mut self, on_event: OnEvent<'_>) -> Option<Answer> {
        let stop = self.stop?;
        let blocks: Vec<AnswerBlock> = std::mem::take(&mut self.blocks).into_iter().map(OpenBlock::close).collect();
        for index in 0..blocks.len() {
            on_event(StreamEvent::BlockStop { index });
        }
        let has_calls = blocks.iter().any(|block| matches!(block.kind, BlockKind::ToolUse { .. }));
        let stop = match stop {
            AnswerStop::EndTurn if has_calls => AnswerStop::ToolUse,
            stop => stop,
        };
        Some(Answer {
            dialect: super::NAME.to_owned(),
            model: self.model.clone(),
            blocks,
            stop,
            usage: self.usage,
            request_id: None,
        })
    }
}

impl Lines {
    fn add_text(&mut self, piece: &str, is_thought: bool, on_event: OnEvent<'_>) {
        if piece.is_empty() {
            return;
        }
        let place = self.blocks.iter().position(|block| match block {
            OpenBlock::Text(_) => !is_thought,
            OpenBlock::Thinking(_) => is_thought,
            OpenBlock::Call { .. } => false,
        });
        let index = place.unwrap_or_else(|| {
            let (block, kind) = match is_thought {
                true => (OpenBlock::Thinking(String::new()), BlockPreview::Thinking),
                false => (OpenBlock::Text(String::new()), BlockPreview::Text),
            };
            self.open(block, kind, &mut *on_event)
        });
        match &mut self.blocks[index] {
            OpenBlock::Text(text) | OpenBlock::Thinking(text) => text.push_str(piece),
            OpenBlock::Call { .. } => {}
        }
        let text = piece.to_owned();
        on_event(if is_thought { StreamEvent::Thinking { index, text } } else { StreamEvent::Text { index, text } });
    }

    fn open(&mut self, block: OpenBlock, kind: BlockPreview, on_event: OnEvent<'_>) -> usize {
        let index = self.blocks.len();
        self.blocks.push(block);
        on_event(StreamEvent::BlockStart { index, kind });
        index
    }

    fn add_call(&mut self, call: Call<'_>, on_event: OnEvent<'_>) -> Result<(), EventError> {
        if self.blocks.len() >= MAX_ANSWER_BLOCKS {
            return Err(EventError::too_many_blocks());
        }
        let name = call.function.name.into_owned();
        let json = call.function.arguments.map_or("", RawValue::get).to_owned();
        let input = tool_input_value(&json);
        let block = OpenBlock::Call { id: call.id.into_owned(), name: name.clone(), input };
        let index = self.open(block, BlockPreview::ToolUse { name }, &mut *on_event);
        if !json.is_empty() {
            on_event(StreamEvent::InputDelta { index, json });
        }
        Ok(())
    }

    fn finish(&mut self, word: &str) -> Result<(), EventError> {
        self.stop = Some(match (word, reason(word)) {
            // Old servers say nothing.
            ("", _) | (_, Reason::End | Reason::Calls | Reason::Sequence | Reason::Pause) => AnswerStop::EndTurn,
            (_, Reason::Cut) => AnswerStop::MaxTokens,
            (_, Reason::ContextWindow) => AnswerStop::ContextWindow,
            (_, Reason::Refused) => AnswerStop::Refusal,
            (_, Reason::BrokenCall) => return Err(EventError::broken_call(word, "")),
            // `load` and `unload` answer nothing; a new word may mean half an answer.
            (_, Reason::Unknown | Reason::BadHistory) => {
                let failure = incomplete(format!("the server ended the answer with {word:?}"));
                return Err(EventError::Failed(Failure { status: Some(200), kind: word.to_owned(), ..failure }));
            }
        });
        Ok(())
    }
}

impl OpenBlock {
    fn close(self) -> AnswerBlock {
        let kind = match self {
            Self::Text(text) => BlockKind::Text { text },
            Self::Thinking(text) => BlockKind::Thinking { text },
            Self::Call { id, name, input } => BlockKind::ToolUse { provider_id: id, name, input },
        };
        AnswerBlock { id: None, kind, raw: Vec::new() }
    }
}
