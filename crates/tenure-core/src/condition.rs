//! Conditions: what an upstream is like just now, shared by all sessions that use it (promise P10).
//!
//! ```text
//!   refused ──▶ Open ── time comes: one session asks (the probe) ──▶ it answers ──▶ Releasing ──▶ Over
//!                ▲ │                                                                    │           │
//!                │ └◀── it refuses again: the next probe comes later                    │           │
//!                └◀───────────────────── it refuses again ◀─────────────────────────────┴───────────┘
//! ```
//! While it is open nobody but the one who holds the right to probe sends anything. The right has an
//! expiry, so that a holder that dies blocks nobody (hazard Z-55), and a number, so that a late word
//! of an older holder changes nothing. What leaves afterwards is shaped (see [`Flow`]).
//!
//! All of it is decided here, on one record, inside a transaction of the store and by the store's
//! clock; adapters load it, ask, and store it.

mod flow;
mod wait;

pub use flow::Flow;
pub use wait::{fall_back, let_go, may_fall_back, met, wait_for};

use crate::failure::{Class, Failure};
use crate::id::{ConditionId, SessionId, TenantId};
use crate::retry;
use crate::time::{Millis, Timestamp};
use alloc::string::{String, ToString};

/// How long the right to probe holds: longer than providers take to say their first word. After it
/// another session may ask, whatever became of the holder.
pub const PROBE_EXPIRY: Millis = 3 * 60 * 1_000;

/// First wait before a condition that only an operator can mend is tried without anyone asking; it
/// doubles up to [`OPERATOR_PROBE_CAP`].
pub const OPERATOR_PROBE: Millis = 5 * 60 * 1_000;

/// Longest wait between two such tries.
pub const OPERATOR_PROBE_CAP: Millis = 30 * 60 * 1_000;

/// A limit that is met during the release and lasts longer than this opens the condition again; a
/// shorter one only slows the release down.
pub const REOPENS_AFTER: Millis = 10_000;

/// How long a condition that is over is kept: longer than any commit takes that parks a session on
/// it, so that a session which parks too late is still found (hazard Z-19).
pub const KEPT_OVER: Millis = 10 * 60 * 1_000;

/// After so long without a refusal and without anyone waiting, a release is over.
pub const CALM: Millis = 10_000;

/// Most sessions that one look may release.
pub const MAX_RELEASE: u64 = 256;

/// Longest message that is kept, in bytes.
const MAX_MESSAGE: usize = 300;

/// What a condition is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionKey {
    /// Name of the credential: that of the provider, since the installation holds the keys.
    pub credential: String,
    /// `provider/model`; `None` for every model of the credential.
    pub model: Option<String>,
}

impl ConditionKey {
    /// What a failed attempt says something about; `None` if only about its own session.
    pub fn of(failure: &Failure, credential: &str, model: &str) -> Option<Self> {
        let all = || Some(Self { credential: credential.to_string(), model: None });
        let one = || Some(Self { credential: credential.to_string(), model: Some(model.to_string()) });
        match failure.class {
            Class::Quota => all(),
            // A key that may not use this model may well use another one.
            Class::Credential if failure.status == Some(403) => one(),
            Class::Credential => all(),
            // Nobody answered at all: the endpoint.
            Class::Transient if failure.status.is_none() => all(),
            Class::RateLimit | Class::Config | Class::Transient => one(),
            Class::Overflow
            | Class::TooBig
            | Class::BadHistory
            | Class::Request
            | Class::Incomplete
            | Class::Empty
            | Class::Malformed
            | Class::Refused => None,
        }
    }

    /// Whether a call of `model` with `credential` is subject to it.
    pub fn covers(&self, credential: &str, model: &str) -> bool {
        self.credential == credential && self.model.as_deref().is_none_or(|own| own == model)
    }

    /// What people call it.
    pub fn subject(&self) -> &str {
        self.model.as_deref().unwrap_or(&self.credential)
    }
}

/// Where a condition is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody sends anything but the probe.
    Open,
    /// Those who wait leave, at a growing rate.
    Releasing,
    /// Kept for a while, in case somebody parks on it too late.
    Over,
}

impl Stage {
    /// The word for it in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Releasing => "releasing",
            Self::Over => "over",
        }
    }
}

/// The right of one session to try an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who holds it.
    pub session: SessionId,
    /// Which probe of the condition it is; a settlement names it.
    pub number: u64,
    /// Until when.
    pub expires_at: Timestamp,
}

/// A shared fact about an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its id.
    pub id: ConditionId,
    /// What it is about.
    pub key: ConditionKey,
    /// What is wrong.
    pub class: Class,
    /// What the provider said, in one line.
    pub message: String,
    /// Where it is in its life.
    pub stage: Stage,
    /// Since when it is in this stage.
    pub stage_since: Timestamp,
    /// When it was opened first, without having been over since.
    pub opened_at: Timestamp,
    /// Grows each time that its stage changes.
    pub generation: u64,
    /// Probes that were refused since it opened.
    pub refusals: u32,
    /// While it is open: no probe before this.
    pub probe_at: Timestamp,
    /// The probe that is under way.
    pub probe: Option<Probe>,
    /// Probes so far; the newest has this number.
    pub probes: u64,
    /// How fast those who wait leave.
    pub flow: Flow,
    /// Whose session was released last: tenants take turns (promise P16).
    pub turn: Option<TenantId>,
}

