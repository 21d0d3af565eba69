//! The open messages of all sessions, as the nodes tell them (design 4.7).
//!
//! One connection to each live node. Per session the hub keeps the open attempt and a channel for
//! its readers; a reader that is behind starts again from what is kept, from its own position.

mod link;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tenure_api::node::{PreviewFrame, PreviewKind};
use tenure_core::{EventId, NodeId, SessionId};
use tenure_store::Store;
use tenure_telemetry::Counter;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Frames that a reader may be behind before it starts again from what is kept.
const BACKLOG: usize = 128;

/// Most bytes of one open message that are kept; readers that come later wait for its rows.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// What names an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptKey {
    pub(crate) epoch: u64,
    pub(crate) attempt: u32,
    pub(crate) after_seq: u64,
}

impl AttemptKey {
    pub(crate) fn of(frame: &PreviewFrame) -> Self {
        Self { epoch: frame.epoch, attempt: frame.attempt, after_seq: frame.after_seq }
    }
}

/// An open attempt, as far as it is known.
#[derive(Clone, Debug)]
struct Attempt {
    key: AttemptKey,
    n: u64,
    blocks: Vec<(EventId, String, String)>,
    kept: usize,
    /// More came than is kept, or some of it never came: what is kept is not the whole (hazard Z-48).
    is_cut: bool,
    /// The node that tells it.
    node: u64,
}

#[derive(Debug)]
struct Slot {
    open: Option<Attempt>,
    readers: broadcast::Sender<Arc<PreviewFrame>>,
}

/// The open messages of all sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreviewHub {
    slots: Arc<Mutex<BTreeMap<SessionId, Slot>>>,
    /// Nodes whose previews do not come, and why.
    silent: Arc<Mutex<BTreeMap<NodeId, String>>>,
    /// Frames that readers were too slow for.
    dropped: Option<Counter>,
}

/// A reader of the open messages of one session.
#[derive(Debug)]
pub(crate) struct PreviewReader {
    hub: PreviewHub,
    session: SessionId,
    frames: broadcast::Receiver<Arc<PreviewFrame>>,
    /// What was open when it began, or when it was behind.
    caught_up: std::vec::IntoIter<PreviewFrame>,
}

impl PreviewHub {
    /// Follows the nodes of `store` until `stop`.
    pub(crate) fn start(self, store: Arc<dyn Store>, node_key: String, stop: CancellationToken) -> Self {
        tokio::spawn(link::follow_nodes(self.clone(), store, node_key, stop));
        self
    }

    /// Counts the frames that readers were too slow for.
    pub(crate) fn counting(dropped: Counter) -> Self {
        Self { dropped: Some(dropped), ..Self::default() }
    }

    /// Reads the open messages of a session, the one that is open now first.
    pub(crate) fn read(&self, session: SessionId) -> PreviewReader {
        let (caught_up, frames) = self.subscribe(session);
        PreviewReader { frames, caught_up, session, hub: self.clone() }
    }

    /// What is open now and what follows it, without a gap between them.
    fn subscribe(
        &self,
        session: SessionId,
    ) -> (std::vec::IntoIter<PreviewFrame>, broadcast::Receiver<Arc<PreviewFrame>>) {
        let mut slots = self.lock();
        let slot = slots.entry(session).or_insert_with(|| Slot { open: None, readers: broadcast::channel(BACKLOG).0 });
        let caught_up = slot.open.as_ref().map(|attempt| attempt.replay(session)).unwrap_or_default();
        (caught_up.into_iter(), slot.readers.subscribe())
    }

    /// Takes a frame that a node told.
    pub(crate) fn take(&self, node: u64, frame: PreviewFrame) {
        let mut slots = self.lock();
        let key = AttemptKey::of(&frame);
        let open = slots.get(&frame.session).and_then(|slot| slot.open.as_ref());
        // A node that lost its lease may still talk (hazard Z-26).
        if open.is_some_and(|open| open.key.epoch > key.epoch) {
            return;
        }
        let slot =
            slots.entry(frame.session).or_insert_with(|| Slot { open: None, readers: broadcast::channel(BACKLOG).0 });
        match &frame.kind {
            PreviewKind::End => {
                if slot.open.as_ref().is_some_and(|open| open.key == key) {
                    slot.open = None;
                }
            }
            PreviewKind::Start { .. } | PreviewKind::Delta { .. } => {
                if slot.open.as_ref().is_none_or(|open| open.key != key) {
                    slot.open = Some(Attempt { key, n: 0, blocks: Vec::new(), kept: 0, is_cut: false, node });
                }
                if let Some(open) = &mut slot.open {
                    open.node = node;
                    open.take(&frame);
                }
            }
        }
        let session = frame.session;
        // Nobody reads: nothing is lost, what is open is kept.
        let _ = slot.readers.send(Arc::new(frame));
        if slot.open.is_none() && slot.readers.receiver_count() == 0 {
            slots.remove(&session);
        }
    }

