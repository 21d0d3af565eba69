//! What all decoders of streamed answers share: bytes in, previews out, one answer at the end.

use crate::model::StreamEvent;
use crate::sse::{SseEvent, SseReader};
use std::fmt;
use tenure_core::failure::{Failure, incomplete};
use tenure_core::{Answer, Json};

/// Most bytes of one streamed answer; more end the attempt.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

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

    /// Ends the stream.
    ///
    /// # Errors
    /// When it ended before its terminal marker (promise P2).
    fn finish(&mut self, on_event: &mut dyn FnMut(StreamEvent)) -> Result<Answer, Failure>;
}

/// What one dialect makes of events.
pub(crate) trait Protocol: fmt::Debug + Send {
    /// Takes one event.
    fn event(&mut self, event: &SseEvent, on_event: OnEvent<'_>) -> Result<(), EventError>;

    /// Whether nothing more can follow.
    fn is_complete(&self) -> bool;

    /// The answer, if a terminal marker has come.
    fn answer(&mut self, on_event: OnEvent<'_>) -> Option<Answer>;
}

/// Why an event ends the attempt.
#[derive(Debug)]
pub(crate) enum EventError {
    /// The provider says that it failed.
    Failed(Failure),
    /// It is not JSON, or not of the expected form.
    Unreadable(String),
}

/// A decoder for dialects that stream server-sent events.
#[derive(Debug)]
pub(crate) struct SseDecoder<P> {
    reader: SseReader,
    protocol: P,
    size_bytes: usize,
}

impl<P: Protocol> SseDecoder<P> {
    pub(crate) fn new(protocol: P) -> Self {
        Self { reader: SseReader::default(), protocol, size_bytes: 0 }
    }
}

impl<P: Protocol> Decoder for SseDecoder<P> {
    fn push(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(StreamEvent)) -> Result<(), Failure> {
        if self.protocol.is_complete() {
            return Ok(());
        }
        self.size_bytes = self.size_bytes.saturating_add(bytes.len());
        if self.size_bytes > MAX_ANSWER_BYTES {
            return Err(incomplete(format!("the streamed answer is larger than {MAX_ANSWER_BYTES} bytes")));
        }
        let is_too_large = self.reader.push(bytes).is_err();
        while let Some(event) = self.reader.next_event() {
            if self.protocol.is_complete() {
                return Ok(());
            }
            self.protocol.event(&event, on_event).map_err(|error| match error {
                EventError::Failed(failure) => failure,
                EventError::Unreadable(reason) => {
                    incomplete(format!("the stream holds an event that cannot be read: {reason}"))
                }
            })?;
        }
        if is_too_large {
            return Err(incomplete("the stream holds an event that is too large"));
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.protocol.is_complete()
    }

    fn finish(&mut self, on_event: &mut dyn FnMut(StreamEvent)) -> Result<Answer, Failure> {
        self.reader.finish();
        // Nothing counts after the marker, whether it came in the same chunk or in a later one.
        while !self.protocol.is_complete()
            && let Some(event) = self.reader.next_event()
        {
            match self.protocol.event(&event, on_event) {
                Ok(()) => {}
                Err(EventError::Failed(failure)) => return Err(failure),
                // A last event that was cut; whether the answer is whole is decided by its marker.
                Err(EventError::Unreadable(_)) => break,
            }
        }
        self.protocol.answer(on_event).ok_or_else(|| incomplete("the stream ended before the answer was complete"))
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
