//! How long a reply asks to wait, in all the forms in which providers say it.
//!
//! Every number comes from outside: nothing here can overflow, and what makes no sense is no hint.

use super::Reply;
use super::said::{Delay, Said};
use crate::time::Millis;
use alloc::string::String;

/// The shortest wait that the reply asks for. First form found wins: milliseconds, seconds, a date,
/// the body, buckets that are used up, the words of the message.
pub(super) fn hint(reply: &Reply<'_>, said: &Said) -> Option<Millis> {
    if let Some(millis) = reply.header("retry-after-ms").and_then(|text| positive(text, 1.0)) {
        return Some(millis);
    }
    let date = reply.header("date").and_then(http_date);
    if let Some(text) = reply.header("retry-after")
        && let Some(millis) = positive(text, 1_000.0).or_else(|| until(text, date)).or_else(|| span(text))
    {
        return Some(millis);
    }
    let in_body = said.delays.iter().find_map(|delay| match delay {
        Delay::Span(text) => span(text),
        Delay::Millis(text) => positive(text, 1.0),
    });
    in_body.or_else(|| reset(reply, date)).or_else(|| in_words(&said.message))
}

/// A number of units. Infinities and NaN are not hints, and neither is zero: our own backoff is better
/// than a loop without any.
fn positive(text: &str, factor: f64) -> Option<Millis> {
    let number: f64 = text.trim().parse().ok()?;
    // The cast saturates.
    let millis = (number * factor) as Millis;
    (number.is_finite() && millis > 0).then_some(millis)
}

/// The way to a date, by the provider's own clock and not by ours (case O-006); one that is past gives
/// no hint.
fn until(text: &str, date: Option<i64>) -> Option<Millis> {
    let at = http_date(text).or_else(|| rfc3339(text))?;
    u64::try_from(at.saturating_sub(date?).saturating_mul(1_000)).ok().filter(|wait| *wait > 0)
}

/// The latest reset of a bucket that is used up (case O-007).
///
/// The names differ, but each count of what remains has its reset under the same name with one word
/// changed: `anthropic-ratelimit-tokens-remaining`, `x-ratelimit-remaining-tokens`, `ratelimit-remaining`.
fn reset(reply: &Reply<'_>, date: Option<i64>) -> Option<Millis> {
    let buckets = reply.headers.iter().filter_map(|(name, value)| {
        if !name.contains("ratelimit") || !name.contains("remaining") {
            return None;
        }
        if value.trim().parse::<f64>().ok()? > 0.0 {
            return None;
        }
        at_reset(reply.header(&name.replacen("remaining", "reset", 1))?, date)
    });
    buckets.max().or_else(|| at_reset(reply.header("anthropic-ratelimit-unified-reset")?, date))
}

/// How long until a reset, in any of its forms.
pub(crate) fn at_reset(text: &str, date: Option<i64>) -> Option<Millis> {
    if rfc3339(text).is_some() || http_date(text).is_some() {
        return until(text, date);
    }
    span_or_epoch(text, date)
}

/// A relative span, or, as compatible servers send it, a point in time in seconds or milliseconds since
/// 1970.
fn span_or_epoch(text: &str, date: Option<i64>) -> Option<Millis> {
    /// Smaller numbers are spans: this many seconds are 31 years.
    const FIRST_EPOCH: f64 = 1e9;
    let number: f64 = text.trim().parse().unwrap_or(0.0);
    if number < FIRST_EPOCH {
        return span(text);
    }
    let seconds = if number < FIRST_EPOCH * 1e3 { number } else { number / 1e3 };
    u64::try_from((seconds as i64).saturating_sub(date?).saturating_mul(1_000)).ok().filter(|wait| *wait > 0)
}

/// Spans such as `38s`, `36.4s`, `2m59.56s`, `6m0s`, `500ms`, `1h`, `1d`; a bare number is seconds.
fn span(text: &str) -> Option<Millis> {
    let (total, rest) = leading_span(text.trim())?;
    rest.is_empty().then(|| millis(total)).flatten()
}

fn millis(total: f64) -> Option<Millis> {
    // The cast saturates.
    let millis = total as Millis;
    (total.is_finite() && millis > 0).then_some(millis)
}

/// Units of spans in milliseconds; longer names first, where one begins like another.
const UNITS: [(&str, f64); 14] = [
    ("milliseconds", 1.0),
    ("seconds", 1_000.0),
    ("second", 1_000.0),
    ("minutes", 60_000.0),
    ("minute", 60_000.0),
    ("hours", 3_600_000.0),
    ("hour", 3_600_000.0),
    ("ms", 1.0),
    ("us", 0.001),
    ("ns", 0.000_001),
    ("d", 86_400_000.0),
    ("h", 3_600_000.0),
    ("m", 60_000.0),
    ("s", 1_000.0),
];

