//! Open messages: what a model has said so far, before it is history (promise P2, design 4.7).
//!
//! A preview lives from the begin of an attempt until its answer is committed or dropped. The hub
//! keeps the open attempt of each session and tells readers about changes. A reader that is too
//! slow is cut and starts again from the whole open message; nothing is queued without bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_api::node::{PreviewFrame, PreviewKind};
use tenure_core::{EventId, SessionId};
use tokio::sync::broadcast;

/// Frames that a reader may be behind before it is cut.
const BACKLOG: usize = 4_096;

/// Most bytes of one open message that are kept for late readers; beyond it they see the rest only
/// when it is committed.
const MAX_OPEN_BYTES: usize = 4 * 1024 * 1024;

/// The open attempts of this node.
#[derive(Debug)]
pub(crate) struct Previews {
    open: Mutex<BTreeMap<SessionId, Attempt>>,
    frames: broadcast::Sender<Arc<PreviewFrame>>,
}

/// What identifies an attempt and what it said so far.
#[derive(Debug)]
struct Attempt {
    epoch: u64,
    after_seq: u64,
    attempt: u32,
    position: u64,
    blocks: Vec<(EventId, &'static str, String)>,
    kept: usize,
    /// The stream has ended; the next commit of the session holds its answer or its failure.
    is_over: bool,
}

impl Default for Previews {
    fn default() -> Self {
        Self { open: Mutex::default(), frames: broadcast::channel(BACKLOG).0 }
    }
}

impl Previews {
    /// What is open now, as frames, and what comes after it.
    pub(crate) fn subscribe(&self) -> (Vec<PreviewFrame>, broadcast::Receiver<Arc<PreviewFrame>>) {
        let open = self.lock();
        let frames = open.iter().flat_map(|(session, attempt)| attempt.replay(*session)).collect();
        (frames, self.frames.subscribe())
    }

    /// Begins an attempt; an open one of the same session is over.
    pub(crate) fn begin(&self, session: SessionId, epoch: u64, after_seq: u64, attempt: u32) {
        self.end(session);
        let attempt = Attempt { epoch, after_seq, attempt, position: 0, blocks: Vec::new(), kept: 0, is_over: false };
        self.lock().insert(session, attempt);
    }

    /// Begins a block of the open attempt.
    pub(crate) fn start(&self, session: SessionId, event: EventId, event_type: &'static str) {
        self.change(session, |attempt| {
            attempt.position += 1;
            attempt.blocks.push((event, event_type, String::new()));
            PreviewKind::Start { event_id: event, event_type: event_type.to_owned() }
        });
    }

    /// Adds text to a block of the open attempt.
    pub(crate) fn delta(&self, session: SessionId, event: EventId, text: &str) {
        if text.is_empty() {
            return;
        }
        self.change(session, |attempt| {
            attempt.position += text.len() as u64;
            attempt.kept += text.len();
            if attempt.kept <= MAX_OPEN_BYTES
                && let Some((_, _, kept)) = attempt.blocks.iter_mut().find(|(id, _, _)| *id == event)
            {
                kept.push_str(text);
            }
            PreviewKind::Delta { event_id: event, text: text.to_owned() }
        });
    }

    /// Says that the open attempt has ended; readers see it until the commit that holds the result.
    pub(crate) fn finish(&self, session: SessionId) {
        if let Some(attempt) = self.lock().get_mut(&session) {
            attempt.is_over = true;
        }
    }

    /// Says that the rows of `session` are durable: an attempt that is over is shown by them now.
    pub(crate) fn committed(&self, session: SessionId) {
        if self.lock().get(&session).is_some_and(|attempt| attempt.is_over) {
            self.end(session);
        }
    }

    /// Ends the open attempt: its answer is in the log now, or never will be.
    pub(crate) fn end(&self, session: SessionId) {
        let mut open = self.lock();
        if let Some(attempt) = open.remove(&session) {
            self.send(attempt.frame(session, PreviewKind::End));
        }
    }

    fn change(&self, session: SessionId, change: impl FnOnce(&mut Attempt) -> PreviewKind) {
        let mut open = self.lock();
        if let Some(attempt) = open.get_mut(&session) {
            let kind = change(attempt);
            self.send(attempt.frame(session, kind));
        }
    }

    fn send(&self, frame: PreviewFrame) {
        // Nobody listens: nothing is lost, the log is the truth.
        let _ = self.frames.send(Arc::new(frame));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Attempt>> {
        self.open.lock().expect("nobody panics while holding it")
    }
}

impl Attempt {
    fn frame(&self, session: SessionId, kind: PreviewKind) -> PreviewFrame {
        self.frame_at(session, self.position, kind)
    }

    fn frame_at(&self, session: SessionId, n: u64, kind: PreviewKind) -> PreviewFrame {
        PreviewFrame { session, epoch: self.epoch, after_seq: self.after_seq, attempt: self.attempt, n, kind }
    }

    /// The attempt so far: each block's start and its text as one delta.
    fn replay(&self, session: SessionId) -> Vec<PreviewFrame> {
        let (mut frames, mut n) = (Vec::new(), 0);
        for (event, event_type, text) in &self.blocks {
            n += 1;
            frames.push(self.frame_at(
                session,
                n,
                PreviewKind::Start { event_id: *event, event_type: (*event_type).to_owned() },
            ));
            if !text.is_empty() {
                n += text.len() as u64;
                frames.push(self.frame_at(session, n, PreviewKind::Delta { event_id: *event, text: text.clone() }));
            }
        }
        frames
    }
}
