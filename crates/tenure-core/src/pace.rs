//! What the headers of a provider say about its limits, and how to keep within them before it says no.

use crate::failure::Reply;
use crate::failure::hint::{at_reset, http_date};
use crate::time::Millis;
use alloc::string::String;
use alloc::vec::Vec;

/// One limit of a provider, as its newest reply showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateBucket {
    /// The header that says what is left.
    pub name: String,
    /// What it holds when it is full.
    pub limit: Option<u64>,
    /// What is left.
    pub remaining: u64,
    /// When it is full again.
    pub resets_in: Option<Millis>,
}

/// How the next calls are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As they come.
    Free,
    /// With so much time between two of them.
    Spread(Millis),
    /// None for so long: nothing is left.
    Hold(Millis),
}

/// Share of a limit below which calls are spread out.
const NEARLY_USED: u64 = 10;

/// Longest reset that is believed without a refusal.
const MAX_HOLD: Millis = 15 * 60 * 1_000;

/// The limits that a reply shows. Names differ, but what remains, the limit and the reset have the same
/// name with one word changed.
pub fn buckets(reply: &Reply<'_>) -> Vec<RateBucket> {
    let date = reply.header("date").and_then(http_date);
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    let bucket = |(name, value): &(String, String)| {
        if !name.contains("ratelimit") || !name.contains("remaining") {
            return None;
        }
        let with = |word| name.replacen("remaining", word, 1);
        Some(RateBucket {
            name: name.clone(),
            // The casts saturate.
            limit: reply.header(&with("limit")).and_then(number).map(|limit| limit as u64),
            remaining: number(value)? as u64,
            resets_in: reply.header(&with("reset")).and_then(|reset| at_reset(reset, date)),
        })
    };
    reply.headers.iter().filter_map(bucket).collect()
}

/// The slowest pace that one of the limits asks for; `tokens` is what a call used.
pub fn pace(buckets: &[RateBucket], tokens: u64) -> Pace {
    let mut slowest = Pace::Free;
    for bucket in buckets {
        let Some(resets_in) = bucket.resets_in.filter(|span| *span > 0) else { continue };
        let per_call = if bucket.name.contains("tokens") { tokens.max(1) } else { 1 };
        let pace = if bucket.remaining == 0 {
            Pace::Hold(resets_in.min(MAX_HOLD))
        } else {
            match bucket.limit {
                Some(limit) if bucket.remaining < limit / NEARLY_USED => {
                    // What is missing comes back until the reset: this much time for what a call takes.
                    let missing = limit - bucket.remaining;
                    Pace::Spread(
                        (u128::from(resets_in) * u128::from(per_call) / u128::from(missing)).min(60_000) as Millis
                    )
                }
                _ => Pace::Free,
            }
        };
        slowest = match (slowest, pace) {
            (Pace::Hold(one), Pace::Hold(other)) => Pace::Hold(one.max(other)),
            (Pace::Hold(one), _) | (_, Pace::Hold(one)) => Pace::Hold(one),
            (Pace::Spread(one), Pace::Spread(other)) => Pace::Spread(one.max(other)),
            (Pace::Spread(one), Pace::Free) | (Pace::Free, Pace::Spread(one)) => Pace::Spread(one),
            (Pace::Free, Pace::Free) => Pace::Free,
        };
    }
    slowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn check(headers: &[(&str, &str)], tokens: u64) -> Pace {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        pace(&buckets(&Reply { status: 200, body: "", headers: &headers }), tokens)
    }

    #[test]
    fn calls_are_spread_when_little_is_left_and_held_when_nothing_is() {
        let openai = |remaining| {
            [
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", remaining),
                ("x-ratelimit-reset-requests", "1m0s"),
            ]
        };
        assert_eq!(check(&openai("59"), 0), Pace::Free);
        assert_eq!(check(&openai("6"), 0), Pace::Free);
        assert_eq!(check(&openai("5"), 0), Pace::Spread(1_090));
        assert_eq!(check(&openai("0"), 0), Pace::Hold(60_000));
        assert_eq!(check(&[], 0), Pace::Free);
    }

    #[test]
    fn a_reset_as_a_time_counts_from_the_providers_clock() {
        let headers = [
            ("date", "Mon, 30 Nov 2026 02:30:50 GMT"),
            ("anthropic-ratelimit-input-tokens-limit", "100000"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T02:31:10Z"),
        ];
        assert_eq!(check(&headers, 10), Pace::Hold(20_000));
        assert_eq!(check(&headers[1..], 10), Pace::Free, "without a date nobody knows");
    }

    #[test]
    fn absurd_headers_do_no_harm() {
        for value in ["1e300", "-1", "NaN", "", "18446744073709551615"] {
            for reset in ["1e300", "99999999999h", "-5s", ""] {
                let headers = [
                    ("x-ratelimit-limit-tokens", value),
                    ("x-ratelimit-remaining-tokens", value),
                    ("x-ratelimit-reset-tokens", reset),
                ];
                check(&headers, u64::MAX);
            }
        }
        let held = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "99h")];
        assert_eq!(check(&held, 1), Pace::Hold(MAX_HOLD));
    }
}
