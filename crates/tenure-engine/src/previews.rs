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
        self.end_if(session, |_| true);
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
        self.end_if(session, |attempt| attempt.is_over);
    }

    /// Ends the open attempt of a lease that is over; one of a newer lease stays.
    pub(crate) fn let_go(&self, session: SessionId, epoch: u64) {
        self.end_if(session, |attempt| attempt.epoch <= epoch);
    }

    /// Ends the open attempt: its answer is in the log now, or never will be.
    fn end_if(&self, session: SessionId, is_over: impl FnOnce(&Attempt) -> bool) {
        let mut open = self.lock();
        if open.get(&session).is_some_and(is_over)
            && let Some(attempt) = open.remove(&session)
        {
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

    /// The attempt so far: each block's start and its text as one delta. Nothing if a part of it is
    /// not kept: a reader would put what follows right behind the gap (hazard Z-48).
    fn replay(&self, session: SessionId) -> Vec<PreviewFrame> {
        if self.kept > MAX_OPEN_BYTES {
            return Vec::new();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId::from_bits(1);

    /// What a reader has of the open message, by its frames in order; each frame must fit to the one before.
    fn shown(frames: impl IntoIterator<Item = PreviewFrame>) -> Vec<(EventId, String)> {
        let (mut blocks, mut have): (Vec<(EventId, String)>, u64) = (Vec::new(), 0);
        for frame in frames {
            match frame.kind {
                PreviewKind::Start { event_id, .. } => {
                    blocks.push((event_id, String::new()));
                    have += 1;
                }
                PreviewKind::Delta { event_id, text } => {
                    have += text.len() as u64;
                    blocks.iter_mut().find(|(id, _)| *id == event_id).expect("it was begun").1.push_str(&text);
                }
                PreviewKind::End => blocks.clear(),
            }
            assert_eq!(frame.n, have, "no gap and no repeat");
        }
        blocks
    }

    #[test]
    fn z_48_a_reader_that_connects_late_gets_the_open_message_so_far_and_then_the_rest() {
        let ids = [EventId::from_bits(1), EventId::from_bits(2)];
        let steps: [&dyn Fn(&Previews); 5] = [
            &|previews| previews.start(SESSION, ids[0], "agent.message"),
            &|previews| previews.delta(SESSION, ids[0], "Hallo "),
            &|previews| previews.delta(SESSION, ids[0], "Wörld"),
            &|previews| previews.start(SESSION, ids[1], "agent.message"),
            &|previews| previews.delta(SESSION, ids[1], "more"),
        ];
        for cut in 0..=steps.len() {
            let previews = Previews::default();
            previews.begin(SESSION, 1, 3, 1);
            steps[..cut].iter().for_each(|step| step(&previews));
            let (open, mut rest) = previews.subscribe();
            steps[cut..].iter().for_each(|step| step(&previews));
            // The stream is over, its answer is not committed yet: it is still shown.
            previews.finish(SESSION);
            assert_eq!(shown(previews.subscribe().0).len(), 2);
            let rest = std::iter::from_fn(|| rest.try_recv().ok()).map(|frame| (*frame).clone());
            let all = shown(open.into_iter().chain(rest));
            assert_eq!(all, [(ids[0], "Hallo Wörld".to_owned()), (ids[1], "more".to_owned())], "cut at {cut}");
            previews.committed(SESSION);
            assert!(previews.subscribe().0.is_empty());
        }
    }

    #[test]
    fn a_message_of_which_a_part_is_not_kept_is_not_replayed() {
        let previews = Previews::default();
        previews.begin(SESSION, 1, 3, 1);
        previews.start(SESSION, EventId::from_bits(1), "agent.message");
        previews.delta(SESSION, EventId::from_bits(1), &"x".repeat(MAX_OPEN_BYTES));
        assert_eq!(previews.subscribe().0.len(), 2);
        previews.delta(SESSION, EventId::from_bits(1), "y");
        assert!(previews.subscribe().0.is_empty());
    }

    #[test]
    fn the_end_of_an_older_lease_leaves_the_message_of_a_newer_one() {
        let previews = Previews::default();
        previews.begin(SESSION, 2, 3, 1);
        previews.start(SESSION, EventId::from_bits(1), "agent.message");
        previews.let_go(SESSION, 1);
        assert_eq!(previews.subscribe().0.len(), 1);
        previews.let_go(SESSION, 2);
        assert!(previews.subscribe().0.is_empty());
    }
}
