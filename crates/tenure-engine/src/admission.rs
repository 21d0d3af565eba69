//! Which model a step calls, and whether it may be called now.
//!
//! ```text
//! agent's model ─▶ condition in the way? ─ no ─▶ call it
//!                        │ yes
//!                        ▼
//!            next of the fallback models … none left ─▶ wait for the condition that ends first
//! ```
//! An attempt that a condition forbids is not sent and counted nowhere. There is one layer of
//! retries: the session's own, which the core counts (case O-023); a condition only says when.

use crate::advance::Advance;
use crate::error::Stopped;
use crate::services::Services;
use crate::upstreams::Upstream;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::condition::{
    self, Admission, Condition, ConditionKey, Report, Settlement, Stage, disproves, may_fall_back, needs_operator,
};
use tenure_core::failure::{Class, Failure};
use tenure_core::pace::{Pace, RateBucket, pace};
use tenure_core::{ConditionId, Draft, InsteadOf, Millis, Timestamp, retry};
use tenure_model::{ConfigProblem, Resolved};
use tenure_store::Admit;

/// A limit that is used up for no longer than this is waited for in the lease.
const SHORT_HOLD: Millis = 1_000;

/// How long it is believed that little is left of a limit.
const PACE_MILLIS: Millis = 60_000;

/// The model that is called.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) resolved: Result<Resolved, ConfigProblem>,
    /// The credential and `provider/model`.
    pub(crate) upstream: Upstream,
    /// Which one would have been called.
    pub(crate) instead_of: Option<InsteadOf>,
    /// The right to probe that the call uses.
    pub(crate) probe: Option<HeldProbe>,
    /// The models among which it was chosen.
    names: Vec<String>,
    /// When it was chosen: attempts from before a release say nothing about it.
    pub(crate) sent_at: Timestamp,
}

impl Chosen {
    /// `provider/model`.
    pub(crate) fn model(&self) -> &str {
        &self.upstream.1
    }

    /// The upstream answers.
    pub(crate) fn is_answering(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.mended();
        }
    }
}

/// The right to probe; given up when it is dropped without a word about the upstream.
#[derive(Debug)]
pub(crate) struct HeldProbe {
    services: Arc<Services>,
    condition: ConditionId,
    class: Class,
    key: ConditionKey,
    number: u64,
    is_settled: bool,
}

impl HeldProbe {
    /// The upstream answers.
    pub(crate) fn mended(&mut self) {
        self.tell(Settlement::Mended);
    }

    fn tell(&mut self, settlement: Settlement) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        settle(self.services.clone(), self.condition, self.number, settlement);
    }
}

/// Tells the store in the background: an answer is not held up for it.
fn settle(services: Arc<Services>, condition: ConditionId, number: u64, settlement: Settlement) {
    tokio::spawn(async move {
        match services.store.settle_probe(condition, number, settlement).await {
            Ok(_) => services.upstreams.changed.notify_one(),
            // It expires.
            Err(error) => tracing::warn!(%condition, %error, "settle probe"),
        }
    });
}

impl Drop for HeldProbe {
    fn drop(&mut self) {
        self.tell(Settlement::GivenUp);
    }
}

/// What stands in the way of a call.
enum Pass {
    Free(Option<HeldProbe>),
    Blocked(Condition),
}

impl Advance {
    /// Ends the wait of a session that was let go; others stay parked.
    pub(crate) async fn take_turn(&mut self) -> Result<(), Stopped> {
        let now = self.services.clock.now();
        let session = self.journal.session();
        let Some(condition) = session.waits_on().filter(|_| session.wakes_at().is_none_or(|at| at > now)) else {
            return Ok(());
        };
        if self.journal.has_inputs() {
            return Ok(());
        }
        let admit = Admit { lease: self.held.lease.clone(), condition, insists: false };
        match self.services.store.admit(admit).await? {
            Admission::Wait => {}
            admission @ (Admission::Free | Admission::Granted | Admission::Probe(_)) => {
                self.admitted = Some((condition, admission));
                // Another node may have let it go, and know more than this one.
                if !self.services.upstreams.knows(condition) {
                    let views = self.services.store.conditions(None).await?;
                    self.services.upstreams.learn(views.into_iter().map(|view| view.condition));
                }
                let drafts = condition::let_go(self.journal.session());
                self.journal.push_all(drafts)?;
            }
        }
        Ok(())
    }

    /// The model to call, or `None` if the session waits now: for a condition, or for its inbox.
    pub(crate) async fn choose_model(&mut self) -> Result<Option<Chosen>, Stopped> {
        let names = self.agent.models().into_iter().map(str::to_owned).collect();
        self.choose_of(names, None).await
    }

    /// The model that writes a summary: the one that the policy names, or the one that was chosen for the
    /// answer if that one cannot be called now. `None` if the session has to look at its inbox first.
    ///
    /// The choice for the answer may hold the right to probe, which must not be lost on the way: nobody
    /// waits for the condition of a writer.
    pub(crate) async fn choose_writer(&mut self, writer: &str) -> Result<Option<Chosen>, Stopped> {
        let working = self.chosen.take();
        let chosen = self.choose_of(vec![writer.to_owned()], working).await?;
        Ok(chosen.map(|mut chosen| {
            let working = self.agent.models().into_iter().map(str::to_owned);
            chosen.names = std::iter::once(writer.to_owned()).chain(working).collect();
            chosen
        }))
    }

