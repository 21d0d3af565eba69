//! When the files of a session are stored, and what its log says of it.

use crate::advance::Advance;
use crate::error::Stopped;
use crate::sandboxes::{Home, Wish};
use tenure_core::failure::Class;
use tenure_core::{Body, Draft, SnapshotPolicy, SnapshotReason, Stop};

impl Advance {
    /// Adds events to the next commit. Before the first one that says that the turn ends, or that the
    /// session waits so long that its worker may go away, the files are stored if that is due.
    pub(crate) async fn record(&mut self, drafts: Vec<Draft>) -> Result<(), Stopped> {
        let moment = drafts.iter().enumerate().find_map(|(at, draft)| Some((at, self.moment(&draft.body)?)));
        let mut drafts = drafts.into_iter();
        if let Some((at, reason)) = moment {
            self.journal.push_all(drafts.by_ref().take(at))?;
            self.store_files(reason).await?;
        }
        self.journal.push_all(drafts).map_err(Stopped::from)
    }

    /// What an event means for the files.
    fn moment(&self, body: &Body) -> Option<SnapshotReason> {
        match body {
            Body::StatusIdle { stop: Stop::EndTurn | Stop::Refusal } => Some(SnapshotReason::Turn),
            Body::StatusIdle { .. } => Some(SnapshotReason::Wait),
            Body::WaitStarted { wait } => {
                let span = wait.until.map(|until| self.services.clock.until(until));
                let is_short = span.is_some_and(|span| span <= self.services.options.short_wait);
                (!is_short).then_some(SnapshotReason::Wait)
            }
            _ => None,
        }
    }

    /// Stores the files if the policy of the agent wants it at this moment and something may have
    /// changed. The event is committed with what comes next, guarded by the lease: a snapshot of a
    /// holder that was lost is never anybody's newest one.
    pub(crate) async fn store_files(&mut self, reason: SnapshotReason) -> Result<(), Stopped> {
        let session = self.journal.session();
        let is_due = self.agent.policies.snapshot >= least(reason);
        if !is_due || !session.files.is_dirty && reason != SnapshotReason::Manual || session.has_ended() {
            return Ok(());
        }
        self.services.may_start_effect(&self.held)?;
        let id = self.services.chance.snapshot();
        let wish = Wish {
            session: session.id,
            home: Home { tenant: session.tenant.clone(), files: session.files },
            id,
            epoch: self.held.lease.epoch,
            seq: session.last_seq + 1,
            now: self.services.clock.now(),
            reason,
        };
        match self.services.sandboxes.store_files(wish).await {
            Ok(Some(taken)) => {
                self.journal.push(Draft::new(Body::SnapshotCreated { snapshot: id, taken })).map(drop)?
            }
            Ok(None) => {}
            // Earlier snapshots stay, and the files themselves; the session goes on (hazard Z-53).
            Err(error) => {
                tracing::warn!(session = %self.journal.session().id, %error, "store the files");
                let message = format!("the files were not stored: {error}");
                let body =
                    Body::Error { class: Class::Config, message, retrying: false, request_id: None, limit: None };
                self.journal.push(Draft::new(body))?;
            }
        }
        Ok(())
    }
}

/// The least eager policy that stores files then.
fn least(reason: SnapshotReason) -> SnapshotPolicy {
    match reason {
        SnapshotReason::Manual => SnapshotPolicy::Manual,
        SnapshotReason::Turn => SnapshotPolicy::Turn,
        SnapshotReason::Wait => SnapshotPolicy::Wait,
        SnapshotReason::Lease => SnapshotPolicy::Lease,
        SnapshotReason::Step => SnapshotPolicy::Step,
    }
}