/// What an attempt learnt, or what the headers of an answer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The id of the condition, if this opens a new one.
    pub id: ConditionId,
    /// What it is about.
    pub key: ConditionKey,
    /// What is wrong.
    pub class: Class,
    /// What the provider said.
    pub message: String,
    /// The shortest wait that the provider asked for.
    pub hint: Option<Millis>,
    /// How the agent retries: base and cap of the waits.
    pub policy: retry::Policy,
    /// Any number, all 64 bits of it used.
    pub random: u64,
    /// When the attempt was sent, by the store's clock.
    pub sent_at: Timestamp,
    /// The probe that it was, if it was one.
    pub probe: Option<u64>,
}

/// What a probe led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The upstream answers.
    Mended,
    /// Nothing was learnt; somebody else may try.
    GivenUp,
}

/// Whether a session may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing is in the way.
    Free,
    /// It is its turn.
    Granted,
    /// It is the one that tries.
    Probe(u64),
    /// It waits with the others.
    Wait,
}

/// What a look at a condition leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    Nothing,
    /// One of those who wait is to try; then see [`Condition::give_probe`].
    Probe,
    /// So many of those who wait may leave; then see [`Condition::released`].
    Release(u64),
    /// It was over for long enough: remove it.
    Remove,
}

impl Condition {
    /// What a report makes of the condition of its key, or of none.
    pub fn after(earlier: Option<Self>, report: &Report, now: Timestamp) -> Self {
        match earlier {
            None => Self::opened(report, now),
            Some(mut condition) => {
                condition.take(report, now);
                condition
            }
        }
    }

    fn opened(report: &Report, now: Timestamp) -> Self {
        let mut condition = Self {
            id: report.id,
            key: report.key.clone(),
            class: report.class,
            message: String::new(),
            stage: Stage::Over,
            stage_since: now,
            opened_at: now,
            generation: 0,
            refusals: 0,
            probe_at: now,
            probe: None,
            probes: 0,
            flow: Flow::new(now),
            turn: None,
        };
        condition.take(report, now);
        condition
    }

    fn take(&mut self, report: &Report, now: Timestamp) {
        let is_probe = report.probe.is_some_and(|number| self.probe.is_some_and(|probe| probe.number == number));
        match self.stage {
            Stage::Open if is_probe => {
                self.probe = None;
                self.refuse(report, now);
            }
            // Sent before it was known, or by somebody who did not know: a hint still counts.
            Stage::Open => {
                if let Some(hint) = report.hint {
                    let at = now.after(retry::delay(&report.policy, 1, Some(hint), report.random));
                    self.probe_at = self.probe_at.max(at);
                }
            }
            Stage::Releasing
                if report.class == Class::RateLimit && report.hint.is_none_or(|hint| hint <= REOPENS_AFTER) =>
            {
                self.class = report.class;
                self.message = shorten(&report.message);
                self.flow.refused(report, now);
            }
            // An attempt from before the release says nothing new.
            Stage::Releasing if report.sent_at < self.stage_since && report.class != Class::RateLimit => {}
            Stage::Releasing => {
                self.flow.refused(report, now);
                self.reopen(report, now);
            }
            Stage::Over => {
                self.opened_at = now;
                self.reopen(report, now);
            }
        }
    }

    fn reopen(&mut self, report: &Report, now: Timestamp) {
        self.change(Stage::Open, now);
        self.refusals = 0;
        self.probe = None;
        self.probe_at = now;
        self.refuse(report, now);
    }

    fn refuse(&mut self, report: &Report, now: Timestamp) {
        self.class = report.class;
        self.message = shorten(&report.message);
        self.refusals = self.refusals.saturating_add(1);
        self.probe_at = self.probe_at.max(now.after(pause(report, self.refusals)));
    }

    fn change(&mut self, stage: Stage, now: Timestamp) {
        self.stage = stage;
        self.stage_since = now;
        self.generation = self.generation.saturating_add(1);
    }

    /// Whether a probe is under way.
    pub fn has_live_probe(&self, now: Timestamp) -> bool {
        self.probe.is_some_and(|probe| probe.expires_at > now)
    }

    /// Whether `session` may send. `grant` is the generation in which it was released, `waiting` says
    /// whether others wait, and who `insists` was told by an operator to try now.
    pub fn admit(
        &mut self,
        session: SessionId,
        grant: Option<u64>,
        waiting: bool,
        insists: bool,
        now: Timestamp,
    ) -> Admission {
        match self.stage {
            Stage::Open => match self.probe {
                Some(probe) if probe.session == session && probe.expires_at > now => Admission::Probe(probe.number),
                probe if probe.is_none_or(|probe| probe.expires_at <= now) && (insists || self.probe_at <= now) => {
                    Admission::Probe(self.give_probe(session, now))
                }
                _ => Admission::Wait,
            },
            Stage::Releasing if grant == Some(self.generation) || insists => Admission::Granted,
            Stage::Releasing if !waiting && self.flow.available(now) > 0 => {
                self.flow.take(1, now);
                Admission::Granted
            }
            Stage::Releasing => Admission::Wait,
            Stage::Over => Admission::Free,
        }
    }

