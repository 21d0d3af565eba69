//! The loop around the core for one lease: ask what is next, do it, commit, fold (design 4.1).
//!
//! ```text
//! inbox ─▶ intake ─▶ ┐
//!                    ├─▶ next ─▶ Record ───────────────────────────▶ pending
//! claim ─▶ recover ─▶┘     ├──▶ CallModel ─▶ commit ─▶ model ─▶ answer ─▶ pending
//!                          ├──▶ RunCalls ──▶ commit ─▶ tools ─▶ results ▶ pending
//!                          └──▶ Park ──────▶ commit and let go
//! ```
//! No effect starts before the commit that recorded it (promise P3); whatever is pending when the
//! holder dies was never seen by anyone.

use crate::admission::Chosen;
use crate::context::Context;
use crate::error::Stopped;
use crate::held::HeldLease;
use crate::journal::Journal;
use crate::services::Services;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::condition::Admission;
use tenure_core::{
    Action, Agent, Body, ConditionId, Draft, End, Input, InputBody, MAX_LOSSES, SnapshotReason, Stop, cancelled, ended,
    intake, next, out_of_time, recover, set_aside,
};
use tenure_store::{Leased, Then};
use tokio::time::Instant;

/// Most inputs that one commit consumes; the others wait for the next step boundary.
const MAX_INTAKE: usize = 256;

/// Longest time between two looks at the inbox during a short wait.
const SHORT_WAIT_POLL: Duration = Duration::from_secs(1);

/// One lease being worked on.
pub(crate) struct Advance {
    pub(crate) services: Arc<Services>,
    pub(crate) held: Arc<HeldLease>,
    /// The agent, with the models that were chosen for this session.
    pub(crate) agent: Arc<Agent>,
    /// The agent as it is for all its sessions.
    pinned: Arc<Agent>,
    pub(crate) journal: Journal,
    pub(crate) context: Context,
    /// What the store said when a session that waited was let go; used up by the next call.
    pub(crate) admitted: Option<(ConditionId, Admission)>,
    /// The model of the call that is being made.
    pub(crate) chosen: Option<Chosen>,
    /// An operator told the session to try now.
    pub(crate) insists: bool,
    /// Holders that were lost at the step that is due.
    losses: u32,
    started: Instant,
}

impl Advance {
    /// Prepares the work on a lease.
    pub(crate) fn new(services: Arc<Services>, held: Arc<HeldLease>, agent: Arc<Agent>, leased: Leased) -> Self {
        let context = services.contexts.take(&leased.session);
        let losses = leased.claims.saturating_sub(1);
        let journal = Journal::new(services.clone(), &held, leased.session, leased.inbox);
        let (admitted, chosen, insists) = (None, None, false);
        let (pinned, started) = (agent.clone(), Instant::now());
        Self { services, held, agent, pinned, journal, context, admitted, chosen, insists, losses, started }
    }

    /// Works until the session parks, yields, ends or is lost.
    pub(crate) async fn run(mut self) -> Result<(), Stopped> {
        if self.journal.session().queue.is_some() {
            return self.hand_back().await;
        }
        let unknown = self.agent.policies.unknown_outcome;
        let drafts = recover(self.journal.session(), unknown, self.services.clock.now());
        self.journal.push_all(drafts)?;
        if self.losses >= MAX_LOSSES {
            self.stop_losses().await?;
        }
        self.take_turn().await?;
        loop {
            if self.held.lost.is_cancelled() {
                return Err(Stopped::Lost);
            }
            self.take_inputs().await?;
            if self.services.stopping.is_cancelled() && !self.journal.session().has_ended() {
                return self.give_back().await;
            }
            self.use_models();
            let now = self.services.clock.now();
            let is_done = match next(self.journal.session(), &self.agent.policies, now) {
                Action::Record(drafts) => {
                    self.record(drafts).await?;
                    false
                }
                Action::CallModel { step, attempt } => self.call_model(step, attempt).await.map(|()| false)?,
                Action::RunCalls(calls) => self.run_calls(&calls).await.map(|()| false)?,
                Action::Park => self.park().await?,
            };
            let committed = self.journal.take_committed();
            self.context.extend(committed);
            if is_done || self.is_over_quantum().await && self.yield_lease().await? {
                let session = self.journal.session().clone();
                self.services.contexts.keep(&session, self.context);
                return Ok(());
            }
        }
    }

