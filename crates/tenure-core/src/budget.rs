//! Budgets: limits of a session, and what it has used (promise P11).

use crate::call::CallState;
use crate::event::{Body, Draft};
use crate::session::{Position, Session};
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
    /// Tool calls that failed in a row, whatever they were.
    pub failures: Option<u64>,
    /// The same call with the same input in a row, whoever answers it.
    pub identical_calls: Option<u64>,
}

impl Default for Limits {
    /// Every session has limits unless told otherwise: 500 steps, 5 million tokens, 20 dollars, 50
    /// failed calls in a row, 20 identical ones.
    fn default() -> Self {
        Self {
            steps: Some(500),
            tokens: Some(5_000_000),
            cost_usd_micros: Some(20_000_000),
            wall: None,
            failures: Some(50),
            identical_calls: Some(20),
        }
    }
}

impl Limits {
    /// No limits at all.
    pub const NONE: Self =
        Self { steps: None, tokens: None, cost_usd_micros: None, wall: None, failures: None, identical_calls: None };
}

/// Tokens and money that nobody has counted: a guess before a step, or what an attempt probably used
/// that broke off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Tokens of all kinds.
    pub tokens: u64,
    /// Money; `None` if the price is not known.
    pub cost_usd_micros: Option<u64>,
}

/// Limits and use of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// What it may use.
    pub limits: Limits,
    /// Steps so far.
    pub steps: u64,
    /// Tokens so far, as providers counted them.
    pub usage: Usage,
    /// Money so far, as far as prices are known.
    pub cost_usd_micros: u64,
    /// Whether a model without a known price was used; said to people, never counted as free.
    pub has_unpriced: bool,
    /// Tokens of attempts that broke off, which no provider counted for us; they bind like the others.
    pub estimated_tokens: u64,
    /// What those cost, as far as prices are known.
    pub estimated_cost_usd_micros: u64,
    /// Tool calls that failed in a row.
    pub failures: u64,
    /// Tokens that the newest snapshot in the log told of.
    pub told_tokens: u64,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the limits")]
pub enum Which {
    Steps,
    Tokens,
    Cost,
    Wall,
    Failures,
    IdenticalCalls,
    /// There is a limit of money, and the model has no known price: the limit could not bind.
    Price,
}

impl Which {
    /// The field of the limit in the API; for a price that is not known, the limit that needs it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Tokens => "tokens",
            Self::Cost | Self::Price => "cost_usd",
            Self::Wall => "wall_seconds",
            Self::Failures => "failures",
            Self::IdenticalCalls => "identical_calls",
        }
    }
}

impl Budget {
    /// All tokens that count against the limit.
    pub fn tokens(&self) -> u64 {
        self.usage.total().saturating_add(self.estimated_tokens)
    }

    /// All money that counts against the limit.
    pub fn cost_usd_micros(&self) -> u64 {
        self.cost_usd_micros.saturating_add(self.estimated_cost_usd_micros)
    }

    /// The limit that leaves no room for a step of this size, if any.
    pub fn short_of(&self, estimate: Estimate) -> Option<Which> {
        let is_over =
            |used: u64, more: u64, limit: Option<u64>| limit.is_some_and(|limit| used.saturating_add(more) > limit);
        if is_over(self.tokens(), estimate.tokens, self.limits.tokens) {
            return Some(Which::Tokens);
        }
        match estimate.cost_usd_micros {
            None => self.limits.cost_usd_micros.map(|_| Which::Price),
            Some(cost) => is_over(self.cost_usd_micros(), cost, self.limits.cost_usd_micros).then_some(Which::Cost),
        }
    }

    /// Counts what an attempt used; `counted` is the provider's own word.
    pub(crate) fn charge(&mut self, counted: Usage, cost_usd_micros: Option<u64>, assumed: Estimate) {
        self.usage = self.usage.plus(counted);
        match cost_usd_micros {
            Some(cost) => self.cost_usd_micros = self.cost_usd_micros.saturating_add(cost),
            None => self.has_unpriced |= counted.total() > 0,
        }
        self.estimated_tokens = self.estimated_tokens.saturating_add(assumed.tokens);
        match assumed.cost_usd_micros {
            Some(cost) => self.estimated_cost_usd_micros = self.estimated_cost_usd_micros.saturating_add(cost),
            None => self.has_unpriced |= assumed.tokens > 0,
        }
    }
}

