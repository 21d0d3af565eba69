//! What all decoders of streamed answers share: bytes in, previews out, one answer at the end.

use crate::model::StreamEvent;
use crate::sse::{SseEvent, SseReader, TooLarge};
use std::fmt;
use tenure_core::failure::{Class, Failure, Reply, classify, incomplete, plain};
use tenure_core::{Answer, AnswerStop, BlockKind, Json};

/// Most bytes of one streamed answer; more end the attempt.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Most blocks of one answer; more end the attempt. Models that call tools in parallel stay in the
/// dozens, and what looks for a block among them stays cheap.
pub const MAX_ANSWER_BLOCKS: usize = 4_096;

/// Where previews go.
pub(crate) type OnEvent<'a> = &'a mut dyn FnMut(StreamEvent);

/// Reads one streamed answer.
pub trait Decoder: fmt::Debug + Send {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When the stream says that it failed, or cannot be read; the attempt is over then.
    fn push(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(StreamEvent)) -> Result<(), Failure>;

    /// Whether the provider's terminal marker has come, so that nothing more needs to be read.
    fn is_complete(&self) -> bool;

    /// How many events have brought the answer forward. Pings and other signs of life do not count.
    fn progress(&self) -> u64;

    /// Ends the stream.
    ///
    /// # Errors
    /// When it ended before its terminal marker (promise P2).
    fn finish(&mut self, on_event: &mut dyn FnMut(StreamEvent)) -> Result<Answer, Failure>;
}

/// What one dialect makes of events.
pub(crate) trait Protocol: fmt::Debug + Send {
    /// Takes one event.
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<Sign, EventError>;

    /// Whether nothing more can follow.
    fn is_complete(&self) -> bool;

    /// The answer, if a terminal marker has come.
    fn answer(&mut self, on_event: OnEvent<'_>) -> Option<Answer>;
}

/// What an event is a sign of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The provider lives; the answer is where it was.
    Life,
    /// The answer has come forward.
    Progress,
}

impl Sign {
    /// Progress if something came.
    pub(crate) fn of(has_come: bool) -> Self {
        if has_come { Self::Progress } else { Self::Life }
    }
}

/// Why an event ends the attempt.
#[derive(Debug)]
pub(crate) enum EventError {
    /// The provider says that it failed.
    Failed(Failure),
    /// It is not JSON, or not of the expected form.
    Unreadable(String),
}

impl EventError {
    /// The data of an event that says what went wrong; the status of the open stream says nothing.
    pub(crate) fn of_error(data: &str) -> Self {
        Self::Failed(classify(&Reply { status: 200, body: data, headers: &[] }))
    }

    /// An event that our reading of the dialect cannot take.
    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }

    /// More blocks than [`MAX_ANSWER_BLOCKS`].
    pub(crate) fn too_many_blocks() -> Self {
        Self::Failed(incomplete(format!("the answer has more than {MAX_ANSWER_BLOCKS} blocks")))
    }

    /// The provider itself says that it could not read the call that its model wrote (case O-017).
    ///
    /// Nothing of such an answer is kept, and a call in it is never run. It counts as an answer with
    /// nothing in it, so that the tries are few.
    pub(crate) fn broken_call(kind: &str, message: &str) -> Self {
        let message = match message.trim() {
            "" => format!("the model wrote a call that the provider could not read ({kind})"),
            message => {
                let start: String = message.chars().take(MAX_BROKEN_CALL_CHARS).collect();
                format!("the model wrote a call that the provider could not read ({kind}): {start}")
            }
        };
        Self::Failed(Failure { status: Some(200), kind: kind.to_owned(), ..plain(Class::Malformed, message) })
    }
}

/// Most characters that are kept of what a provider says about a broken call.
const MAX_BROKEN_CALL_CHARS: usize = 200;

/// Cuts bytes into events.
pub(crate) trait Framing: fmt::Debug + Default + Send {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge>;
    /// Ends the stream: an open last event counts.
    fn finish(&mut self);
    /// The next event, if one is whole.
    fn next_event(&mut self) -> Option<SseEvent>;
    /// Takes a used event back, for its memory.
    fn give_back(&mut self, event: SseEvent);
}