    async fn choose_of(&mut self, names: Vec<String>, otherwise: Option<Chosen>) -> Result<Option<Chosen>, Stopped> {
        let now = self.services.clock.now();
        let (mut instead_of, mut blocked, mut cooling) = (None, None::<(Condition, String)>, Vec::new());
        for name in &names {
            let (resolved, upstream) = self.resolve(name);
            if (names.len() > 1 || otherwise.is_some()) && self.services.upstreams.is_cooling(&upstream, now) {
                let other = InsteadOf { model: upstream.1.clone(), class: Class::Transient };
                cooling.push((resolved, upstream, instead_of.clone()));
                instead_of.get_or_insert(other);
                continue;
            }
            match self.pass(&upstream).await? {
                Pass::Free(probe) => {
                    let chosen = Chosen { resolved, upstream, instead_of, probe, sent_at: now, names };
                    return self.in_its_slot(chosen).await;
                }
                Pass::Blocked(condition) => {
                    let class = condition.class;
                    instead_of.get_or_insert(InsteadOf { model: upstream.1.clone(), class });
                    let ends = |condition: &Condition| (condition.needs_operator(), condition.probe_at);
                    if blocked.as_ref().is_none_or(|(first, _)| ends(&condition) < ends(first)) {
                        blocked = Some((condition, upstream.1));
                    }
                }
            }
        }
        if let Some(chosen) = otherwise {
            return Ok(Some(Chosen { instead_of, ..chosen }));
        }
        // Nothing better: one that failed lately.
        for (resolved, upstream, instead_of) in cooling {
            if let Pass::Free(probe) = self.pass(&upstream).await? {
                let chosen = Chosen { resolved, upstream, instead_of, probe, sent_at: now, names };
                return self.in_its_slot(chosen).await;
            }
        }
        self.leave_turn();
        if let Some((condition, model)) = blocked {
            let drafts = condition::met(self.journal.session(), &condition, &model, self.services.chance.number(), now);
            self.record(drafts).await?;
        }
        Ok(None)
    }

    async fn in_its_slot(&mut self, chosen: Chosen) -> Result<Option<Chosen>, Stopped> {
        let wait = self.services.upstreams.next_slot(&chosen.upstream, self.services.clock.now());
        if !wait.is_zero() && !self.wait_for_slot(wait).await? {
            return Ok(None);
        }
        Ok(Some(Chosen { sent_at: self.services.clock.now(), ..chosen }))
    }

    /// Gives up what a call does not need: the right to probe an upstream that it does not go to, and
    /// the word of an operator to try now.
    pub(crate) fn leave_turn(&mut self) {
        self.insists = false;
        if let Some((condition, Admission::Probe(number))) = self.admitted.take() {
            settle(self.services.clone(), condition, number, Settlement::GivenUp);
        }
    }

    /// Waits in the lease. Returns whether it may go on, or has to look at its inbox first.
    async fn wait_for_slot(&mut self, wait: Duration) -> Result<bool, Stopped> {
        let stopping = self.services.stopping.clone();
        tokio::select! {
            biased;
            stop = self.must_stop() => stop.map(|()| false),
            () = stopping.cancelled() => Ok(false),
            () = tokio::time::sleep(wait) => Ok(true),
        }
    }

    fn resolve(&self, name: &str) -> (Result<Resolved, ConfigProblem>, Upstream) {
        let resolved = self.services.models.resolve(name);
        let upstream = match &resolved {
            Ok(resolved) => (resolved.credential.clone(), resolved.full_name.clone()),
            // Nobody's key: only this name is wrong.
            Err(_) => (name.to_owned(), name.to_owned()),
        };
        (resolved, upstream)
    }

    async fn pass(&mut self, upstream: &Upstream) -> Result<Pass, Stopped> {
        let mut probe = None;
        let session = self.held.lease.session;
        for condition in self.services.upstreams.covering(&upstream.0, &upstream.1) {
            let now = self.services.clock.now();
            let admission = match self.admitted {
                Some((admitted, admission)) if admitted == condition.id => {
                    self.admitted = None;
                    admission
                }
                // Known without asking.
                _ if condition.stage == Stage::Open
                    && condition.probe.is_none_or(|probe| probe.session != session)
                    && (condition.has_live_probe(now) || condition.probe_at > now && !self.insists) =>
                {
                    Admission::Wait
                }
                _ => {
                    let lease = self.held.lease.clone();
                    let admit = Admit { lease, condition: condition.id, insists: self.insists };
                    self.services.store.admit(admit).await?
                }
            };
            match admission {
                Admission::Free | Admission::Granted => {}
                Admission::Probe(number) => {
                    self.services.upstreams.changed.notify_one();
                    probe = Some(HeldProbe {
                        services: self.services.clone(),
                        condition: condition.id,
                        class: condition.class,
                        key: condition.key.clone(),
                        number,
                        is_settled: false,
                    });
                }
                Admission::Wait => return Ok(Pass::Blocked(condition)),
            }
        }
        Ok(Pass::Free(probe))
    }