impl Session {
    /// The first limit that leaves no room for the step that is due, if any (promise P11).
    ///
    /// Checked before the step, so one step can overshoot by at most what it uses itself. Calls are
    /// charged as steps when the model makes them, so those that are not begun yet do not count
    /// against themselves.
    pub fn limit_reached(&self, now: Timestamp) -> Option<Which> {
        let (budget, limits) = (&self.budget, self.budget.limits);
        let full = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        let steps = budget.steps.saturating_sub(self.calls_not_begun());
        if full(steps, limits.steps) {
            return Some(Which::Steps);
        }
        if full(now.since(self.created_at), limits.wall) {
            return Some(Which::Wall);
        }
        if self.position == Position::Tools {
            // What calls use is not known before, and the model is not asked.
            return None;
        }
        if full(budget.tokens(), limits.tokens) {
            Some(Which::Tokens)
        } else if full(budget.cost_usd_micros(), limits.cost_usd_micros) {
            Some(Which::Cost)
        } else if full(budget.failures, limits.failures) {
            Some(Which::Failures)
        } else if full(u64::from(self.repeats.calls), limits.identical_calls) {
            Some(Which::IdenticalCalls)
        } else {
            None
        }
    }

    /// How many of the calls that are due may begin before the limit of steps is reached.
    pub(crate) fn room_for_calls(&self) -> usize {
        let begun = self.budget.steps.saturating_sub(self.calls_not_begun());
        let room = self.budget.limits.steps.map(|limit| limit.saturating_sub(begun));
        room.map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(usize::MAX))
    }

    fn calls_not_begun(&self) -> u64 {
        let waits = self.calls.iter().filter(|call| call.state == CallState::Ready);
        u64::try_from(waits.count()).unwrap_or(u64::MAX)
    }
}

