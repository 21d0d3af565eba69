//! What replies of providers are classed as: the codes that they document, and anything at all.

use proptest::prelude::*;
use tenure_core::failure::{Class, Reply, classify};
use tenure_core::pace::buckets;
use tenure_core::retry::{MAX_HINT, Policy, delay};

fn class(status: u16, kind: &str, code: &str) -> Class {
    let details = if code.is_empty() { String::new() } else { format!(r#","details":{{"error_code":"{code}"}}"#) };
    let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"x"{details}}},"request_id":"r"}}"#);
    classify(&Reply { status, body: &body, headers: &[] }).class
}

#[test]
fn each_documented_type_and_code_of_anthropic_has_its_class_before_and_inside_a_stream() {
    for (status, kind, code, expected) in [
        (400, "invalid_request_error", "", Class::Request),
        (401, "authentication_error", "", Class::Credential),
        (403, "permission_error", "", Class::Credential),
        (402, "billing_error", "", Class::Quota),
        (404, "not_found_error", "", Class::Config),
        (409, "conflict_error", "", Class::Transient),
        (413, "request_too_large", "", Class::TooBig),
        (413, "invalid_request_error", "request_body_too_large_after_decoding", Class::TooBig),
        (429, "rate_limit_error", "", Class::RateLimit),
        (429, "rate_limit_error", "ramp_limit_exceeded", Class::RateLimit),
        (429, "rate_limit_error", "enforced_spend_limit_reached", Class::Quota),
        (429, "rate_limit_error", "contract_spend_limit_reached", Class::Quota),
        (500, "api_error", "", Class::Transient),
        (503, "api_error", "change_outcome_unknown", Class::Transient),
        (504, "timeout_error", "", Class::Transient),
        (529, "overloaded_error", "", Class::Transient),
        (409, "conflict_error", "thread_continue_in_flight", Class::Transient),
        (400, "invalid_request_error", "thread_already_continued", Class::Request),
        (400, "invalid_request_error", "request_body_encoding_unsupported", Class::Request),
        (400, "invalid_request_error", "compaction_signature_invalid", Class::BadHistory),
    ] {
        assert_eq!(class(status, kind, code), expected, "{status} {kind} {code}");
        // Under the 200 of an open stream the type says the same.
        assert_eq!(class(200, kind, code), expected, "200 {kind} {code}");
    }
}

/// Texts that headers of limits have, and such as look like them.
const TEXTS: &str = "-?[0-9]{1,25}(\\.[0-9]{0,9})?(ms|us|ns|s|m|h|d|m0s)?|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|\\+99:99)|(Wed|x), [0-9]{1,3} (Oct|Foo) [0-9]{1,20} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT|NaN|inf|1e400|\\PC{0,20}";

const NAMES: &str = "date|retry-after|retry-after-ms|x-should-retry|anthropic-ratelimit-(tokens|requests)-(limit|remaining|reset)|x-ratelimit-(limit|remaining|reset)-(tokens|requests)|anthropic-ratelimit-unified-reset|ratelimit-remaining|ratelimit-reset|request-id";

/// Bodies that errors have, cut and changed.
const BODIES: &str = "[{\\[\"]{0,3}(\\{\"error\":\\{\"(code|type|message|status|details|retryDelay|retry_after)\":(\"\\PC{0,30}\"|[0-9]{1,30}|null|\\[\\]|\"(insufficient_quota|overloaded_error|try again in 9{1,25}s|limit: 0)\")\\}\\}|\\PC{0,200})[}\\]\"]{0,3}";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_reply_has_a_class_a_short_message_and_a_wait_that_can_be_counted(
        status in any::<u16>(),
        body in BODIES,
        headers in proptest::collection::vec((NAMES, TEXTS), 0..6),
        failures in any::<u32>(),
        random in any::<u64>(),
    ) {
        let reply = Reply { status, body: &body, headers: &headers };
        let failure = classify(&reply);
        prop_assert!(failure.message.chars().count() <= 300 && failure.kind.chars().count() <= 100);
        prop_assert!(!failure.message.chars().any(char::is_control));
        let policy = Policy::default();
        let wait = delay(&policy, failures, failure.retry_after, random);
        prop_assert!(wait <= MAX_HINT + MAX_HINT / 4 + policy.cap, "{wait}");
        prop_assert!(wait >= failure.retry_after.unwrap_or(0).min(MAX_HINT), "{wait} {:?}", failure.retry_after);
        // The same headers on an answer.
        let _ = buckets(&Reply { status: 200, body: "", headers: &headers });
    }
}