    /// Gives `session` the right to try. Returns the number of the probe.
    pub fn give_probe(&mut self, session: SessionId, now: Timestamp) -> u64 {
        self.probes = self.probes.saturating_add(1);
        self.probe = Some(Probe { session, number: self.probes, expires_at: now.after(PROBE_EXPIRY) });
        self.probes
    }

    /// What a probe led to, if it is the one that is under way. Returns whether it was.
    pub fn settle(&mut self, number: u64, settlement: Settlement, now: Timestamp) -> bool {
        if self.stage != Stage::Open || self.probe.is_none_or(|probe| probe.number != number) {
            return false;
        }
        match settlement {
            Settlement::Mended => self.clear(now),
            Settlement::GivenUp => {
                self.probe = None;
                self.probe_at = now;
            }
        }
        true
    }

    /// Lets go of those who wait: the upstream answers, or an operator says so.
    pub fn clear(&mut self, now: Timestamp) {
        if self.stage != Stage::Releasing {
            self.change(Stage::Releasing, now);
        }
        self.probe = None;
        self.refusals = 0;
        self.flow.start(now);
    }

    /// Has the next probe made at once.
    pub fn hasten(&mut self, now: Timestamp) {
        if self.stage == Stage::Open {
            self.probe_at = self.probe_at.min(now);
        }
    }

    /// What is to be done now, given how many wait.
    pub fn look(&mut self, waiting: u64, now: Timestamp) -> Turn {
        match self.stage {
            Stage::Open if waiting > 0 && self.probe_at <= now && !self.has_live_probe(now) => Turn::Probe,
            Stage::Open => Turn::Nothing,
            Stage::Releasing if waiting > 0 => match self.flow.available(now).min(waiting).min(MAX_RELEASE) {
                0 => Turn::Nothing,
                some => Turn::Release(some),
            },
            Stage::Releasing => {
                if self.is_calm(now) {
                    self.change(Stage::Over, now);
                }
                Turn::Nothing
            }
            // Parked after it was over: let go as if it had just been mended.
            Stage::Over if waiting > 0 => {
                self.clear(now);
                Turn::Nothing
            }
            Stage::Over if now.since(self.stage_since) >= KEPT_OVER => Turn::Remove,
            Stage::Over => Turn::Nothing,
        }
    }

    /// Whether a look may do anything now; without it an idle store would be locked for writing.
    pub fn wants_look(&self, waiting: u64, now: Timestamp) -> bool {
        match self.stage {
            Stage::Open => waiting > 0 && self.probe_at <= now && !self.has_live_probe(now),
            Stage::Releasing => waiting > 0 || self.is_calm(now),
            Stage::Over => waiting > 0 || now.since(self.stage_since) >= KEPT_OVER,
        }
    }

    fn is_calm(&self, now: Timestamp) -> bool {
        now.since(self.stage_since) >= CALM && now.since(self.flow.refused_at()) >= CALM
    }

    /// Counts sessions that were released.
    pub fn released(&mut self, sessions: u64, now: Timestamp) {
        self.flow.take(sessions, now);
    }

    /// Whether only an operator can mend it.
    pub fn needs_operator(&self) -> bool {
        needs_operator(self.class)
    }
}

/// Whether only an operator can mend a failure of this class.
pub fn needs_operator(class: Class) -> bool {
    matches!(class, Class::Quota | Class::Credential | Class::Config)
}

/// Whether a failure of class `failure` shows that a condition of class `condition` is over: the
/// upstream got far enough to say something else.
pub fn disproves(condition: Class, failure: Class) -> bool {
    if condition == failure {
        return false;
    }
    match failure {
        // Says nothing about what lies behind it, except that it answers with something else.
        Class::Transient => false,
        Class::RateLimit | Class::Quota | Class::Credential | Class::Config => {
            // A limit is answered before a key, a key before a model.
            matches!(
                (condition, failure),
                (Class::Transient, _)
                    | (Class::Credential, Class::RateLimit | Class::Config)
                    | (Class::RateLimit, Class::Quota | Class::Credential | Class::Config)
            )
        }
        Class::Overflow
        | Class::TooBig
        | Class::BadHistory
        | Class::Request
        | Class::Incomplete
        | Class::Empty
        | Class::Malformed
        | Class::Refused => true,
    }
}

fn pause(report: &Report, refusals: u32) -> Millis {
    if !needs_operator(report.class) {
        return retry::delay(&report.policy, refusals, report.hint, report.random);
    }
    let doublings = refusals.saturating_sub(1).min(16);
    let own = OPERATOR_PROBE.saturating_mul(1 << doublings).min(OPERATOR_PROBE_CAP);
    own.max(report.hint.unwrap_or(0).min(retry::MAX_HINT))
}

fn shorten(text: &str) -> String {
    let end = (0..=MAX_MESSAGE.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_string()
}
