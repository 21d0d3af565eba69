//! One start or end of a sandbox at a time for each session; sessions do not wait for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::SessionId;
use tokio::sync::OwnedMutexGuard;

/// The sessions whose sandboxes are being started or ended: an entry lives as long as somebody has
/// its turn or waits for it.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    open: Mutex<BTreeMap<SessionId, Arc<tokio::sync::Mutex<()>>>>,
}

/// The right to start or end the sandbox of one session.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    session: SessionId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn of a session.
    pub(crate) async fn take(&self, session: SessionId) -> Turn<'_> {
        let lock = self.lock().entry(session).or_default().clone();
        // Made before the wait, so that it cleans up as well if nobody waits any more.
        let mut turn = Turn { turns: self, session, guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Arc<tokio::sync::Mutex<()>>>> {
        self.open.lock().expect("nobody panics while holding it")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut open = self.turns.lock();
        self.guard = None;
        if open.get(&self.session).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            open.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn turns_are_per_session_and_nothing_of_them_is_left() {
        let turns = Turns::default();
        let [one, other] = [1, 2].map(SessionId::from_bits);
        let first = turns.take(one).await;
        assert!(turns.take(one).now_or_never().is_none(), "one at a time");
        let second = turns.take(other).now_or_never().expect("another session does not wait");
        let mut waiting = Box::pin(turns.take(one));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        drop(waiting.await);
        drop(second);
        assert!(turns.lock().is_empty());
    }
}
