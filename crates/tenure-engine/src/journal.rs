//! The head of a leased session, the events that are not committed yet, and the commit itself.

use crate::error::Stopped;
use crate::held::HeldLease;
use crate::services::Services;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Draft, Event, EventId, Input, InputBody, Invalid, Limits, Session, apply, usage_due};
use tenure_store::{Checkpoint, Kind, Lease, Then};
use tenure_telemetry::SpanContext;

/// Waits between repeats of a commit whose reply was lost.
const COMMIT_RETRY: Duration = Duration::from_millis(100);

/// Head, open rows and inbox of one lease.
#[derive(Debug)]
pub(crate) struct Journal {
    services: Arc<Services>,
    lease: Lease,
    trace: SpanContext,
    session: Session,
    pending: Vec<Event>,
    /// Rows that are committed, since [`Journal::take_committed`] was asked last.
    committed: Vec<Event>,
    inbox: VecDeque<(u64, Input)>,
    consumed: u64,
    is_consumed_stored: bool,
}

impl Journal {
    pub(crate) fn new(services: Arc<Services>, held: &HeldLease, session: Session, inbox: Vec<(u64, Input)>) -> Self {
        Self {
            services,
            lease: held.lease.clone(),
            trace: held.trace,
            session,
            pending: Vec::new(),
            committed: Vec::new(),
            inbox: inbox.into(),
            consumed: 0,
            is_consumed_stored: true,
        }
    }

    /// The head, with everything that was pushed.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Rows that the next commit will hold.
    pub(crate) fn pending(&self) -> &[Event] {
        &self.pending
    }

    /// The newest row that is stored.
    pub(crate) fn committed_seq(&self) -> u64 {
        self.pending.first().map_or(self.session.last_seq, |event| event.seq - 1)
    }

    /// Adds an event to the next commit, and before it what is to be told of the session's use.
    pub(crate) fn push(&mut self, draft: Draft) -> Result<EventId, Invalid> {
        if let Some(told) = usage_due(&self.session, &draft.body) {
            self.append(told)?;
        }
        self.append(draft)
    }

    /// Adds one event; masks secrets first.
    fn append(&mut self, draft: Draft) -> Result<EventId, Invalid> {
        let event = Event {
            id: draft.id.unwrap_or_else(|| self.services.chance.event()),
            seq: self.session.last_seq + 1,
            at: self.services.clock.now(),
            step: draft.step,
            body: self.services.masker.body(draft.body),
        };
        apply(&mut self.session, &event)?;
        let id = event.id;
        self.pending.push(event);
        Ok(id)
    }

    /// Adds events in order.
    pub(crate) fn push_all(&mut self, drafts: impl IntoIterator<Item = Draft>) -> Result<(), Invalid> {
        for draft in drafts {
            self.push(draft)?;
        }
        Ok(())
    }

    /// Takes up to `limit` inputs out of the inbox; the next commit says so.
    pub(crate) fn take_inputs(&mut self, limit: usize) -> Vec<Input> {
        let count = limit.min(self.inbox.len());
        if let Some((position, _)) = count.checked_sub(1).and_then(|last| self.inbox.get(last)) {
            self.consumed = *position;
            self.is_consumed_stored = false;
        }
        self.inbox.drain(..count).map(|(_, input)| input).collect()
    }

    /// Whether something urgent waits.
    pub(crate) fn has_urgent(&self) -> bool {
        self.inbox.iter().any(|(_, input)| input.body.is_urgent())
    }

    /// The limits that wait to be taken, if somebody changed them.
    pub(crate) fn queued_limits(&self) -> Option<Limits> {
        self.inbox.iter().rev().find_map(|(_, input)| match input.body {
            InputBody::Limits(limits) => Some(limits),
            _ => None,
        })
    }

    /// Whether anything waits.
    pub(crate) fn has_inputs(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Whether the next commit moves the session on.
    pub(crate) fn has_progress(&self) -> bool {
        self.pending.iter().any(|event| event.body.is_progress())
    }

    /// Whether a commit would change anything.
    pub(crate) fn is_clean(&self) -> bool {
        self.pending.is_empty() && self.is_consumed_stored
    }

    /// Rows that were committed since the last call.
    pub(crate) fn take_committed(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.committed)
    }

    /// Reads the inbox again.
    pub(crate) async fn refresh(&mut self) -> Result<(), Stopped> {
        let inbox = self.services.store.inbox(self.session.id).await?;
        self.merge(inbox);
        Ok(())
    }

    /// Commits what is pending. Returns whether the lease is still held.
    ///
    /// A lost reply is asked for again with the same commit id, so that nothing is applied twice
    /// (hazard Z-20); a lease that is gone ends the work (promise P5).
    pub(crate) async fn commit(&mut self, then: Then) -> Result<bool, Stopped> {
        if self.is_clean() && then == Then::Keep {
            return Ok(true);
        }
        let checkpoint = Checkpoint {
            lease: self.lease.clone(),
            commit_id: self.services.chance.lease(),
            events: std::mem::take(&mut self.pending),
            session: self.session.clone(),
            // Named once: the store has nothing to remove for what was consumed before.
            consumed: if self.is_consumed_stored { 0 } else { self.consumed },
            then,
        };
        let (count, last_seq) = (checkpoint.events.len(), checkpoint.session.last_seq);
        let mut span = self.services.observer.commit(self.trace, count, last_seq, then);
        let committed = loop {
            match self.services.store.commit(checkpoint.clone()).await {
                Ok(committed) => break committed,
                Err(error) if matches!(error.kind, Kind::Retry | Kind::NoSpace) => {
                    tracing::warn!(session = %self.session.id, %error, "commit checkpoint; trying again");
                    self.services.pause_unless_lost(&self.lease, COMMIT_RETRY).await?;
                }
                Err(error) => {
                    span.fail("store", error.to_string());
                    return Err(error.into());
                }
            }
        };
        drop(span);
        self.services.observer.meters.committed_events.add(&[], count as u64);
        self.services.clock.observe(committed.now);
        self.is_consumed_stored = true;
        self.committed.extend(checkpoint.events);
        self.merge(committed.inbox);
        self.services.previews.committed(self.session.id);
        Ok(committed.is_held)
    }

    /// Takes over what the store says is in the inbox, beyond what was taken out already.
    fn merge(&mut self, inbox: Vec<(u64, Input)>) {
        let known = self.inbox.back().map_or(self.consumed, |(position, _)| *position);
        self.inbox.extend(inbox.into_iter().filter(|(position, _)| *position > known));
    }
}
