//! Server-sent events: bytes in, events out (WHATWG HTML, section on server-sent events).
//!
//! Lines end in LF, CRLF or CR, wherever the network cuts them (case O-009). Text is decoded per
//! line, never per chunk: a character cut by the network is whole again, and a true bad byte becomes
//! one U+FFFD (case O-010). Unlike the standard, a last event without its empty line still counts;
//! whether it is whole shows when its data is read.

use std::collections::VecDeque;

/// Largest event, in bytes; a larger one ends the attempt.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its data lines, joined with LF.
    pub data: String,
    /// It is no event of the standard but JSON that stands in the stream without `data:`, as errors
    /// of providers and proxies sometimes do.
    pub is_bare: bool,
}

/// An event was larger than [`MAX_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Reads events from bytes.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    is_after_cr: bool,
    has_first_line: bool,
    open: SseEvent,
    has_data: bool,
    ready: VecDeque<SseEvent>,
    /// Events that were read, for their memory.
    spare: Vec<SseEvent>,
}

/// Most used events that are kept for their memory, and the largest of them.
const MAX_SPARE: usize = 64;
const MAX_SPARE_BYTES: usize = 64 * 1024;

impl SseReader {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When an event is too large; the reader is of no use afterwards.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        if self.is_after_cr && !bytes.is_empty() {
            self.is_after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let is_cr = bytes[end] == b'\r';
            self.end_line(&bytes[..end])?;
            bytes = &bytes[end + 1..];
            if is_cr {
                // The line ends here at once; a LF that follows belongs to it, now or in the next chunk.
                match bytes.strip_prefix(b"\n") {
                    Some(rest) => bytes = rest,
                    None => self.is_after_cr = bytes.is_empty(),
                }
            }
        }
        self.check_size(bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the stream: an open last event is given too.
    pub fn finish(&mut self) {
        if !self.line.is_empty() {
            // Its size was checked when its bytes came.
            let _ = self.end_line(b"");
        }
        self.dispatch();
    }

    /// The next event, if one is whole.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    fn check_size(&self, more: usize) -> Result<(), TooLarge> {
        let size = self.line.len() + self.open.data.len() + self.open.name.len() + more;
        if size > MAX_EVENT_BYTES { Err(TooLarge) } else { Ok(()) }
    }

    /// Takes a whole line: what is held of it, and its last bytes.
    fn end_line(&mut self, last: &[u8]) -> Result<(), TooLarge> {
        self.check_size(last.len())?;
        if self.line.is_empty() {
            self.line(last);
            return Ok(());
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(last);
        self.line(&line);
        // Keeps the allocation for the next line.
        line.clear();
        self.line = line;
        Ok(())
    }

    fn line(&mut self, mut line: &[u8]) {
        if !self.has_first_line {
            self.has_first_line = true;
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
        } else {
            self.field(&String::from_utf8_lossy(line));
        }
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if self.open.is_bare {
            if !matches!(name, "event" | "data") {
                self.open.data.push('\n');
                self.open.data.push_str(line);
                return;
            }
            self.dispatch();
        }
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.open.name),
            "data" => {
                if self.has_data {
                    self.open.data.push('\n');
                }
                self.has_data = true;
                self.open.data.push_str(value);
            }
            // No field of the standard begins like this.
            _ if line.starts_with(['{', '[']) && !self.has_data => {
                self.open = SseEvent { name: String::new(), data: line.to_owned(), is_bare: true };
                self.has_data = true;
            }
            // Comments have an empty name; ids and retry times mean nothing to a POST.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        if std::mem::take(&mut self.has_data) {
            let next = self.spare.pop().unwrap_or_default();
            self.ready.push_back(std::mem::replace(&mut self.open, next));
        } else {
            self.open.clear();
        }
    }

    /// Takes a used event back, for its memory.
    pub(crate) fn give_back(&mut self, mut event: SseEvent) {
        if self.spare.len() < MAX_SPARE && event.data.capacity() <= MAX_SPARE_BYTES {
            event.clear();
            self.spare.push(event);
        }
    }
}