    /// Tells what a failed attempt says about its upstream, and turns its events into what follows: the
    /// next model at once, a wait with all others, or its own backoff.
    pub(crate) async fn weigh(
        &mut self,
        drafts: Vec<Draft>,
        failure: &Failure,
        chosen: &mut Chosen,
    ) -> Result<Vec<Draft>, Stopped> {
        let now = self.services.clock.now();
        let condition = self.report(failure, chosen, now).await;
        if may_fall_back(failure.class) && self.has_other(chosen, now) {
            return Ok(condition::fall_back(drafts));
        }
        Ok(match condition {
            Some(condition) => {
                condition::wait_for(drafts, &condition, chosen.model(), self.services.chance.number(), now)
            }
            None => drafts,
        })
    }

    async fn report(&mut self, failure: &Failure, chosen: &mut Chosen, now: Timestamp) -> Option<Condition> {
        let policy = self.agent.policies.retry;
        let key = ConditionKey::of(failure, &chosen.upstream.0, &chosen.upstream.1);
        let mut report = Report {
            id: self.services.chance.condition(),
            key: ConditionKey { credential: String::new(), model: None },
            class: failure.class,
            message: self.services.masker.text(failure.message.clone()),
            hint: failure.retry_after,
            policy,
            random: self.services.chance.number(),
            sent_at: chosen.sent_at,
            probe: None,
        };
        if let Some(probe) = chosen.probe.as_mut().filter(|probe| !probe.is_settled) {
            if disproves(probe.class, failure.class) {
                probe.mended();
            } else {
                probe.is_settled = true;
                report.key = probe.key.clone();
                report.probe = Some(probe.number);
                return self.send(report).await;
            }
        }
        let key = key?;
        if failure.class == Class::Transient {
            let cool_down = retry::delay(&policy, 1, failure.retry_after, u64::MAX);
            let trips = self.services.upstreams.failed(&chosen.upstream, cool_down, now);
            let is_known = || self.services.upstreams.covering(&chosen.upstream.0, &chosen.upstream.1);
            if !trips && !is_known().iter().any(|condition| condition.key == key && condition.stage == Stage::Open) {
                return None;
            }
        }
        report.key = key;
        self.send(report).await
    }

    /// Reports; one that does not arrive is made again by the next attempt, which then is this session's own.
    async fn send(&self, report: Report) -> Option<Condition> {
        let condition = match self.services.store.report_condition(report).await {
            Ok(condition) => condition,
            Err(error) => {
                tracing::warn!(%error, "report what an upstream refuses");
                return None;
            }
        };
        if needs_operator(condition.class) {
            tracing::error!(
                condition = %condition.id, of = condition.key.subject(), class = ?condition.class,
                message = %condition.message, "an upstream refuses until an operator mends it; see `tenure conditions`"
            );
        } else {
            tracing::warn!(condition = %condition.id, of = condition.key.subject(), class = ?condition.class, "an upstream refuses");
        }
        self.services.upstreams.put(condition.clone());
        Some(condition)
    }

    /// Whether another model may be called now in place of the one that failed.
    fn has_other(&self, failed: &Chosen, now: Timestamp) -> bool {
        failed.names.iter().map(|name| self.resolve(name)).any(|(resolved, upstream)| {
            resolved.is_ok()
                && upstream != failed.upstream
                && !self.services.upstreams.is_cooling(&upstream, now)
                && self.services.upstreams.covering(&upstream.0, &upstream.1).is_empty()
        })
    }

    /// An answer came: nothing is wrong with its upstream, except that its limit may be nearly used.
    pub(crate) async fn note_answer(&mut self, resolved: &Resolved, limits: &[RateBucket], tokens: u64) {
        let Some(mut chosen) = self.chosen.take().filter(|chosen| chosen.model() == resolved.full_name) else { return };
        chosen.is_answering();
        let (upstreams, now) = (&self.services.upstreams, self.services.clock.now());
        upstreams.answered(&chosen.upstream);
        match pace(limits, tokens) {
            Pace::Free => upstreams.spread(&chosen.upstream, None, now),
            Pace::Spread(between) => {
                upstreams.spread(&chosen.upstream, Some((between, now.after(PACE_MILLIS))), now);
            }
            Pace::Hold(span) if span <= SHORT_HOLD => {
                upstreams.spread(&chosen.upstream, Some((span, now.after(span))), now);
                upstreams.next_slot(&chosen.upstream, now);
            }
            Pace::Hold(span) => {
                let (credential, model) = chosen.upstream.clone();
                let report = Report {
                    id: self.services.chance.condition(),
                    key: ConditionKey { credential, model: Some(model) },
                    class: Class::RateLimit,
                    message: "the headers of the newest answer say that nothing is left of the limit".to_owned(),
                    hint: Some(span),
                    policy: self.agent.policies.retry,
                    random: self.services.chance.number(),
                    sent_at: now,
                    probe: None,
                };
                self.send(report).await;
            }
        }
    }
}
