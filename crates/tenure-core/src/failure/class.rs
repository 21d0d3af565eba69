//! Which class an error belongs to: its type and code first, then its words, then the status.

use super::said::Said;
use super::{Class, Reply};
use alloc::string::String;

/// The class of a reply, and the word that decided it, if one did.
pub(super) fn class_of<'a>(reply: &Reply<'_>, said: &'a Said, has_hint: bool) -> (Class, Option<&'a str>) {
    let message = if said.message.is_empty() { &said.line } else { &said.message };
    let message = message.to_ascii_lowercase();
    let decided = said.words.iter().find_map(|word| Some((of_word(&plain_word(word))?, word.as_str())));
    let (class, word) = match decided {
        Some((class, word)) => (of_known(class, &message, has_hint), Some(word)),
        None => (of_status(reply, said, &message, has_hint), None),
    };
    (overridden(class, reply), word)
}

/// `x-should-retry` is the provider's own word on whether another attempt can help.
fn overridden(class: Class, reply: &Reply<'_>) -> Class {
    let told = reply.header("x-should-retry");
    let says = |word: &str| told.is_some_and(|told| told.eq_ignore_ascii_case(word));
    match class {
        Class::Transient if says("false") => Class::Request,
        Class::Request | Class::BadHistory if says("true") => Class::Transient,
        class => class,
    }
}