impl Framing for SseReader {
    fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        Self::push(self, bytes)
    }

    fn finish(&mut self) {
        Self::finish(self);
    }

    fn next_event(&mut self) -> Option<SseEvent> {
        Self::next_event(self)
    }

    fn give_back(&mut self, event: SseEvent) {
        Self::give_back(self, event);
    }
}

/// A decoder for dialects that stream server-sent events.
pub(crate) type SseDecoder<P> = StreamDecoder<SseReader, P>;

/// A framing with a dialect on top.
#[derive(Debug)]
pub(crate) struct StreamDecoder<F, P> {
    framing: F,
    protocol: P,
    size_bytes: usize,
    progress: u64,
}

impl<F: Framing, P: Protocol> StreamDecoder<F, P> {
    pub(crate) fn new(protocol: P) -> Self {
        Self { framing: F::default(), protocol, size_bytes: 0, progress: 0 }
    }

    fn take(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<(), EventError> {
        if event.is_bare {
            // JSON where an event should be: an error of Gemini, or of a proxy that kept the headers
            // of the stream (provider facts, section 5).
            return Err(EventError::of_error(&event.data));
        }
        let sign = self.protocol.event(event, on_event)?;
        self.progress += u64::from(sign == Sign::Progress);
        Ok(())
    }
}

impl<F: Framing, P: Protocol> Decoder for StreamDecoder<F, P> {
    fn push(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(StreamEvent)) -> Result<(), Failure> {
        if self.protocol.is_complete() {
            return Ok(());
        }
        self.size_bytes = self.size_bytes.saturating_add(bytes.len());
        if self.size_bytes > MAX_ANSWER_BYTES {
            return Err(incomplete(format!("the streamed answer is larger than {MAX_ANSWER_BYTES} bytes")));
        }
        let is_too_large = self.framing.push(bytes).is_err();
        while let Some(event) = self.framing.next_event() {
            if self.protocol.is_complete() {
                return Ok(());
            }
            self.take(&event, on_event).map_err(|error| match error {
                EventError::Failed(failure) => failure,
                EventError::Unreadable(reason) => {
                    incomplete(format!("the stream holds an event that cannot be read: {reason}"))
                }
            })?;
            self.framing.give_back(event);
        }
        if is_too_large {
            return Err(incomplete("the stream holds an event that is too large"));
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.protocol.is_complete()
    }

    fn progress(&self) -> u64 {
        self.progress
    }

    fn finish(&mut self, on_event: &mut dyn FnMut(StreamEvent)) -> Result<Answer, Failure> {
        self.framing.finish();
        // Nothing counts after the marker, whether it came in the same chunk or in a later one.
        while !self.protocol.is_complete()
            && let Some(event) = self.framing.next_event()
        {
            match self.take(&event, on_event) {
                Ok(()) => {}
                Err(EventError::Failed(failure)) => return Err(failure),
                // A last event that was cut; whether the answer is whole is decided by its marker.
                Err(EventError::Unreadable(_)) => break,
            }
        }
        let mut answer = self
            .protocol
            .answer(on_event)
            .ok_or_else(|| incomplete("the stream ended before the answer was complete"))?;
        if answer.stop == AnswerStop::Refusal {
            // What a filter stopped is not run.
            answer.blocks.retain(|block| !matches!(block.kind, BlockKind::ToolUse { .. }));
        }
        Ok(answer)
    }
}

/// The input of a tool call, or the parser's message. Nothing, and `null`, stand for no arguments
/// (case O-012); a cut object is never mended (cases O-003, O-011).
pub(crate) fn tool_input(text: &str) -> Result<Json, String> {
    match text.trim() {
        "" | "null" => Ok(Json::object()),
        text => Json::parse(text).map_err(|error| error.to_string()),
    }
}

/// The same for dialects whose arguments are JSON and not text; some servers that speak them send text
/// that holds it.
pub(crate) fn tool_input_value(json: &str) -> Result<Json, String> {
    match serde_json::from_str::<String>(json) {
        Ok(text) => tool_input(&text),
        Err(_) => tool_input(json),
    }
}
