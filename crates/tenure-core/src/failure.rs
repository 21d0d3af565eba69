//! Classes of upstream failure, and which one a reply belongs to (the decision table of promise P9).

mod class;
pub(crate) mod hint;
mod said;

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
    /// The provider says that the model's tool call cannot be read; the model is told.
    Malformed,
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
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
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

/// Longest message that is kept of a provider's error, in characters.
const MAX_MESSAGE: usize = 300;

/// Longest code, type or id that is kept of a provider's error, in characters.
const MAX_KIND: usize = 100;

/// Classifies a reply by its error type first, its status after that (decision table).
pub fn classify(reply: &Reply<'_>) -> Failure {
    let said = said::read(reply.body);
    let retry_after = hint::hint(reply, &said);
    let (class, word) = class::class_of(reply, &said, retry_after.is_some());
    let kind = word.or_else(|| said.words.first().map(String::as_str)).unwrap_or_default();
    let message = match (said.message.trim(), kind) {
        ("", "") => alloc::format!("the provider answered with status {} and no error of its own", reply.status),
        ("", kind) => kind.into(),
        (message, _) => message.into(),
    };
    Failure {
        class,
        status: Some(reply.status),
        kind: shorten(kind, MAX_KIND),
        message: shorten(&message, MAX_MESSAGE),
        retry_after,
        request_id: hint::request_id(reply).or(said.request_id).map(|id| shorten(&id, MAX_KIND)),
    }
}

