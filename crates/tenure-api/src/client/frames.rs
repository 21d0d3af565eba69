//! Bytes of an event stream in, frames out; no I/O.

/// Longest frame that is read; a longer one ends the stream with an error.
pub const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;

/// One frame of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The id that a later connection resumes from, if this frame carries one.
    pub id: Option<String>,
    /// The type; empty if the server named none.
    pub event: String,
    /// The data lines, joined.
    pub data: String,
}

/// Collects frames from pieces of any size.
#[derive(Debug, Default)]
pub struct Frames {
    line: Vec<u8>,
    frame: Frame,
    has_data: bool,
    /// The last byte was CR, so an LF that follows belongs to it.
    after_cr: bool,
    size: usize,
}

/// A frame was longer than [`MAX_FRAME_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Frames {
    /// Takes the next bytes and returns the frames that they complete.
    ///
    /// # Errors
    /// When a frame is longer than [`MAX_FRAME_BYTES`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, TooLong> {
        let mut complete = Vec::new();
        for &byte in bytes {
            let is_second_half = self.after_cr && byte == b'\n';
            self.after_cr = byte == b'\r';
            if is_second_half {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                complete.extend(self.end_line());
                continue;
            }
            self.line.push(byte);
            self.size += 1;
            if self.size > MAX_FRAME_BYTES {
                return Err(TooLong);
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.size = 0;
            let frame = std::mem::take(&mut self.frame);
            return std::mem::take(&mut self.has_data).then_some(frame);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.frame.id = Some(value.to_owned()),
            "event" => self.frame.event = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.frame.data.push('\n');
                }
                self.has_data = true;
                self.frame.data.push_str(value);
            }
            // A comment (empty field) or a field of a later version.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: Option<&str>, event: &str, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), event: event.to_owned(), data: data.to_owned() }
    }

    /// Feeds the text whole, byte by byte, and with other line ends: the frames are the same.
    fn check(text: &str, expected: &[Frame]) {
        for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
            assert_eq!(Frames::default().push(text.as_bytes()), Ok(expected.to_vec()), "whole: {text:?}");
            let mut frames = Frames::default();
            let bytes = text.bytes().flat_map(|byte| frames.push(&[byte]).expect("small")).collect::<Vec<_>>();
            assert_eq!(bytes, expected, "byte by byte: {text:?}");
        }
    }

    #[test]
    fn frames_are_the_same_however_the_bytes_arrive() {
        check(
            "id: 1\nevent: agent.message\ndata: {\"a\":\"é\"}\n\n",
            &[frame(Some("1"), "agent.message", "{\"a\":\"é\"}")],
        );
    }

    #[test]
    fn comments_and_frames_without_data_are_left_out() {
        check(": still here\n\nevent: x\n\nevent: y\ndata: 1\n\n", &[frame(None, "y", "1")]);
    }

    #[test]
    fn data_lines_are_joined() {
        check("data: a\ndata:b\n\n", &[frame(None, "", "a\nb")]);
    }

    #[test]
    fn half_a_frame_is_not_a_frame() {
        check("data: a\n\ndata: b\n", &[frame(None, "", "a")]);
    }
}