    /// Forgets what a node told: its connection is gone, and it tells everything again.
    pub(crate) fn forget(&self, node: u64) {
        self.lock().retain(|_, slot| {
            if slot.open.as_ref().is_some_and(|open| open.node == node) {
                slot.open = None;
            }
            slot.open.is_some() || slot.readers.receiver_count() > 0
        });
    }

    /// Why the previews of a node do not reach this server; `None` if they do.
    pub(crate) fn silence(&self, node: NodeId) -> Option<String> {
        self.silent.lock().expect("nobody panics while holding it").get(&node).cloned()
    }

    /// Notes whether the previews of a node come.
    fn set_silence(&self, node: NodeId, why: Option<String>) {
        let mut silent = self.silent.lock().expect("nobody panics while holding it");
        match why {
            Some(why) => drop(silent.insert(node, why)),
            None => drop(silent.remove(&node)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Slot>> {
        self.slots.lock().expect("nobody panics while holding it")
    }
}

impl Attempt {
    fn take(&mut self, frame: &PreviewFrame) {
        if frame.n <= self.n {
            return;
        }
        match &frame.kind {
            PreviewKind::Start { event_id, event_type } => {
                self.blocks.push((*event_id, event_type.clone(), String::new()))
            }
            PreviewKind::Delta { event_id, text } => {
                let new = new_part(text, frame.n, self.n);
                self.kept += new.len();
                let has_hole = frame.n.saturating_sub(text.len() as u64) > self.n;
                self.is_cut |= has_hole || self.kept > MAX_KEPT_BYTES;
                if !self.is_cut
                    && let Some((_, _, kept)) = self.blocks.iter_mut().find(|(id, _, _)| id == event_id)
                {
                    kept.push_str(new);
                }
            }
            PreviewKind::End => {}
        }
        self.n = frame.n;
    }

    /// What is kept, as frames; nothing if some of it is missing.
    fn replay(&self, session: SessionId) -> Vec<PreviewFrame> {
        if self.is_cut {
            return Vec::new();
        }
        let AttemptKey { epoch, attempt, after_seq } = self.key;
        let frame = |n, kind| PreviewFrame { session, epoch, after_seq, attempt, n, kind };
        let (mut frames, mut n) = (Vec::new(), 0);
        for (event_id, event_type, text) in &self.blocks {
            n += 1;
            frames.push(frame(n, PreviewKind::Start { event_id: *event_id, event_type: event_type.clone() }));
            if !text.is_empty() {
                n += text.len() as u64;
                frames.push(frame(n, PreviewKind::Delta { event_id: *event_id, text: text.clone() }));
            }
        }
        frames
    }
}

/// The part of a delta's text that begins after position `have`; the delta ends at `n`.
pub(crate) fn new_part(text: &str, n: u64, have: u64) -> &str {
    let start = n.saturating_sub(text.len() as u64);
    let known = usize::try_from(have.saturating_sub(start)).unwrap_or(usize::MAX).min(text.len());
    // A position inside a character cannot come from us; the character is then sent again.
    let known = (0..=known).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[known..]
}

impl PreviewReader {
    /// The next frame; may repeat what the reader has already, never leaves anything out.
    pub(crate) async fn next(&mut self) -> Arc<PreviewFrame> {
        loop {
            if let Some(frame) = self.caught_up.next() {
                return Arc::new(frame);
            }
            match self.frames.recv().await {
                Ok(frame) => return frame,
                Err(error) => {
                    if let (broadcast::error::RecvError::Lagged(frames), Some(dropped)) = (error, &self.hub.dropped) {
                        dropped.add(&[], frames);
                    }
                    (self.caught_up, self.frames) = self.hub.subscribe(self.session);
                }
            }
        }
    }
}

impl Drop for PreviewReader {
    fn drop(&mut self) {
        let mut slots = self.hub.lock();
        // This reader still counts itself.
        let is_last =
            slots.get(&self.session).is_some_and(|slot| slot.open.is_none() && slot.readers.receiver_count() <= 1);
        if is_last {
            slots.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests;
