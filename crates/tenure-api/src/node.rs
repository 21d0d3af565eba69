//! What nodes say to each other: previews, one JSON object on a line.
//!
//! A server reads `GET` [`PREVIEWS_PATH`] of each live node, with [`NODE_KEY_HEADER`]. The node first
//! sends what is open now, then each change. Empty lines only say that the node lives.

use serde::{Deserialize, Serialize};
use tenure_core::{EventId, SessionId};

/// Path of the previews on a node's internal address.
pub const PREVIEWS_PATH: &str = "/internal/v1/previews";

/// Path of what a node counted, as JSON, on its internal address.
pub const METRICS_PATH: &str = "/internal/v1/metrics";

/// Header with the key that the nodes of an installation share.
pub const NODE_KEY_HEADER: &str = "x-tenure-node-key";

/// Longest line that a reader takes, in bytes: the whole text of an open block, escaped.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// One change of the open message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewFrame {
    /// Whose message.
    pub session: SessionId,
    /// Of the lease under which the attempt runs.
    pub epoch: u64,
    /// The newest row of the log when the attempt began; readers show it first.
    pub after_seq: u64,
    /// The attempt of the model call, counted from 1.
    pub attempt: u32,
    /// Position in the attempt after this frame: each start counts 1, each byte of text counts 1.
    pub n: u64,
    /// What changed.
    pub kind: PreviewKind,
}

/// What changed in an open message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreviewKind {
    /// A block begins.
    Start {
        /// The id that the event will have if the answer is kept.
        event_id: EventId,
        /// The type that the event will have, such as `agent.message`.
        event_type: String,
    },
    /// More text of a block.
    Delta {
        /// Which block.
        event_id: EventId,
        /// The text.
        text: String,
    },
    /// The attempt is over: its rows are in the log now, or never will be.
    End,
}

/// The form on the wire.
#[derive(Serialize, Deserialize)]
struct Line {
    session: String,
    epoch: u64,
    after_seq: u64,
    attempt: u32,
    n: u64,
    #[serde(flatten)]
    kind: LineKind,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum LineKind {
    Start { event_id: String, event_type: String },
    Delta { event_id: String, text: String },
    End,
}

/// A line that is no frame.
#[derive(Debug, thiserror::Error)]
#[error("a preview line cannot be read: {0}")]
pub struct LineError(String);

impl PreviewFrame {
    /// The frame as one line, without the line break.
    pub fn to_line(&self) -> String {
        let kind = match &self.kind {
            PreviewKind::Start { event_id, event_type } => {
                LineKind::Start { event_id: event_id.to_string(), event_type: event_type.clone() }
            }
            PreviewKind::Delta { event_id, text } => {
                LineKind::Delta { event_id: event_id.to_string(), text: text.clone() }
            }
            PreviewKind::End => LineKind::End,
        };
        let line = Line {
            session: self.session.to_string(),
            epoch: self.epoch,
            after_seq: self.after_seq,
            attempt: self.attempt,
            n: self.n,
            kind,
        };
        serde_json::to_string(&line).expect("texts and numbers are always JSON")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// When it is not a frame.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let line: Line = serde_json::from_str(line).map_err(|error| LineError(error.to_string()))?;
        let event = |text: String| text.parse::<EventId>().map_err(|error| LineError(error.to_string()));
        let kind = match line.kind {
            LineKind::Start { event_id, event_type } => PreviewKind::Start { event_id: event(event_id)?, event_type },
            LineKind::Delta { event_id, text } => PreviewKind::Delta { event_id: event(event_id)?, text },
            LineKind::End => PreviewKind::End,
        };
        let session = line.session.parse().map_err(|error: tenure_core::IdError| LineError(error.to_string()))?;
        Ok(Self { session, epoch: line.epoch, after_seq: line.after_seq, attempt: line.attempt, n: line.n, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_its_line() {
        let event_id = EventId::from_bits(7);
        for kind in [
            PreviewKind::Start { event_id, event_type: "agent.message".into() },
            PreviewKind::Delta { event_id, text: "a\u{0}\n\"ü".into() },
            PreviewKind::End,
        ] {
            let frame = PreviewFrame {
                session: SessionId::from_bits(1),
                epoch: 2,
                after_seq: 3,
                attempt: 4,
                n: u64::MAX,
                kind,
            };
            let line = frame.to_line();
            assert!(!line.contains('\n'));
            assert_eq!(PreviewFrame::parse(&line).expect("it was just written"), frame);
        }
    }

    #[test]
    fn a_line_that_is_no_frame_is_refused() {
        for line in ["", "{}", "[1]", r#"{"session":"x","epoch":1,"after_seq":1,"attempt":1,"n":1,"kind":"end"}"#] {
            assert!(PreviewFrame::parse(line).is_err(), "{line}");
        }
    }
}
