//! Classes of upstream failure, and which one a reply belongs to (the decision table of promise P9).

use crate::time::Millis;
use alloc::string::String;

/// What to do about a failed attempt; the rows of the decision table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Too many requests or tokens: wait for the hint, then try again.
    RateLimit,
    /// Out of credit: wait for the operator.
    Quota,
    /// Overload, server errors, lost connections: back off and try again.
    Transient,
    /// The key is wrong or may not do this: wait for the operator.
    Credential,
    /// The model or the endpoint does not exist: wait for the operator.
    Config,
    /// The conversation is longer than the model's context.
    Overflow,
    /// The request has too many bytes.
    TooBig,
    /// The provider finds the history invalid.
    BadHistory,
    /// The request is wrong in another way.
    Request,
    /// The stream ended before its terminal marker; nothing of it is kept.
    Incomplete,
    /// The answer holds nothing.
    Empty,
    /// The model or a filter refused.
    Refused,
}

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to do about it.
    pub class: Class,
    /// HTTP status, if there was a reply; a failure inside a stream keeps the stream's 200.
    pub status: Option<u16>,
    /// The provider's own type or code, such as `overloaded_error`; empty if it gave none.
    pub kind: String,
    /// One line for people; never a whole page, never a secret.
    pub message: String,
    /// The shortest wait that the provider asked for.
    pub retry_after: Option<Millis>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

/// What a provider replied, as far as it matters for the class of a failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply<'a> {
    /// HTTP status; 200 for an error inside a stream.
    pub status: u16,
    /// The body, or the data of an in-stream error event.
    pub body: &'a str,
    /// Headers, names in lower case.
    pub headers: &'a [(String, String)],
}

impl Reply<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim())
    }
}

/// A failure without a reply: the connection broke, or a time limit passed.
pub fn unreachable(message: impl Into<String>) -> Failure {
    plain(Class::Transient, message)
}

/// A stream that ended before its terminal marker.
pub fn incomplete(message: impl Into<String>) -> Failure {
    plain(Class::Incomplete, message)
}

/// A failure with nothing but a class and words.
pub fn plain(class: Class, message: impl Into<String>) -> Failure {
    Failure { class, status: None, kind: String::new(), message: message.into(), retry_after: None, request_id: None }
}

/// Longest message that is kept of a provider's error.
const MAX_MESSAGE: usize = 300;

/// Classifies a reply by its error type first, its status after that (decision table).
pub fn classify(reply: &Reply<'_>) -> Failure {
    let error = parse_error(reply.body);
    let class = class_of(reply, &error);
    let is_json = !error.kind.is_empty() || !error.message.is_empty();
    let message = if is_json {
        error.message.clone()
    } else {
        alloc::format!("the provider answered with status {} and no error of its own", reply.status)
    };
    Failure {
        class,
        status: Some(reply.status),
        kind: if error.code.is_empty() { error.kind } else { error.code },
        message: shorten(&message),
        retry_after: hint(reply, error.retry_delay.as_deref()),
        request_id: reply
            .header("request-id")
            .or_else(|| reply.header("x-request-id"))
            .map(String::from)
            .or(error.request_id),
    }
}