/// The snapshot that comes before an event with which the session becomes idle or ends, if it has used
/// anything since the one before. A row of the log like any other, so that a list shows what a stream did.
pub fn usage_due(session: &Session, next: &Body) -> Option<Draft> {
    let budget = &session.budget;
    let is_end = matches!(next, Body::StatusIdle { .. } | Body::StatusTerminated { .. });
    (is_end && budget.tokens() != budget.told_tokens).then(|| {
        Draft::new(Body::UsageSnapshot {
            usage: budget.usage,
            cost_usd_micros: budget.cost_usd_micros,
            has_unpriced: budget.has_unpriced,
            estimated: Estimate {
                tokens: budget.estimated_tokens,
                cost_usd_micros: (budget.estimated_cost_usd_micros > 0).then_some(budget.estimated_cost_usd_micros),
            },
            limit_usd_micros: budget.limits.cost_usd_micros,
        })
    })
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
    use crate::agent::AgentRef;
    use crate::apply::apply;
    use crate::event::{End, Event, Stop};
    use crate::id::{AgentId, EnvironmentId, EventId, SessionId, TenantId};

    fn session(limits: Limits) -> Session {
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let (id, environment) = (SessionId::from_bits(1), EnvironmentId::from_bits(1));
        let mut session = Session::new(id, TenantId::default_tenant(), agent, environment, Timestamp(0));
        session.budget.limits = limits;
        session
    }

    #[test]
    fn a_limit_is_reached_when_nothing_is_left_and_not_before() {
        let check = |steps, limit, expected| {
            let mut session = session(Limits { steps: limit, ..Limits::NONE });
            session.budget.steps = steps;
            assert_eq!(session.limit_reached(Timestamp(1)), expected);
        };
        check(9, Some(10), None);
        check(10, Some(10), Some(Which::Steps));
        check(10, None, None);
        check(0, Some(0), Some(Which::Steps));
    }

    #[test]
    fn each_limit_binds_by_itself() {
        let one = Some(1);
        let check = |limits, change: &dyn Fn(&mut Session), expected| {
            let mut session = session(limits);
            assert_eq!(session.limit_reached(Timestamp(0)), None);
            change(&mut session);
            assert_eq!(session.limit_reached(Timestamp(2)), Some(expected));
        };
        let none = Limits::NONE;
        check(Limits { tokens: one, ..none }, &|s| s.budget.usage.cache_read = 1, Which::Tokens);
        check(Limits { tokens: one, ..none }, &|s| s.budget.estimated_tokens = 1, Which::Tokens);
        check(Limits { cost_usd_micros: one, ..none }, &|s| s.budget.cost_usd_micros = 1, Which::Cost);
        check(Limits { cost_usd_micros: one, ..none }, &|s| s.budget.estimated_cost_usd_micros = 1, Which::Cost);
        check(Limits { wall: one, ..none }, &|_| {}, Which::Wall);
        check(Limits { failures: one, ..none }, &|s| s.budget.failures = 1, Which::Failures);
        check(Limits { identical_calls: one, ..none }, &|s| s.repeats.calls = 1, Which::IdenticalCalls);
    }

    #[test]
    fn a_step_is_refused_before_it_is_sent_if_its_estimate_does_not_fit() {
        let limits = Limits { tokens: Some(100), cost_usd_micros: Some(50), ..Limits::NONE };
        let budget = Budget { limits, usage: Usage { input: 60, ..Usage::default() }, ..Budget::default() };
        let estimate = |tokens, cost| Estimate { tokens, cost_usd_micros: cost };
        assert_eq!(budget.short_of(estimate(40, Some(50))), None);
        assert_eq!(budget.short_of(estimate(41, Some(1))), Some(Which::Tokens));
        assert_eq!(budget.short_of(estimate(1, Some(51))), Some(Which::Cost));
        assert_eq!(budget.short_of(estimate(1, None)), Some(Which::Price), "an unknown price is never zero");
        let free = Budget { limits: Limits::NONE, ..budget };
        assert_eq!(free.short_of(estimate(u64::MAX, None)), None);
    }

    #[test]
    fn cost_is_rounded_up_and_never_overflows() {
        let price = Price { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };
        assert_eq!(price.cost_usd_micros(Usage { input: 1, ..Usage::default() }), 3);
        assert_eq!(price.cost_usd_micros(Usage { input: 1_000, output: 100, ..Usage::default() }), 4_500);
        let all = Usage { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
        assert_eq!(price.cost_usd_micros(all), u64::MAX);
    }

    #[test]
    fn what_was_used_is_told_once_before_the_session_becomes_idle() {
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let tenant = TenantId(alloc::string::String::from("t"));
        let mut session =
            Session::new(SessionId::from_bits(1), tenant, agent, EnvironmentId::from_bits(1), Timestamp(0));
        let idle = Body::StatusIdle { stop: Stop::EndTurn };
        assert_eq!(usage_due(&session, &idle), None, "nothing was used");
        session.budget.usage = Usage { input: 5, output: 2, ..Usage::default() };
        session.budget.cost_usd_micros = 9;
        assert_eq!(usage_due(&session, &Body::StatusRunning), None, "it goes on");
        let told = usage_due(&session, &idle).expect("it has used tokens");
        let limit_usd_micros = session.budget.limits.cost_usd_micros;
        let usage = session.budget.usage;
        let snapshot = Body::UsageSnapshot {
            usage,
            cost_usd_micros: 9,
            has_unpriced: false,
            estimated: Estimate::default(),
            limit_usd_micros,
        };
        assert_eq!(told.body, snapshot);
        let event = Event { id: EventId::from_bits(1), seq: 1, at: Timestamp(1), step: 0, body: told.body };
        apply(&mut session, &event).expect("it can follow");
        assert_eq!(usage_due(&session, &idle), None, "it was told");
        session.budget.usage.output += 1;
        let ended = Body::StatusTerminated { end: End::Done };
        assert!(usage_due(&session, &ended).is_some(), "also before the end");
    }
}
