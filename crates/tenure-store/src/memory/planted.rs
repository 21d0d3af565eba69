//! Bugs that the simulator plants to show that it finds them. Nothing but [`Memory::plant`] sets them, and
//! no product is made of this store.

use super::{Data, Memory};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::SessionId;

/// A way in which this store can be made to break its promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A commit is taken whoever holds the session, and whether or not anybody does.
    NoFence,
    /// The commit that parks looks at the inbox as it was when the commit came in (hazard Z-01).
    StaleInbox,
    /// Timers are with the worker that set them, and gone with it.
    LostTimer,
}

#[derive(Debug, Default)]
pub(super) struct Bugs {
    planted: Option<Planted>,
    /// Tails of inboxes, as commits saw them that are under way.
    seen: BTreeMap<SessionId, u64>,
    pub(super) lost_timers: BTreeSet<SessionId>,
}

/// What is wrong with one commit.
pub(super) struct OfCommit {
    pub(super) is_unfenced: bool,
    /// Inputs beyond this position are not seen.
    pub(super) seen_tail: u64,
}

impl Bugs {
    pub(super) fn of_commit(&mut self, session: SessionId) -> OfCommit {
        self.lost_timers.remove(&session);
        let seen = self.seen.remove(&session).filter(|_| self.planted == Some(Planted::StaleInbox));
        let is_unfenced = self.planted == Some(Planted::NoFence);
        OfCommit { is_unfenced, seen_tail: seen.unwrap_or(u64::MAX) }
    }
}

impl Memory {
    /// Plants a bug.
    pub fn plant(&self, bug: Planted) {
        self.lock().planted.planted = Some(bug);
    }

    /// A commit of this session came in and waits for its turn: with [`Planted::StaleInbox`] it will
    /// look at the inbox as it is now.
    pub fn commit_comes_in(&self, session: SessionId) {
        let Data { heads, planted, .. } = &mut *self.lock();
        if let Some(head) = heads.get(&session) {
            planted.seen.insert(session, head.tail);
        }
    }

    /// With [`Planted::LostTimer`], the timer of this session is gone.
    pub fn lose_timer(&self, session: SessionId) {
        let planted = &mut self.lock().planted;
        if planted.planted == Some(Planted::LostTimer) {
            planted.lost_timers.insert(session);
        }
    }
}