fn shorten(text: &str) -> String {
    let line: String = text.chars().take(MAX_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect();
    line
}

#[derive(Default)]
struct ProviderError {
    kind: String,
    code: String,
    message: String,
    /// A number in the place of the code: the status that an upstream of a gateway gave.
    status: Option<u16>,
    request_id: Option<String>,
    retry_delay: Option<String>,
}

fn parse_error(body: &str) -> ProviderError {
    let Ok(json) = crate::Json::parse(body) else {
        return ProviderError::default();
    };
    let mut value = json.to_value();
    // Gemini wraps its errors in an array of one (case O-008).
    if let Some(first) = value.as_array_mut().and_then(|array| array.first_mut()) {
        value = first.take();
    }
    let text = |value: &serde_json::Value| value.as_str().map(String::from);
    // Some servers send the error without the object around it.
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(&value);
    if let Some(message) = text(error) {
        return ProviderError { message, ..ProviderError::default() };
    }
    let details = error["details"].as_array();
    let retry_delay = details.and_then(|details| details.iter().find_map(|detail| text(&detail["retryDelay"])));
    ProviderError {
        kind: text(&error["type"]).or_else(|| text(&error["status"])).unwrap_or_default(),
        code: text(&error["code"]).or_else(|| text(&error["details"]["error_code"])).unwrap_or_default(),
        message: text(&error["message"]).unwrap_or_default(),
        status: error["code"].as_u64().and_then(|code| u16::try_from(code).ok()),
        request_id: text(&value["request_id"]),
        retry_delay,
    }
}

fn class_of(reply: &Reply<'_>, error: &ProviderError) -> Class {
    match error.code.as_str() {
        "insufficient_quota"
        | "enforced_spend_limit_reached"
        | "contract_spend_limit_reached"
        | "billing_hard_limit_reached" => {
            return Class::Quota;
        }
        "context_length_exceeded" => return Class::Overflow,
        "rate_limit_exceeded" => return Class::RateLimit,
        "model_not_found" => return Class::Config,
        "invalid_api_key" => return Class::Credential,
        "request_body_too_large_after_decoding" => return Class::TooBig,
        "content_filter" => return Class::Refused,
        _ => {}
    }
    match error.kind.as_str() {
        "overloaded_error" | "api_error" | "timeout_error" | "server_error" | "conflict_error" | "UNAVAILABLE"
        | "INTERNAL" => Class::Transient,
        "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED" => Class::RateLimit,
        "insufficient_quota" | "billing_error" => Class::Quota,
        "authentication_error" | "permission_error" | "UNAUTHENTICATED" | "PERMISSION_DENIED" => Class::Credential,
        "not_found_error" => Class::Config,
        "request_too_large" => Class::TooBig,
        // Too general a type to win over a status that says more, such as 401 or 429.
        "invalid_request_error" if reply.status == 200 => class_of_words(&error.message),
        _ => class_of_status(reply, error),
    }
}

fn class_of_status(reply: &Reply<'_>, error: &ProviderError) -> Class {
    let retry = reply.header("x-should-retry");
    // Inside a stream the status is always 200; gateways put the upstream's own into the error.
    let status = error.status.filter(|_| reply.status == 200).unwrap_or(reply.status);
    match status {
        401 | 403 => Class::Credential,
        402 => Class::Quota,
        404 | 410 => Class::Config,
        408 | 409 => Class::Transient,
        413 => Class::TooBig,
        429 => Class::RateLimit,
        status if status >= 500 && retry != Some("false") => Class::Transient,
        // A page of a proxy, or an error without a type inside a stream.
        200..=299 => Class::Transient,
        // Redirects are not followed: the address is wrong.
        300..=399 => Class::Config,
        _ => match class_of_words(&error.message) {
            Class::Request if retry == Some("true") => Class::Transient,
            class => class,
        },
    }
}

/// What a refused request says in words, where providers have no type of their own for it.
fn class_of_words(message: &str) -> Class {
    let message = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&[
        "prompt is too long",
        "context length",
        "context_length",
        "maximum context",
        "context window",
        "too many tokens",
        "exceed context",
    ]) {
        Class::Overflow
    } else if says(&["credit balance", "spend limit", "spending limit", "usage limits", "billing"]) {
        Class::Quota
    } else if says(&[
        "tool_use",
        "tool_result",
        "tool_call",
        "tool call",
        "signature",
        "roles must alternate",
        "thinking block",
    ]) {
        Class::BadHistory
    } else {
        Class::Request
    }
}

/// The shortest wait that the reply asks for, in any of its forms.
fn hint(reply: &Reply<'_>, retry_delay: Option<&str>) -> Option<Millis> {
    if let Some(millis) = reply.header("retry-after-ms").and_then(|text| positive(text, 1.0)) {
        return Some(millis);
    }
    let date = reply.header("date").and_then(http_date);
    if let Some(text) = reply.header("retry-after") {
        if let Some(millis) = positive(text, 1_000.0) {
            return Some(millis);
        }
        // A date counts from the provider's own clock, not from ours (case O-006); one that is past
        // gives no hint.
        if let (Some(at), Some(date)) = (http_date(text), date) {
            return u64::try_from(at.saturating_sub(date).saturating_mul(1_000)).ok().filter(|wait| *wait > 0);
        }
    }
    retry_delay.and_then(duration).or_else(|| reset(reply, date))
}

fn positive(text: &str, factor: f64) -> Option<Millis> {
    let number: f64 = text.parse().ok()?;
    // The cast saturates. Infinities and NaN are not hints, and neither is zero: our own backoff is
    // better than a loop without any.
    let millis = (number * factor) as Millis;
    (number.is_finite() && millis > 0).then_some(millis)
}

