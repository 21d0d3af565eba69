//! The open messages of external loops, which tell them to this server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tenure_api::node::{PreviewFrame, PreviewKind};
use tenure_core::{EventId, SessionId};
use tokio::time::Instant;

/// Most sessions whose open message is known; one that is told later starts anew.
const MAX_OPEN: usize = 10_000;

/// The fence of a lease is looked at again after this time; between, previews cost the store nothing.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Stands for this server where the hub names the node that tells a message.
pub(crate) const OWN_NODE: u64 = u64::MAX;

/// The open messages of external loops.
#[derive(Debug, Default)]
pub(crate) struct LoopPreviews {
    open: Mutex<BTreeMap<SessionId, Open>>,
}

#[derive(Debug)]
struct Open {
    epoch: u64,
    after_seq: u64,
    attempt: u32,
    n: u64,
    blocks: Vec<(EventId, &'static str)>,
    /// When the lease was found held; not since a checkpoint, which may have moved the log.
    checked: Option<Instant>,
}

impl LoopPreviews {
    /// Whether the lease was found held a moment ago.
    pub(crate) fn is_checked(&self, session: SessionId, epoch: u64) -> bool {
        let open = self.lock();
        open.get(&session)
            .is_some_and(|open| open.epoch == epoch && open.checked.is_some_and(|at| at.elapsed() < CHECK_EVERY))
    }

    /// Notes that the lease is held, after row `after_seq`.
    pub(crate) fn checked(&self, session: SessionId, epoch: u64, after_seq: u64) {
        let mut open = self.lock();
        if open.len() >= MAX_OPEN && !open.contains_key(&session) {
            open.pop_first();
        }
        let fresh = || Open { epoch, after_seq, attempt: 1, n: 0, blocks: Vec::new(), checked: Some(Instant::now()) };
        let entry = open.entry(session).or_insert_with(fresh);
        if (entry.epoch, entry.after_seq) == (epoch, after_seq) {
            entry.checked = Some(Instant::now());
        } else {
            *entry = fresh();
        }
    }

    /// The frames for more text: of the newest block, or of a new one with `id`.
    pub(crate) fn tell(
        &self,
        session: SessionId,
        kind: &'static str,
        text: String,
        is_new: bool,
        id: EventId,
    ) -> Vec<PreviewFrame> {
        let mut all = self.lock();
        let Some(open) = all.get_mut(&session) else { return Vec::new() };
        let mut kinds = Vec::new();
        let continued = open.blocks.last().filter(|(_, of)| *of == kind && !is_new).map(|(id, _)| *id);
        let event_id = continued.unwrap_or(id);
        if continued.is_none() {
            open.blocks.push((id, kind));
            open.n += 1;
            kinds.push((open.n, PreviewKind::Start { event_id, event_type: kind.to_owned() }));
        }
        if !text.is_empty() {
            open.n += text.len() as u64;
            kinds.push((open.n, PreviewKind::Delta { event_id, text }));
        }
        let frame = |(n, kind)| open.frame(session, n, kind);
        kinds.into_iter().map(frame).collect()
    }

    /// Starts the open message anew: what was told of it is void.
    pub(crate) fn restart(&self, session: SessionId) -> Option<PreviewFrame> {
        let mut all = self.lock();
        let open = all.get_mut(&session)?;
        let end = open.frame(session, open.n, PreviewKind::End);
        open.attempt = open.attempt.saturating_add(1);
        open.n = 0;
        open.blocks.clear();
        Some(end)
    }

    /// Ends the open message; gives the frame that says so and the ids that its blocks had.
    pub(crate) fn end(&self, session: SessionId, epoch: u64) -> Option<(PreviewFrame, Vec<(EventId, &'static str)>)> {
        let mut all = self.lock();
        let open = all.get_mut(&session).filter(|open| open.epoch <= epoch)?;
        let end = open.frame(session, open.n, PreviewKind::End);
        // What is told after the same row is another attempt: readers would take it for what they have.
        open.attempt = open.attempt.saturating_add(1);
        open.n = 0;
        open.checked = None;
        Some((end, std::mem::take(&mut open.blocks)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Open>> {
        self.open.lock().expect("nobody panics while holding it")
    }
}

impl Open {
    fn frame(&self, session: SessionId, n: u64, kind: PreviewKind) -> PreviewFrame {
        PreviewFrame { session, epoch: self.epoch, after_seq: self.after_seq, attempt: self.attempt, n, kind }
    }
}