    /// Carries out what is urgent for a session of an external loop, and hands it back to its queue: a
    /// cancel ends it although no program of the user's is there (promise P15).
    async fn hand_back(&mut self) -> Result<(), Stopped> {
        loop {
            self.take_inputs().await?;
            let now = self.services.clock.now();
            let then = match next(self.journal.session(), &self.agent.policies, now) {
                Action::Park => Then::Park,
                Action::Record(_) | Action::CallModel { .. } | Action::RunCalls(_) => Then::Yield,
            };
            if !self.journal.commit(then).await? {
                return Ok(());
            }
        }
    }

    /// Takes over the models that the session uses from now on.
    fn use_models(&mut self) {
        let wanted = self.pinned.with_models(&self.journal.session().models);
        if (&wanted.model, &wanted.fallback_models) != (&self.agent.model, &self.agent.fallback_models) {
            self.agent = Arc::new(wanted);
        }
    }

    /// Sets aside a session whose step ended its worker again and again, unless an input makes it
    /// another step (promise P13).
    async fn stop_losses(&mut self) -> Result<(), Stopped> {
        self.take_inputs().await?;
        if !self.journal.has_progress() {
            let losses = self.losses;
            tracing::error!(session = %self.journal.session().id, losses, "step ends its worker again and again");
            let reason = format!("its worker was lost {losses} times in a row during this step");
            let drafts = set_aside(self.journal.session(), &reason, self.services.clock.now());
            self.journal.push_all(drafts)?;
        }
        Ok(())
    }

    /// Parks a session whose log cannot go on, with a reason that people see; never guessed, never
    /// tried for ever. What waits in the inbox is kept in the log.
    pub(crate) async fn set_aside(mut self, reason: &str) -> Result<(), Stopped> {
        loop {
            self.take_inputs().await?;
            let drafts = set_aside(self.journal.session(), reason, self.services.clock.now());
            self.journal.push_all(drafts)?;
            if !self.journal.commit(Then::Park).await? {
                return Ok(());
            }
        }
    }

    /// Takes what waits in the inbox into the log.
    async fn take_inputs(&mut self) -> Result<(), Stopped> {
        while self.journal.has_inputs() && !self.journal.session().has_ended() {
            let inputs = self.journal.take_inputs(MAX_INTAKE);
            if let Some(end) = inputs.iter().find(|input| matches!(input.body, InputBody::Cancel | InputBody::Archive))
            {
                return self.end(end).await;
            }
            self.insists |= inputs.iter().any(|input| input.body == InputBody::Resume);
            let drafts = intake(self.journal.session(), &inputs, self.services.clock.now());
            self.journal.push_all(drafts)?;
            if inputs.iter().any(|input| input.body == InputBody::Snapshot) {
                self.store_files(SnapshotReason::Manual).await?;
            }
            if self.journal.has_inputs() {
                self.journal.commit(Then::Keep).await?;
            }
        }
        Ok(())
    }

    /// Ends the session for good: first its processes, then the last event (promise P15).
    async fn end(&mut self, input: &Input) -> Result<(), Stopped> {
        let processes = self.services.sandboxes.end(self.journal.session().id, self.held.lease.epoch).await;
        let drafts = match input.body {
            InputBody::Cancel => cancelled(self.journal.session(), processes),
            _ => ended(self.journal.session(), End::Done),
        };
        self.journal.push_all(drafts)?;
        Ok(())
    }

    /// Stays in the lease for a short wait, else parks. Returns whether the lease is over.
    async fn park(&mut self) -> Result<bool, Stopped> {
        let until = self.journal.session().wakes_at();
        let short = until
            .map(|until| self.services.clock.until(until))
            .filter(|span| *span <= self.services.options.short_wait);
        match short {
            None => {
                let is_held = self.journal.commit(Then::Park).await?;
                if let (false, Some(until)) = (is_held, until) {
                    self.services.timers.note(until);
                }
                Ok(!is_held)
            }
            Some(span) => {
                self.journal.commit(Then::Keep).await?;
                if !self.journal.has_inputs() {
                    self.wait_shortly(span).await?;
                }
                Ok(false)
            }
        }
    }

