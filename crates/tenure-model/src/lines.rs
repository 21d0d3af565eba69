//! Newline-delimited JSON: bytes in, lines out.
//!
//! Text is decoded per line, never per chunk, as with server-sent events (case O-010).

use crate::decoder::Framing;
use crate::sse::{MAX_EVENT_BYTES, SseEvent, TooLarge};
use std::collections::VecDeque;

/// Reads lines from bytes; empty ones are left out.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    line: Vec<u8>,
    ready: VecDeque<SseEvent>,
    /// Events that were read, for their memory.
    spare: Vec<SseEvent>,
}

/// Most used events that are kept for their memory, and the largest of them.
const MAX_SPARE: usize = 64;
const MAX_SPARE_BYTES: usize = 64 * 1024;

impl Framing for LineReader {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        // A carriage return is white space to JSON, so only the line feed matters (case O-009); a
        // lone one as the end of a line is taken too.
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.line.len() + line.len() > MAX_EVENT_BYTES {
                return Err(TooLarge);
            }
            if self.line.is_empty() {
                self.give(line);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.give(&whole);
                whole.clear();
                self.line = whole;
            }
        }
        if self.line.len() + bytes.len() > MAX_EVENT_BYTES {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.give(&line);
    }

    fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    fn give_back(&mut self, mut event: SseEvent) {
        if self.spare.len() < MAX_SPARE && event.data.capacity() <= MAX_SPARE_BYTES {
            event.data.clear();
            self.spare.push(event);
        }
    }
}

impl LineReader {
    fn give(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let mut event = self.spare.pop().unwrap_or_default();
            event.data.push_str(&String::from_utf8_lossy(line));
            self.ready.push_back(event);
        }
    }
}