/// The span at the beginning of a text, in milliseconds, and what follows it.
fn leading_span(text: &str) -> Option<(f64, &str)> {
    let (mut total, mut rest, mut has_any) = (0.0, text, false);
    loop {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let Ok(number) = rest[..digits].parse::<f64>() else {
            return has_any.then_some((total, rest));
        };
        let after = &rest[digits..];
        let spaced = after.strip_prefix(' ').unwrap_or(after);
        // A micro sign is written in two ways; both mean what `us` means.
        let micro = ["µs", "μs"].iter().find_map(|unit| after.strip_prefix(unit)).map(|rest| (0.001, rest));
        let unit = micro.or_else(|| {
            UNITS.iter().find_map(|(unit, factor)| {
                let source = if unit.len() > 2 { spaced } else { after };
                source.strip_prefix(unit).map(|rest| (*factor, rest))
            })
        });
        has_any = true;
        match unit {
            Some((factor, after)) => {
                total += number * factor;
                rest = after;
            }
            None => {
                total += number * 1_000.0;
                return Some((total, after));
            }
        }
    }
}

/// `Please try again in 6m0s.`: where a limit is told inside a stream, there are no headers.
fn in_words(message: &str) -> Option<Millis> {
    let message = message.to_ascii_lowercase();
    let starts = ["try again in ", "retry in ", "retry after ", "again after ", "wait for ", "wait "];
    let after = starts.iter().find_map(|start| message.split_once(start)).map(|(_, after)| after)?;
    // The full stop of the sentence is no part of the number.
    let end = after.find([',', ';', '\n']).unwrap_or(after.len());
    let text = after[..end].split(". ").next().unwrap_or_default().trim_end_matches(['.', '!']);
    let is_span = text.starts_with(|c: char| c.is_ascii_digit());
    let (total, rest) = if is_span { leading_span(text)? } else { return None };
    (rest.is_empty() || rest.starts_with(' ')).then(|| millis(total)).flatten()
}

/// Names of months, as dates have them.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn month(name: &str) -> Option<i64> {
    i64::try_from(MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name))?).ok().map(|place| place + 1)
}

/// Seconds since 1970 of a date in any of the three forms of HTTP: `Wed, 21 Oct 2026 07:28:00 GMT`,
/// `Wednesday, 21-Oct-26 07:28:00 GMT`, `Wed Oct 21 07:28:00 2026`.
pub(crate) fn http_date(text: &str) -> Option<i64> {
    let parts: [&str; 6] = words(text)?;
    match parts {
        [_, day, name, year, time, "GMT" | "UTC"] => seconds(year.parse().ok()?, month(name)?, day.parse().ok()?, time),
        [_, date, time, "GMT", "", ""] => {
            let mut date = date.split('-');
            let (day, name, year) = (date.next()?, date.next()?, date.next()?);
            let year: i64 = year.parse().ok()?;
            // Two digits: the century that is ours.
            let year = if (0..100).contains(&year) { year + 2_000 } else { year };
            seconds(year, month(name)?, day.parse().ok()?, time)
        }
        [_, name, day, time, year, ""] => seconds(year.parse().ok()?, month(name)?, day.parse().ok()?, time),
        _ => None,
    }
}

/// The words of a text that has no more than there is room for; empty ones at the end.
fn words<const N: usize>(text: &str) -> Option<[&str; N]> {
    let mut all = text.split_ascii_whitespace();
    let mut found = [""; N];
    for place in &mut found {
        *place = all.next().unwrap_or_default();
    }
    all.next().is_none().then_some(found)
}

/// Seconds since 1970 of `2026-11-30T02:31:10Z`, with or without a fraction, in any zone.
fn rfc3339(text: &str) -> Option<i64> {
    let (day, time) = text.trim().split_once(['T', 't', ' '])?;
    let end = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(end);
    let offset = match zone {
        "Z" | "z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let part = |text: &str, most: i64| text.parse::<i64>().ok().filter(|part| (0..=most).contains(part));
            let seconds = part(hours, 23)? * 3_600 + part(minutes, 59)? * 60;
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let mut parts = day.split('-').map(|part| part.parse::<i64>().ok());
    let at = seconds(parts.next()??, parts.next()??, parts.next()??, time.split('.').next()?)?;
    Some(at - offset)
}

fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok().filter(|part| (0..=60).contains(part)));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    // Days from the civil calendar, counted in years that begin with March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Names of headers that carry the provider's id of a request.
const REQUEST_IDS: [&str; 6] =
    ["request-id", "x-request-id", "x-amzn-requestid", "apim-request-id", "x-goog-request-id", "cf-ray"];

/// The provider's id of the request, or that of the proxy that answered instead.
pub(super) fn request_id(reply: &Reply<'_>) -> Option<String> {
    REQUEST_IDS.iter().find_map(|name| reply.header(name)).filter(|id| !id.is_empty()).map(String::from)
}