impl SseEvent {
    /// Empties it and keeps its memory.
    fn clear(&mut self) {
        self.name.clear();
        self.data.clear();
        self.is_bare = false;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<SseEvent> {
        let mut reader = SseReader::default();
        for chunk in chunks {
            reader.push(chunk).unwrap();
        }
        reader.finish();
        std::iter::from_fn(|| reader.next_event()).collect()
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned(), is_bare: false }
    }

    #[test]
    fn o_009_all_line_ends_give_the_same_events_wherever_they_are_cut() {
        let expected = vec![event("a", "1\n2"), event("", "3")];
        for end in ["\n", "\r\n", "\r"] {
            let text = ["event: a", "data: 1", "data:2", "", ": comment", "", "data: 3", "", ""].join(end);
            assert_eq!(read(&[text.as_bytes()]), expected, "{end:?}");
            for cut in 0..text.len() {
                let (before, after) = text.as_bytes().split_at(cut);
                assert_eq!(read(&[before, after]), expected, "{end:?} cut at {cut}");
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(read(&bytes), expected);
        }
    }

    #[test]
    fn o_009_a_lone_cr_ends_its_event_without_waiting_for_the_next_byte() {
        let mut reader = SseReader::default();
        reader.push(b"data: 1\r\n\r").unwrap();
        assert_eq!(reader.next_event(), Some(event("", "1")));
        reader.push(b"\ndata: 2\r\n\r\n").unwrap();
        assert_eq!(reader.next_event(), Some(event("", "2")));
    }

    #[test]
    fn o_010_characters_cut_by_the_network_are_whole_and_a_bad_byte_is_one_replacement() {
        assert_eq!(read(&[b"data: \xe4", b"\xb8\xad\xf0\x9f", b"\x98\x80\n\n"]), vec![event("", "中😀")]);
        assert_eq!(read(&[b"data: a\xffb\n\n"]), vec![event("", "a\u{fffd}b")]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_an_open_last_event_counts() {
        assert_eq!(read(&[b"\xef\xbb", b"\xbfdata: 1"]), vec![event("", "1")]);
    }

    #[test]
    fn empty_data_is_an_event_and_no_data_is_none() {
        assert_eq!(read(&[b"data:\n\nevent: x\n\nid: 3\nretry: 9\n\n"]), vec![event("", "")]);
    }

    #[test]
    fn json_that_stands_in_the_stream_without_data_is_given_whole() {
        let bare = |data: &str| SseEvent { data: data.to_owned(), is_bare: true, ..SseEvent::default() };
        let text = "data: 1\n\n[{\r\n  \"error\": {\r\n    \"code\": 503\r\n  }\r\n}]\r\n";
        let expected = vec![event("", "1"), bare("[{\n  \"error\": {\n    \"code\": 503\n  }\n}]")];
        assert_eq!(read(&[text.as_bytes()]), expected);
        assert_eq!(read(&text.as_bytes().chunks(1).collect::<Vec<_>>()), expected);
        assert_eq!(read(&[b"{\"a\":1}\ndata: 2\n\n"]), vec![bare("{\"a\":1}"), event("", "2")]);
        assert_eq!(read(&[b"data: 1\n{\"a\":1}\n\n"]), vec![event("", "1")], "not in the middle of an event");
    }

    #[test]
    fn an_event_beyond_the_bound_is_refused_with_and_without_line_ends() {
        let mut reader = SseReader::default();
        assert_eq!(reader.push(&vec![b'x'; MAX_EVENT_BYTES + 1]), Err(TooLarge));
        let mut reader = SseReader::default();
        let line = [b"data: ".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
        assert!((0..20).any(|_| reader.push(&line).is_err()));
    }
}
