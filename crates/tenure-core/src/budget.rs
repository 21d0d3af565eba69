//! Budgets: limits of a session, and what it has used (promise P11).

use crate::time::{Millis, Timestamp};
use crate::usage::Usage;

/// Limits of a session; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Model and tool calls.
    pub steps: Option<u64>,
    /// Tokens of all kinds, cached ones included.
    pub tokens: Option<u64>,
    /// Money, in millionths of a US dollar.
    pub cost_usd_micros: Option<u64>,
    /// Time since the session was made.
    pub wall: Option<Millis>,
}

impl Default for Limits {
    /// Every session has limits unless told otherwise: 500 steps, 5 million tokens, 20 dollars.
    fn default() -> Self {
        Self { steps: Some(500), tokens: Some(5_000_000), cost_usd_micros: Some(20_000_000), wall: None }
    }
}

impl Limits {
    /// No limits at all.
    pub const NONE: Self = Self { steps: None, tokens: None, cost_usd_micros: None, wall: None };
}

/// Limits and use of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// What it may use.
    pub limits: Limits,
    /// Steps so far.
    pub steps: u64,
    /// Tokens so far.
    pub usage: Usage,
    /// Money so far, as far as prices are known.
    pub cost_usd_micros: u64,
    /// Whether a model without a known price was used; said to people, never counted as free.
    pub has_unpriced: bool,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the limits")]
pub enum Which {
    Steps,
    Tokens,
    Cost,
    Wall,
}

impl Which {
    /// The field of the limit in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Tokens => "tokens",
            Self::Cost => "cost_usd",
            Self::Wall => "wall_seconds",
        }
    }
}

impl Budget {
    /// The first limit that leaves no room for another step, if any.
    ///
    /// Checked before the step, so one step can overshoot by at most what it uses itself.
    pub fn reached(&self, created_at: Timestamp, now: Timestamp) -> Option<Which> {
        let full = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        if full(self.steps, self.limits.steps) {
            Some(Which::Steps)
        } else if full(self.usage.total(), self.limits.tokens) {
            Some(Which::Tokens)
        } else if full(self.cost_usd_micros, self.limits.cost_usd_micros) {
            Some(Which::Cost)
        } else if full(now.since(created_at), self.limits.wall) {
            Some(Which::Wall)
        } else {
            None
        }
    }
}

/// Prices of a model, in millionths of a US dollar per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Input that is not cached.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
}

impl Price {
    /// What `usage` costs, in millionths of a US dollar, rounded up.
    pub fn cost_usd_micros(&self, usage: Usage) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum = part(usage.input, self.input)
            + part(usage.output, self.output)
            + part(usage.cache_read, self.cache_read)
            + part(usage.cache_write, self.cache_write);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_nothing_is_left_and_not_before() {
        let check = |steps, limit, expected| {
            let limits = Limits { steps: limit, ..Limits::NONE };
            let budget = Budget { limits, steps, ..Budget::default() };
            assert_eq!(budget.reached(Timestamp(0), Timestamp(1)), expected);
        };
        check(9, Some(10), None);
        check(10, Some(10), Some(Which::Steps));
        check(10, None, None);
        check(0, Some(0), Some(Which::Steps));
    }

    #[test]
    fn cost_is_rounded_up_and_never_overflows() {
        let price = Price { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };
        assert_eq!(price.cost_usd_micros(Usage { input: 1, ..Usage::default() }), 3);
        assert_eq!(price.cost_usd_micros(Usage { input: 1_000, output: 100, ..Usage::default() }), 4_500);
        let all = Usage { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
        assert_eq!(price.cost_usd_micros(all), u64::MAX);
    }
}
