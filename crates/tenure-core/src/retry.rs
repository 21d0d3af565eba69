//! When to try again: exponential backoff with full jitter, and the provider's hint as a floor.

use crate::time::Millis;

/// How to retry a failing upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts of one model call before a person is asked.
    pub max_attempts: u32,
    /// Upper end of the first wait.
    pub base: Millis,
    /// Upper end of every wait of our own; a hint may be longer.
    pub cap: Millis,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_attempts: 20, base: 1_000, cap: 5 * 60 * 1_000 }
    }
}

/// Longest hint that is believed: a day. Providers have sent longer ones by mistake.
pub const MAX_HINT: Millis = 24 * 3_600 * 1_000;

/// Share of a hint that is added at random, so that those who were told the same time do not come
/// back together.
const HINT_JITTER_DIVISOR: Millis = 4;

/// How long to wait before the next attempt.
///
/// `failures` counts failed attempts, from 1; `random` is any number, all 64 bits of it used.
pub fn delay(policy: &Policy, failures: u32, hint: Option<Millis>, random: u64) -> Millis {
    let doublings = failures.saturating_sub(1).min(62);
    let ceiling = policy.base.max(1).saturating_mul(1 << doublings).min(policy.cap.max(1));
    match hint {
        Some(hint) => {
            let hint = hint.min(MAX_HINT);
            // A hint that did not help is not enough: limits of a day come with hints of a minute.
            hint.saturating_add(below(random, (hint / HINT_JITTER_DIVISOR).max(ceiling)))
        }
        None => below(random, ceiling),
    }
}

/// Maps 64 random bits onto `0..=ceiling`.
fn below(random: u64, ceiling: Millis) -> Millis {
    let scaled = (u128::from(random) * (u128::from(ceiling) + 1)) >> 64;
    u64::try_from(scaled).expect("not above the ceiling")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_waits_double_up_to_the_cap_and_use_the_whole_range() {
        let policy = Policy { max_attempts: 9, base: 1_000, cap: 10_000 };
        for (failures, ceiling) in [(1, 1_000), (2, 2_000), (4, 8_000), (5, 10_000), (u32::MAX, 10_000)] {
            assert_eq!(delay(&policy, failures, None, 0), 0);
            assert_eq!(delay(&policy, failures, None, u64::MAX), ceiling);
        }
    }

    #[test]
    fn a_hint_is_never_undercut_and_is_spread_out() {
        let policy = Policy::default();
        assert_eq!(delay(&policy, 1, Some(20_000), 0), 20_000);
        assert_eq!(delay(&policy, 1, Some(20_000), u64::MAX), 25_000);
    }

    #[test]
    fn a_hint_that_did_not_help_is_followed_by_longer_waits() {
        let policy = Policy::default();
        assert_eq!(delay(&policy, 1, Some(1_000), u64::MAX), 2_000);
        assert_eq!(delay(&policy, 6, Some(1_000), u64::MAX), 33_000);
        assert_eq!(delay(&policy, 15, Some(1_000), u64::MAX), 1_000 + policy.cap);
        assert_eq!(delay(&policy, 15, Some(1_000), 0), 1_000);
    }

    #[test]
    fn absurd_values_do_not_overflow() {
        let policy = Policy { max_attempts: 1, base: u64::MAX, cap: u64::MAX };
        assert!(delay(&policy, u32::MAX, Some(u64::MAX), u64::MAX) > MAX_HINT);
        assert_eq!(delay(&policy, u32::MAX, None, u64::MAX), u64::MAX);
    }
}