/// Letters and digits alone, in lower case, so that spellings do not matter.
fn plain_word(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The class of a type or code. New ones are put with what they are about; too general ones, such as
/// `invalid_request_error`, say nothing here.
fn of_word(word: &str) -> Option<Class> {
    let says = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
    let is = |words: &[&str]| words.contains(&word);
    if says(&[
        "contextlength",
        "contextwindow",
        "contextsize",
        "contextlimit",
        "maxcontext",
        "prompttoolong",
        "inputtoolong",
    ]) || is(&["toomanytokens"])
    {
        return Some(Class::Overflow);
    }
    let is_short_of_money = says(&["insufficient"]) && says(&["quota", "credit", "balance", "fund"]);
    if is_short_of_money
        || says(&[
            "quota",
            "billing",
            "spendlimit",
            "spendinglimit",
            "creditbalance",
            "outofcredit",
            "creditsexhausted",
            "paymentrequired",
            "hardlimit",
            "usagenotincluded",
            "arrear",
        ])
    {
        return Some(Class::Quota);
    }
    if says(&[
        "ratelimit",
        "throttl",
        "resourceexhausted",
        "toomanyrequests",
        "ramplimit",
        "requestlimit",
        "usagelimit",
        "concurrencylimit",
        "limitexceeded",
        "limitreached",
    ]) {
        return Some(Class::RateLimit);
    }
    if says(&["toolarge", "stringabovemaxlength"]) {
        return Some(Class::TooBig);
    }
    if says(&["signature", "previousresponse", "encryptedcontent", "duplicateitem"]) {
        return Some(Class::BadHistory);
    }
    if says(&[
        "contentfilter",
        "contentpolicy",
        "responsibleai",
        "policyviolation",
        "safety",
        "moderation",
        "prohibitedcontent",
        "promptblocked",
        "blockedprompt",
        "datainspection",
        "cyberpolicy",
    ]) {
        return Some(Class::Refused);
    }
    if says(&[
        "authentication",
        "unauthenticated",
        "unauthorized",
        "permission",
        "forbidden",
        "apikey",
        "accessdenied",
        "invalidtoken",
        "tokenexpired",
        "expiredtoken",
        "credential",
        "unrecognizedclient",
        "accountdeactivated",
        "suspended",
        "servicedisabled",
    ]) {
        return Some(Class::Credential);
    }
    if says(&[
        "notfound",
        "unknownmodel",
        "invalidmodel",
        "unsupportedmodel",
        "modelnot",
        "nosuchmodel",
        "retired",
        "deprecat",
        "methodnotallowed",
    ]) && !says(&["notready"])
    {
        return Some(Class::Config);
    }
    let is_transient = says(&[
        "overload",
        "unavailable",
        "internal",
        "servererror",
        "apiconnection",
        "timeout",
        "timedout",
        "deadline",
        "gateway",
        "upstream",
        "conflict",
        "aborted",
        "connection",
        "inflight",
        "outcomeunknown",
        "capacity",
        "notready",
        "loading",
        "busy",
        "slowdown",
        "cancelled",
        "canceled",
    ]) || is(&["apierror", "unknown", "unknownerror", "dataloss", "providererror"]);
    is_transient.then_some(Class::Transient)
}

/// Words in the message that are more exact than a known type.
fn of_known(class: Class, message: &str, has_hint: bool) -> Class {
    match class {
        // A request that is larger than the limit of a minute never fits; waiting does not help.
        Class::RateLimit if says_too_large_for_minute(message) => Class::Overflow,
        Class::RateLimit if !has_hint && says_money(message) => Class::Quota,
        Class::RateLimit if says_none_allowed(message) => Class::Quota,
        Class::Transient | Class::TooBig if says_overflow(message) => Class::Overflow,
        class => class,
    }
}

/// The class that follows from the status, where no type says more.
fn of_status(reply: &Reply<'_>, said: &Said, message: &str, has_hint: bool) -> Class {
    // Inside a stream the status is always 200, and gateways answer 500 to all that their upstream
    // refuses; the upstream's own status stands in the error then.
    let is_vague = reply.status < 300 || reply.status >= 500;
    let status = said.status.filter(|_| is_vague).unwrap_or(reply.status);
    if says_overflow(message) && status != 429 {
        return Class::Overflow;
    }
    match status {
        401 => Class::Credential,
        402 => Class::Quota,
        403 if says_money(message) => Class::Quota,
        403 => Class::Credential,
        404 | 405 | 407 | 410 => {
            of_message(message).filter(|class| *class == Class::BadHistory).unwrap_or(Class::Config)
        }
        413 => Class::TooBig,
        429 if says_too_large_for_minute(message) => Class::Overflow,
        429 if says_none_allowed(message) || (!has_hint && says_money(message)) => Class::Quota,
        429 => Class::RateLimit,
        // 425: too early; 424, 499: the upstream of a gateway failed or was given up.
        408 | 409 | 421 | 423 | 424 | 425 | 499 => Class::Transient,
        // Redirects are not followed: the address is wrong.
        300..=399 => Class::Config,
        400..=499 => of_message(message).unwrap_or(Class::Request),
        // An error inside a stream, or a page of a proxy.
        0..=299 if said.words.iter().any(|word| is_request_word(&plain_word(word))) => {
            of_message(message).unwrap_or(Class::Request)
        }
        0..=299 => of_message(message).unwrap_or(Class::Transient),
        500.. => Class::Transient,
    }
}

/// Types that say that the request is wrong, and not what about it.
fn is_request_word(word: &str) -> bool {
    ["invalidrequest", "invalidargument", "badrequest", "validation", "unprocessable", "invalidprompt"]
        .iter()
        .any(|part| word.contains(part))
}

/// What a refused request says in words, where providers have no type of their own for it.
fn of_message(message: &str) -> Option<Class> {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says_overflow(message) {
        return Some(Class::Overflow);
    }
    if says(&[
        "request payload size exceeds",
        "image exceeds",
        "entity too large",
        "request too large",
        "too many images",
    ]) {
        return Some(Class::TooBig);
    }
    if says(&[
        "tool_use",
        "tool_result",
        "tool_call",
        "tool call",
        "tool output",
        "function call turn",
        "function response",
        "function_call",
        "signature",
        "roles must alternate",
        "thinking block",
        "'reasoning' item",
        "item with id",
        "previous response",
        "content blocks must be non-empty",
        "encrypted content",
        "duplicate item",
    ]) {
        return Some(Class::BadHistory);
    }
    if says_money(message) {
        return Some(Class::Quota);
    }
    if says(&["api key", "api_key", "unauthorized", "authentication"]) {
        return Some(Class::Credential);
    }
    if message.contains("model") && says(&["does not exist", "not found", "not supported", "unknown model", "retired"])
    {
        return Some(Class::Config);
    }
    if says(&["rate limit", "too many requests"]) {
        return Some(Class::RateLimit);
    }
    None
}

/// The prompt is longer than the context, in the words of many servers.
fn says_overflow(message: &str) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let exceeds = says(&["exceed", "too long", "too large", "longer than", "larger than", "overflow"]);
    says(&[
        "prompt is too long",
        "input is too long",
        "maximum context",
        "maximum prompt length",
        "context length exceeded",
        "context_length_exceeded",
        "reduce the length of the messages",
        "reduce the length of the input",
        // What is left of a prompt that a server cut at the front.
        "no user query found in messages",
        "inputs tokens + max_new_tokens",
        "model token limit",
    ]) || (exceeds && says(&["context length", "context window", "context size", "context limit"]))
        || (exceeds
            && says(&["input token count", "prompt token count", "input tokens", "prompt tokens", "too many tokens"]))
}

/// The account has nothing left, in words.
fn says_money(message: &str) -> bool {
    [
        "credit balance",
        "spend limit",
        "spending limit",
        "usage limits",
        "billing",
        "insufficient credit",
        "insufficient balance",
        "insufficient fund",
        "insufficient quota",
        "out of credit",
        "payment required",
        "key limit exceeded",
        "current quota",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// A limit of zero: nothing of this kind is allowed, now or later.
fn says_none_allowed(message: &str) -> bool {
    message.split("limit: 0").skip(1).any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// More tokens in one request than a minute allows.
fn says_too_large_for_minute(message: &str) -> bool {
    message.contains("request too large") && message.contains("tokens per min")
}
