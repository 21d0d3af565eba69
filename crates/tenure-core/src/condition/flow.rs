//! How fast those who waited leave: a token bucket whose rate starts low and grows until the upstream
//! says no, and afterwards stays just below where it said so.
//!
//! Numbers are whole, so that every store and every simulation counts the same.

use super::Report;
use crate::time::{Millis, Timestamp};

/// Rate of a new release, in sessions per 1,000 seconds.
const START_RATE: u64 = 2_000;

/// Lowest rate that refusals lead to.
const MIN_RATE: u64 = 200;

/// Highest rate of a release.
const MAX_RATE: u64 = 10_000_000;

/// From here on the rate grows by a quarter instead of a half: what is sent between the step too far
/// and the first word about it is refused.
const CAREFUL_FROM: u64 = 15_000;

/// How often the rate may grow.
const GROWS_EVERY: Millis = 1_000;

/// How long the rate stays where it is known to be safe before a little more is tried.
const HOLDS: Millis = 20_000;

/// Longest time whose tokens are kept: a look that comes late must not lead to a burst.
const MAX_IDLE: Millis = 250;

/// One session, in millionths: a rate per 1,000 seconds times milliseconds.
const ONE: u64 = 1_000_000;

/// A token bucket in search of its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sessions per 1,000 seconds.
    pub rate: u64,
    /// Rate that was refused once; approached with care.
    pub ceiling: Option<u64>,
    /// Millionths of a session that may leave.
    pub tokens: u64,
    /// Up to when tokens are counted; in the future while it pauses.
    pub counted_to: Timestamp,
    /// When the rate grew last.
    pub grown_at: Timestamp,
    /// When the rate was cut last.
    pub cut_at: Option<Timestamp>,
    /// Sessions that left since the rate grew last.
    pub left: u64,
}

impl Flow {
    /// A flow that has not begun.
    pub fn new(now: Timestamp) -> Self {
        Self { rate: START_RATE, ceiling: None, tokens: 0, counted_to: now, grown_at: now, cut_at: None, left: 0 }
    }

    /// Begins a release. What was learnt of the upstream's limit in an earlier one is kept.
    pub fn start(&mut self, now: Timestamp) {
        *self = Self { ceiling: self.ceiling, tokens: ONE, ..Self::new(now) };
        self.rate = self.ceiling.map_or(START_RATE, |ceiling| START_RATE.min(ceiling));
    }

    /// How many may leave now.
    pub fn available(&mut self, now: Timestamp) -> u64 {
        self.count(now);
        self.tokens / ONE
    }

    /// Counts sessions that leave.
    pub fn take(&mut self, sessions: u64, now: Timestamp) {
        self.count(now);
        self.tokens = self.tokens.saturating_sub(sessions.saturating_mul(ONE));
        self.left = self.left.saturating_add(sessions);
    }

    /// When the upstream last refused during a release.
    pub fn refused_at(&self) -> Timestamp {
        self.cut_at.unwrap_or(Timestamp(i64::MIN))
    }

    /// Slows down and pauses. Refusals of attempts that left before the last cut are the same news.
    pub(super) fn refused(&mut self, report: &Report, now: Timestamp) {
        self.count(now);
        if let Some(hint) = report.hint {
            self.counted_to = self.counted_to.max(now.after(hint));
            self.tokens = 0;
        }
        if self.cut_at.is_some_and(|cut_at| report.sent_at <= cut_at) {
            return;
        }
        self.cut_at = Some(now);
        self.grown_at = now;
        self.left = 0;
        self.tokens = 0;
        // The first time the rate still grew fast, and the upstream lived on what it had saved up.
        let (ceiling, rate) = if self.ceiling.is_none() { (60, 50) } else { (90, 75) };
        self.ceiling = Some((self.rate / 100 * ceiling).max(MIN_RATE));
        self.rate = (self.rate / 100 * rate).max(MIN_RATE);
    }

    fn count(&mut self, now: Timestamp) {
        let span = now.since(self.counted_to);
        if span == 0 {
            return;
        }
        self.counted_to = now;
        let most = self.rate.saturating_mul(MAX_IDLE).max(ONE);
        self.tokens = self.tokens.saturating_add(self.rate.saturating_mul(span.min(MAX_IDLE))).min(most);
        self.grow(now);
    }

    /// Grows by a half or a quarter until the first refusal; afterwards back up to the ceiling in small steps, and
    /// beyond it only after a long calm. Never faster than what really left.
    fn grow(&mut self, now: Timestamp) {
        let span = now.since(self.grown_at);
        if span < GROWS_EVERY {
            return;
        }
        // Half of what might have left, at least: else nothing was learnt about this rate.
        let was_used = self.left.saturating_mul(2).saturating_mul(ONE) >= self.rate.saturating_mul(GROWS_EVERY);
        self.left = 0;
        let last = core::mem::replace(&mut self.grown_at, now);
        if !was_used {
            return;
        }
        self.rate = match self.ceiling {
            None if self.rate < CAREFUL_FROM => self.rate.saturating_add(self.rate / 2),
            None => self.rate.saturating_add(self.rate / 4),
            Some(ceiling) if self.rate < ceiling => self.rate.saturating_add(ceiling / 20).min(ceiling),
            Some(ceiling) => {
                let calm_since = self.cut_at.unwrap_or(Timestamp(i64::MIN));
                if last.since(calm_since) < HOLDS {
                    self.rate
                } else {
                    let more = ceiling.saturating_add(ceiling / 100);
                    self.ceiling = Some(more.min(MAX_RATE));
                    more
                }
            }
        }
        .min(MAX_RATE);
    }
}