    async fn wait_shortly(&mut self, span: Duration) -> Result<(), Stopped> {
        tokio::select! {
            biased;
            () = self.held.lost.cancelled() => return Err(Stopped::Lost),
            () = self.services.stopping.cancelled() => return Ok(()),
            () = self.held.urgent.notified() => {}
            () = self.held.input.notified() => {}
            () = tokio::time::sleep(span.min(SHORT_WAIT_POLL)) => {}
        }
        self.journal.refresh().await
    }

    async fn is_over_quantum(&self) -> bool {
        self.started.elapsed() >= self.services.options.quantum
            && self.services.store.counts().await.is_ok_and(|counts| counts.queued > 0)
    }

    /// Goes to the end of the queue. Returns whether the lease is over.
    async fn yield_lease(&mut self) -> Result<bool, Stopped> {
        self.started = Instant::now();
        self.store_files(SnapshotReason::Lease).await?;
        Ok(!self.journal.commit(Then::Yield).await?)
    }

    /// Gives the lease back in good order because the worker stops (promise P13).
    async fn give_back(&mut self) -> Result<(), Stopped> {
        self.store_files(SnapshotReason::Lease).await?;
        if self.journal.is_clean() {
            return Err(Stopped::Draining);
        }
        self.journal.commit(Then::Yield).await?;
        Ok(())
    }

    /// Resolves when a running effect must be given up: something urgent came, the grace is over, or the
    /// time that the session has.
    ///
    /// Whoever waits for it drops the effect then, and calls [`Advance::note_out_of_time`]; the log says
    /// what became of it.
    pub(crate) async fn must_stop(&mut self) -> Result<(), Stopped> {
        loop {
            let time_left = self.time_left();
            let out_of_time = async {
                match time_left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.held.lost.cancelled() => return Err(Stopped::Lost),
                () = out_of_time => {
                    // Somebody may have given it more meanwhile.
                    self.journal.refresh().await?;
                    if self.time_left().is_some_and(|left| left.is_zero()) {
                        return Ok(());
                    }
                }
                // Another limit of time, perhaps: it binds at once.
                () = self.held.input.notified(), if time_left.is_some() => self.journal.refresh().await?,
                () = self.services.grace_over.cancelled() => return Err(Stopped::Draining),
                () = self.held.urgent.notified() => {
                    self.journal.refresh().await?;
                    if self.journal.has_urgent() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// How long until the session's limit of time is reached, if it has one.
    fn time_left(&self) -> Option<Duration> {
        let session = self.journal.session();
        let limits = self.journal.queued_limits().unwrap_or(session.budget.limits);
        limits.wall.map(|wall| self.services.clock.until(session.created_at.after(wall)))
    }

    /// Records what became of a step that was stopped because the session's time is over. An urgent
    /// input says that by itself.
    pub(crate) fn note_out_of_time(&mut self) -> Result<(), Stopped> {
        if self.journal.has_urgent() || self.time_left().is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        let drafts = out_of_time(self.journal.session());
        self.journal.push_all(drafts).map_err(Stopped::from)
    }

    /// Parks the session with a reason that people see, because it cannot be advanced here.
    pub(crate) async fn give_up(mut self, class: tenure_core::failure::Class, message: String) -> Result<(), Stopped> {
        let now = self.services.clock.now();
        self.take_inputs().await?;
        if !self.journal.session().has_ended() && self.journal.session().wait.is_none() {
            let wait = tenure_core::Wait {
                kind: tenure_core::WaitKind::Upstream { class },
                since: now,
                until: None,
                calls: Vec::new(),
            };
            self.journal.push_all([
                Draft::new(Body::Error { class, message, retrying: false, request_id: None, limit: None }),
                Draft::new(Body::WaitStarted { wait }),
                Draft::new(Body::StatusIdle { stop: Stop::RetriesExhausted }),
            ])?;
        }
        self.journal.commit(Then::Park).await?;
        Ok(())
    }
}