fn shorten(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect()
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
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-30T02:30:55Z"),
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

    #[test]
    fn hints_come_in_every_form_of_dates_and_spans() {
        let date = ("date", "Mon, 30 Nov 2026 02:30:50 GMT");
        for at in [
            "Mon, 30 Nov 2026 02:31:10 GMT",
            "Monday, 30-Nov-26 02:31:10 GMT",
            "Mon Nov 30 02:31:10 2026",
            "2026-11-30T02:31:10Z",
            "2026-11-30t02:31:10.25z",
            "2026-11-30T04:31:10+02:00",
            "2026-11-29T21:31:10-05:00",
        ] {
            assert_eq!(check(429, "", &[date, ("retry-after", at)]).1, Some(20_000), "{at}");
            assert_eq!(check(429, "", &[("retry-after", at)]).1, None, "{at} without the provider's clock");
        }
        for (text, millis) in
            [("20s", 20_000), ("1m", 60_000), ("1d", 86_400_000), ("1500.4ms", 1_500), ("2500000us", 2_500)]
        {
            assert_eq!(check(503, "", &[("retry-after", text)]), (Class::Transient, Some(millis)), "{text}");
        }
        for text in [
            "",
            " ",
            "-1s",
            "1x",
            "s",
            ".",
            "1.2.3s",
            "\u{b5}s",
            "1e400s",
            "99999999999999999999999999-01-01T00:00:00Z",
        ] {
            assert_eq!(check(429, "", &[date, ("retry-after", text)]).1, None, "{text:?}");
        }
    }

    #[test]
    fn buckets_under_other_names_and_hints_in_bodies_and_words_count() {
        for (remaining, reset) in [
            ("ratelimit-remaining", "ratelimit-reset"),
            ("x-ratelimit-remaining", "x-ratelimit-reset"),
            ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
        ] {
            assert_eq!(check(429, "", &[(remaining, "0"), (reset, "12")]).1, Some(12_000), "{remaining}");
            assert_eq!(check(429, "", &[(remaining, "1"), (reset, "12")]).1, None, "{remaining}");
        }
        let date = ("date", "Mon, 30 Nov 2026 02:30:50 GMT");
        assert_eq!(check(429, "", &[date, ("anthropic-ratelimit-unified-reset", "1796005870")]).1, Some(20_000));
        for body in [
            r#"{"error":{"type":"usage_limit_reached","message":"x","resets_in_seconds":7}}"#,
            r#"{"error":{"code":"rate_limit_exceeded","message":"x","retry_after_ms":7000}}"#,
            r#"{"error":{"code":"rate_limit_exceeded","message":"Limit 30000. Please try again in 7s. Visit https://x"}}"#,
            r#"{"error":{"code":"rate_limit_exceeded","message":"Please retry after 7 seconds."}}"#,
            r#"{"error":{"code":"rate_limit_exceeded","message":"Please try again in 0m7.0s."}}"#,
        ] {
            assert_eq!(check(200, body, &[]), (Class::RateLimit, Some(7_000)), "{body}");
        }
    }

    #[test]
    fn spelling_and_wrapping_of_an_error_do_not_matter() {
        for (body, class) in [
            (r#"{"error":"rate limit exceeded"}"#, Class::RateLimit),
            (r#"{"error":{"code":"RATE_LIMIT_EXCEEDED"}}"#, Class::RateLimit),
            (r#"{"error":{"code":"RateLimitReached","message":"x"}}"#, Class::RateLimit),
            (r#"{"__type":"ThrottlingException","message":"x"}"#, Class::RateLimit),
            (r#"{"type":"OVERLOADED_ERROR"}"#, Class::Transient),
            (r#"[{"error":{"status":"unavailable"}}]"#, Class::Transient),
            (r#"{"error":"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"}"#, Class::Transient),
            (
                r#"{"error":{"message":"upstream said: {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"x\"}}","type":"api_error"}}"#,
                Class::Quota,
            ),
            (
                r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"{\"error\":{\"type\":\"overloaded_error\"}}"}}}"#,
                Class::Transient,
            ),
            (
                r#"{"error":{"code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
                Class::Refused,
            ),
            (r#"{"error":{"code":"429"}}"#, Class::RateLimit),
            (r#"{"detail":[{"msg":"x","type":"missing"}],"status":401}"#, Class::Credential),
            (
                r#"{"fault":{"faultstring":"x","detail":{"errorcode":"policies.ratelimit.QuotaViolation"}}}"#,
                Class::Quota,
            ),
            (r#"{"errors":[{"message":"x","code":"ENGINE_OVERLOADED"}]}"#, Class::Transient),
            (r#"{"error":{"type":"invalid_request_error","message":"bad"}}"#, Class::Request),
            (r#"{"error":{"type":"error","message":"a new thing"}}"#, Class::Transient),
            (r#""something went wrong""#, Class::Transient),
            ("null", Class::Transient),
            ("[]", Class::Transient),
            ("{}", Class::Transient),
        ] {
            assert_eq!(check(200, body, &[]).0, class, "{body}");
        }
    }

    #[test]
    fn what_users_wrote_is_no_error_for_being_json() {
        let body =
            r#"{"error":{"type":"invalid_request_error","message":"bad value {\"type\":\"insufficient_quota\"}"}}"#;
        assert_eq!(check(400, body, &[]).0, Class::Request);
    }

    #[test]
    fn statuses_of_proxies_and_content_networks() {
        for (status, class) in [
            (408, Class::Transient),
            (425, Class::Transient),
            (499, Class::Transient),
            (429, Class::RateLimit),
            (413, Class::TooBig),
            (405, Class::Config),
            (407, Class::Config),
            (418, Class::Request),
            (451, Class::Request),
            (599, Class::Transient),
            (0, Class::Transient),
            (204, Class::Transient),
        ] {
            for body in ["", "<html><title>error</title></html>", "[]", "upstream request failed", "{\"error\":null}"] {
                assert_eq!(check(status, body, &[]).0, class, "{status} {body}");
            }
        }
        for status in (520..=527).chain([500, 502, 503, 504, 507, 509, 529, 530, 598]) {
            assert_eq!(check(status, "<html>", &[]).0, Class::Transient, "{status}");
        }
    }

    #[test]
    fn the_word_of_the_provider_on_retries_overrides() {
        let never = ("x-should-retry", "false");
        let always = ("x-should-retry", "True");
        let body = r#"{"error":{"type":"api_error","message":"x"}}"#;
        assert_eq!(check(500, body, &[never]).0, Class::Request);
        assert_eq!(check(503, "", &[never]).0, Class::Request);
        assert_eq!(check(400, "", &[always]).0, Class::Transient);
        assert_eq!(check(401, "", &[always]).0, Class::Credential, "a key does not get better by itself");
        assert_eq!(check(429, "", &[never]).0, Class::RateLimit, "the wait is durable and costs no attempt");
    }

    #[test]
    fn overflow_is_told_from_other_refusals_in_the_words_of_many_servers() {
        for message in [
            "prompt is too long: 210000 tokens > 200000 maximum",
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "the request exceeds the available context size, try increasing it",
            "Your input exceeds the context window of this model.",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Input is too long for requested model.",
            "no user query found in messages",
        ] {
            for status in [200, 400, 413, 422, 500] {
                let body = alloc::format!("{{\"error\":{{\"message\":\"{message}\"}}}}");
                assert_eq!(check(status, &body, &[]).0, Class::Overflow, "{status} {message}");
            }
        }
        let minute = r#"{"error":{"code":"rate_limit_exceeded","message":"Request too large for m on tokens per min (TPM): Limit 30000, Requested 50000"}}"#;
        assert_eq!(check(429, minute, &[]).0, Class::Overflow, "a minute's limit never lets it through");
        assert_eq!(check(413, "<html>", &[]).0, Class::TooBig);
        assert_eq!(
            check(400, r#"{"error":{"message":"Request payload size exceeds the limit: 20971520 bytes"}}"#, &[]).0,
            Class::TooBig
        );
    }

    #[test]
    fn refusals_of_other_dialects_that_hide_behind_a_general_type() {
        let gemini = |status: &str, message: &str, reason: &str| {
            alloc::format!(
                r#"{{"error":{{"code":400,"status":"{status}","message":"{message}","details":[{{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"{reason}"}}]}}}}"#
            )
        };
        for (status, body, class) in [
            (400, gemini("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", "API_KEY_INVALID"), Class::Credential),
            (403, gemini("PERMISSION_DENIED", "billing is off", "BILLING_DISABLED"), Class::Quota),
            (
                400,
                gemini("INVALID_ARGUMENT", "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.", ""),
                Class::BadHistory,
            ),
            (400, gemini("INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts.", ""), Class::BadHistory),
            (429, gemini("RESOURCE_EXHAUSTED", "You exceeded your current quota. limit: 0, model: x", ""), Class::Quota),
            (400, r#"{"error":{"type":"invalid_request_error","code":null,"message":"No tool call found for function call output with call_id x."}}"#.into(), Class::BadHistory),
            (404, r#"{"error":{"code":"previous_response_not_found","message":"x"}}"#.into(), Class::BadHistory),
            (404, r#"{"error":{"type":"invalid_request_error","message":"Item with id 'rs_1' not found."}}"#.into(), Class::BadHistory),
            (404, r#"{"error":"model 'x' not found"}"#.into(), Class::Config),
            (400, r#"{"error":{"message":"The model `x` does not exist"}}"#.into(), Class::Config),
            (403, r#"{"error":{"message":"Key limit exceeded (monthly limit)","code":403}}"#.into(), Class::Quota),
            (500, r#"{"error":{"message":"x","code":401}}"#.into(), Class::Credential),
            (400, r#"{"error":{"message":"x","code":500}}"#.into(), Class::Request),
        ] {
            assert_eq!(check(status, &body, &[]).0, class, "{status} {body}");
        }
    }

    #[test]
    fn huge_and_deep_bodies_are_read_within_bounds() {
        let nested = |open: &str, close: &str, depth| open.repeat(depth) + "1" + &close.repeat(depth);
        for body in [
            nested("[", "]", 60),
            nested("{\"error\":", "}", 60),
            nested("{\"error\":", "}", 10_000),
            alloc::format!("{{\"error\":{{\"message\":\"{}\"}}}}", "x".repeat(1 << 20)),
            alloc::format!("{{\"error\":{{\"code\":\"{}\"}}}}", "x".repeat(1 << 20)),
        ] {
            let failure = classify(&Reply { status: 503, body: &body, headers: &[] });
            assert_eq!(failure.class, Class::Transient);
            assert!(failure.message.chars().count() <= MAX_MESSAGE && failure.kind.chars().count() <= MAX_KIND);
        }
    }
}