/// The latest reset of a bucket that is used up (case O-007).
fn reset(reply: &Reply<'_>, date: Option<i64>) -> Option<Millis> {
    let buckets = reply.headers.iter().filter_map(|(name, value)| {
        let is_anthropic = name.starts_with("anthropic-ratelimit-");
        let bucket = match (is_anthropic, name.strip_suffix("-remaining"), name.strip_prefix("x-ratelimit-remaining-"))
        {
            (true, Some(bucket), _) => alloc::format!("{bucket}-reset"),
            (_, _, Some(bucket)) => alloc::format!("x-ratelimit-reset-{bucket}"),
            _ => return None,
        };
        if value.trim().parse::<f64>().ok()? > 0.0 {
            return None;
        }
        let reset = reply.header(&bucket)?;
        match (rfc3339(reset), date) {
            (Some(at), Some(date)) => u64::try_from(at.saturating_sub(date).saturating_mul(1_000)).ok(),
            (Some(_), None) => None,
            (None, date) => span_or_epoch(reset, date),
        }
    });
    buckets.max()
}

/// A relative duration, or, as compatible servers send it, a point in time in seconds or
/// milliseconds since 1970.
fn span_or_epoch(text: &str, date: Option<i64>) -> Option<Millis> {
    /// Smaller numbers are spans: this many seconds are 31 years.
    const FIRST_EPOCH: f64 = 1e9;
    let number: f64 = text.trim().parse().unwrap_or(0.0);
    if number < FIRST_EPOCH {
        return duration(text);
    }
    let seconds = if number < FIRST_EPOCH * 1e3 { number } else { number / 1e3 };
    u64::try_from((seconds as i64).saturating_sub(date?).saturating_mul(1_000)).ok().filter(|wait| *wait > 0)
}

/// Durations such as `38s`, `36.4s`, `2m59.56s`, `6m0s`, `500ms`, `1h`.
fn duration(text: &str) -> Option<Millis> {
    let (mut total, mut number, mut rest) = (0.0, String::new(), text.trim());
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_digit() || c == '.' {
            number.push(c);
            rest = &rest[1..];
            continue;
        }
        let (factor, len) = if rest.starts_with("ms") {
            (1.0, 2)
        } else {
            (
                match c {
                    'h' => 3_600_000.0,
                    'm' => 60_000.0,
                    's' => 1_000.0,
                    _ => return None,
                },
                1,
            )
        };
        total += number.parse::<f64>().ok()? * factor;
        number.clear();
        rest = &rest[len..];
    }
    if !number.is_empty() {
        total += number.parse::<f64>().ok()? * 1_000.0;
    }
    (text.trim() != "" && total.is_finite()).then_some(total as Millis)
}

/// Seconds since 1970 of `Wed, 21 Oct 2026 07:28:00 GMT`.
fn http_date(text: &str) -> Option<i64> {
    let mut parts = text.split_ascii_whitespace().skip(1);
    let day: i64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = i64::try_from(months.iter().position(|month| *month == name)?).ok()? + 1;
    let year: i64 = parts.next()?.parse().ok()?;
    seconds(year, month, day, parts.next()?)
}

/// Seconds since 1970 of `2026-11-30T02:31:10Z`, with or without a fraction; other zones are not hints.
fn rfc3339(text: &str) -> Option<i64> {
    let utc = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (day, time) = utc.split_once('T')?;
    let mut parts = day.split('-').map(|part| part.parse::<i64>().ok());
    seconds(parts.next()??, parts.next()??, parts.next()??, time.split('.').next()?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check(status: u16, body: &str, headers: &[(&str, &str)]) -> (Class, Option<Millis>) {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let failure = classify(&Reply { status, body, headers: &headers });
        (failure.class, failure.retry_after)
    }

    #[test]
    fn o_001_an_error_inside_a_200_stream_is_classified_by_its_type() {
        let body =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#;
        assert_eq!(check(200, body, &[]), (Class::Transient, None));
        assert_eq!(check(529, body, &[]), (Class::Transient, None));
    }

    #[test]
    fn o_005_a_429_without_credit_is_quota() {
        let body = r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"x"}}"#;
        assert_eq!(check(429, body, &[]).0, Class::Quota);
    }

    #[test]
    fn o_006_a_date_is_measured_against_the_date_header() {
        let now = ("date", "Wed, 21 Oct 2026 07:27:30 GMT");
        assert_eq!(
            check(429, "", &[now, ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]),
            (Class::RateLimit, Some(30_000))
        );
        assert_eq!(check(429, "", &[now, ("retry-after", "Wed, 21 Oct 2026 07:00:00 GMT")]).1, None);
        assert_eq!(check(429, "", &[now, ("retry-after", "nonsense")]).1, None);
    }

    #[test]
    fn o_007_only_used_up_buckets_count_and_the_latest_wins() {
        let headers = [
            ("date", "Mon, 30 Nov 2026 02:30:50 GMT"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T02:31:10Z"),
            ("anthropic-ratelimit-requests-remaining", "5"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T05:00:00Z"),
        ];
        assert_eq!(check(429, "", &headers).1, Some(20_000));
    }

    #[test]
    fn o_008_a_retry_delay_in_the_body_counts_in_all_three_forms() {
        let body = |delay: &str| {
            alloc::format!(
                r#"{{"error":{{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{{"retryDelay":"{delay}"}}]}}}}"#
            )
        };
        assert_eq!(check(429, &body("38s"), &[]), (Class::RateLimit, Some(38_000)));
        assert_eq!(check(429, &alloc::format!("[{}]", body("38s")), &[]).1, Some(38_000));
        assert_eq!(check(429, &body("36.429760048s"), &[]).1, Some(36_429));
    }

    #[test]
    fn hints_in_milliseconds_seconds_and_durations_are_read_and_never_overflow() {
        assert_eq!(check(429, "", &[("retry-after-ms", "1500")]).1, Some(1_500));
        assert_eq!(check(429, "", &[("retry-after", "2.5")]).1, Some(2_500));
        assert_eq!(check(429, "", &[("retry-after", "1e300")]).1, Some(u64::MAX));
        let bucket = |reset| [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", reset)];
        assert_eq!(check(429, "", &[("retry-after", "0")]).1, None);
        assert_eq!(check(429, "", &[("retry-after", "-3")]).1, None);
        assert_eq!(check(429, "", &[("retry-after", "NaN")]).1, None);
        let date = ("date", "Mon, 30 Nov 2026 02:30:50 GMT");
        for epoch in ["1796005870", "1796005870000"] {
            assert_eq!(check(429, "", &[bucket(epoch)[0], bucket(epoch)[1], date]).1, Some(20_000));
            assert_eq!(check(429, "", &bucket(epoch)).1, None);
        }
        for (text, millis) in [("1s", 1_000), ("6m0s", 360_000), ("500ms", 500), ("2m59.56s", 179_560), ("7", 7_000)] {
            assert_eq!(check(429, "", &bucket(text)).1, Some(millis), "{text}");
        }
    }

    #[test]
    fn o_018_pages_of_proxies_are_transient_and_not_shown() {
        for (status, body) in [(524, ""), (520, "<html>"), (521, "<html>"), (200, "<!DOCTYPE html>")] {
            let failure = classify(&Reply { status, body, headers: &[] });
            assert_eq!(failure.class, Class::Transient, "{status}");
            assert!(!failure.message.contains('<'));
        }
    }

    #[test]
    fn the_other_rows_of_the_decision_table() {
        let typed =
            |kind: &str, message: &str| alloc::format!(r#"{{"error":{{"type":"{kind}","message":"{message}"}}}}"#);
        for (status, body, class) in [
            (401, typed("authentication_error", ""), Class::Credential),
            (402, typed("billing_error", ""), Class::Quota),
            (404, typed("not_found_error", "model: old-1"), Class::Config),
            (410, String::new(), Class::Config),
            (413, "<html>".into(), Class::TooBig),
            (
                400,
                typed("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
                Class::Overflow,
            ),
            (400, typed("invalid_request_error", "tool_use ids were found without tool_result"), Class::BadHistory),
            (400, typed("invalid_request_error", "temperature"), Class::Request),
            (422, String::new(), Class::Request),
            (503, String::new(), Class::Transient),
            (307, String::new(), Class::Config),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 8192 tokens","code":400}"#
                    .into(),
                Class::Overflow,
            ),
            (401, typed("invalid_request_error", "no key"), Class::Credential),
            (400, typed("invalid_request_error", "Your credit balance is too low"), Class::Quota),
            (200, r#"{"error":{"code":502,"message":"upstream"}}"#.into(), Class::Transient),
            (200, r#"{"error":{"code":429,"message":"upstream"}}"#.into(), Class::RateLimit),
            (
                429,
                typed("rate_limit_error", "")
                    .replace("\"message\":\"\"", "\"details\":{\"error_code\":\"enforced_spend_limit_reached\"}"),
                Class::Quota,
            ),
        ] {
            assert_eq!(check(status, &body, &[]).0, class, "{status} {body}");
        }
    }
}
