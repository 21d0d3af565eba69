//! The client against a server that sends exactly these bytes over a real socket.

use crate::given::{ALL, ANTHROPIC, Given, OPENAI, RESPONSES, anthropic, context, openai, prompt, said};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::Answer;
use tenure_core::failure::{Class, Failure};
use tenure_model::script::{Piece, ScriptReply, ScriptServer};
use tenure_model::{DialectName, Models, ProviderConfig, Providers, StreamEvent};

const KEY: &str = "sk-test-0123456789";

async fn server(reply: ScriptReply) -> ScriptServer {
    ScriptServer::start(Arc::new(move |_| reply.clone())).await.unwrap()
}

/// A file with the key; it lives as long as the value.
fn key_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{KEY}").unwrap();
    file
}

struct Outcome {
    events: Vec<StreamEvent>,
    end: Result<Answer, Failure>,
}

async fn call_with(config: ProviderConfig) -> Outcome {
    let providers = Providers::new(BTreeMap::from([("p".to_owned(), config)]), None).unwrap();
    let resolved = providers.resolve("p/m").unwrap();
    let mut events = Vec::new();
    let end = resolved.model.call(&prompt(vec![said("hi")]), &context(1), &mut |event| events.push(event)).await;
    Outcome { events, end }
}

fn config(dialect: DialectName, server: &ScriptServer) -> ProviderConfig {
    ProviderConfig { base_url: Some(server.base_url()), ..ProviderConfig::new(dialect) }
}

/// One call of a model behind a server that gives this reply.
async fn call(dialect: DialectName, reply: ScriptReply) -> Outcome {
    let (server, key) = (server(reply).await, key_file());
    call_with(ProviderConfig { api_key_file: Some(key.path().to_owned()), ..config(dialect, &server) }).await
}

fn pieces(text: &str, size: usize) -> Vec<Piece> {
    text.as_bytes().chunks(size).map(|chunk| Piece::Bytes(chunk.to_vec())).collect()
}

/// A stream in the dialect's own type.
fn stream(given: &Given, body: Vec<Piece>) -> ScriptReply {
    let headers = vec![("content-type".to_owned(), given.content_type().to_owned())];
    ScriptReply { status: 200, headers, body }
}

#[tokio::test]
async fn every_dialect_answers_over_a_socket_whatever_the_chunks() {
    for given in ALL {
        for size in [3, 64, 10_000] {
            let reply = stream(&given, pieces(given.stream, size)).with_header("request-id", "req_9");
            let outcome = call(given.dialect, reply).await;
            assert_eq!(outcome.events[0], StreamEvent::Started { request_id: Some("req_9".into()) });
            let expected = Answer { request_id: Some("req_9".into()), ..given.answer() };
            assert_eq!(outcome.end.unwrap(), expected, "{} {size}", given.dialect);
        }
    }
}

#[tokio::test]
async fn the_key_is_sent_in_the_dialects_header_and_nowhere_else() {
    let key = key_file();
    for dialect in ALL.map(|given| given.dialect) {
        let (name, value) = match dialect {
            DialectName::Anthropic => ("x-api-key", KEY.to_owned()),
            DialectName::Gemini => ("x-goog-api-key", KEY.to_owned()),
            DialectName::OpenAi | DialectName::Responses | DialectName::Ollama | DialectName::Script => {
                ("authorization", format!("Bearer {KEY}"))
            }
        };
        let server = server(ScriptReply::stream(pieces("", 1))).await;
        let _ =
            call_with(ProviderConfig { api_key_file: Some(key.path().to_owned()), ..config(dialect, &server) }).await;
        let requests = server.requests();
        let carrying: Vec<&(String, String)> =
            requests[0].headers.iter().filter(|(_, value)| value.contains(KEY)).collect();
        assert_eq!(carrying, [&(name.to_owned(), value)]);
        assert!(!String::from_utf8_lossy(&requests[0].body).contains(KEY) && !requests[0].path.contains(KEY));
    }
}

#[tokio::test]
async fn requests_go_to_the_path_of_their_dialect_and_name_the_version_that_they_are_written_for() {
    for (dialect, path) in [
        (DialectName::Anthropic, "/v1/messages"),
        (DialectName::OpenAi, "/v1/chat/completions"),
        (DialectName::Responses, "/v1/responses"),
        (DialectName::Gemini, "/v1beta/models/m:streamGenerateContent"),
        (DialectName::Ollama, "/api/chat"),
    ] {
        let server = server(ScriptReply::stream(pieces("", 1))).await;
        let _ = call_with(config(dialect, &server)).await;
        let request = &server.requests()[0];
        assert_eq!(request.path, path, "{dialect}");
        let version = request.headers.iter().find(|(name, _)| name == "anthropic-version");
        let expected = (dialect == DialectName::Anthropic).then_some("2023-06-01");
        assert_eq!(version.map(|(_, value)| value.as_str()), expected, "{dialect}");
        let idempotency = request.headers.iter().any(|(name, _)| name.contains("idempotency"));
        assert!(!idempotency, "no provider promises to honour it: what must not be paid twice is ours to remember");
    }
}

/// An error of the given kind in the dialect's own words, as it comes inside a stream.
fn overloaded(dialect: DialectName) -> &'static str {
    match dialect {
        DialectName::Anthropic => {
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":\"req_1\"}\n\n"
        }
        DialectName::OpenAi => {
            "data: {\"error\":{\"message\":\"Overloaded\",\"type\":\"server_error\",\"code\":null}}\n\n"
        }
        DialectName::Responses => {
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"Overloaded\"}}}\n\n"
        }
        // Raw, as it comes from there: no `data:` before it, on several lines.
        DialectName::Gemini => {
            "{\r\n  \"error\": {\r\n    \"code\": 503,\r\n    \"message\": \"Overloaded\",\r\n    \"status\": \"UNAVAILABLE\"\r\n  }\r\n}\r\n"
        }
        DialectName::Ollama | DialectName::Script => "{\"error\":\"Overloaded\"}\n",
    }
}

#[tokio::test]
async fn o_001_an_error_inside_a_200_stream_is_classified_by_its_type_in_every_dialect() {
    for given in ALL {
        for end in [Vec::new(), vec![Piece::Break], vec![Piece::Forever]] {
            // After the error nothing is waited for, except where its end is that of the stream.
            if given.dialect == DialectName::Gemini && !end.is_empty() {
                continue;
            }
            let body = [pieces(given.before_call(), 7), pieces(overloaded(given.dialect), 5), end].concat();
            let outcome = call(given.dialect, stream(&given, body)).await;
            let failure = outcome.end.unwrap_err();
            assert_eq!((failure.class, failure.status), (Class::Transient, Some(200)), "{}", given.dialect);
            assert_eq!(failure.message, "Overloaded", "{}", given.dialect);
            assert!(outcome.events.len() > 1, "{} showed a preview before", given.dialect);
        }
    }
}

#[tokio::test]
async fn o_002_an_error_as_the_very_first_event_is_the_same_as_before_the_stream() {
    for given in ALL {
        let outcome = call(given.dialect, stream(&given, pieces(overloaded(given.dialect), 11))).await;
        assert_eq!(outcome.end.unwrap_err().class, Class::Transient, "{}", given.dialect);
        assert_eq!(outcome.events, [StreamEvent::Started { request_id: None }], "{} showed nothing", given.dialect);
    }
}

#[tokio::test]
async fn an_error_as_json_under_the_headers_of_a_stream_is_read_in_every_dialect() {
    for given in ALL {
        let body = "{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"no credit\"}}";
        for body in [body.to_owned(), format!("[{body}]")] {
            let failure = call(given.dialect, stream(&given, pieces(&body, 9))).await.end.unwrap_err();
            assert_eq!((failure.class, failure.message.as_str()), (Class::Quota, "no credit"), "{}", given.dialect);
        }
    }
}

#[tokio::test]
async fn o_088_a_key_that_the_provider_quotes_is_masked() {
    let body = format!(r#"{{"error":{{"type":"authentication_error","message":"bad key {KEY}"}}}}"#);
    let failure =
        call(DialectName::Anthropic, ScriptReply::whole(401, "application/json", body)).await.end.unwrap_err();
    assert_eq!((failure.class, failure.message.as_str()), (Class::Credential, "bad key [redacted]"));
}

#[tokio::test]
async fn a_missing_key_is_a_failure_of_the_credential_that_names_its_place() {
    let server = server(ScriptReply::stream(pieces(ANTHROPIC, 100))).await;
    let missing = ProviderConfig {
        api_key_env: Some("TENURE_TEST_NO_SUCH_KEY".into()),
        ..config(DialectName::Anthropic, &server)
    };
    let failure = call_with(missing).await.end.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Credential, "missing_key"));
    assert!(failure.message.contains("TENURE_TEST_NO_SUCH_KEY"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_key_that_changes_is_used_by_the_next_call() {
    let server = server(ScriptReply::stream(pieces(ANTHROPIC, 100))).await;
    let key = key_file();
    let config =
        ProviderConfig { api_key_file: Some(key.path().to_owned()), ..config(DialectName::Anthropic, &server) };
    let providers = Providers::new(BTreeMap::from([("p".to_owned(), config)]), None).unwrap();
    let model = providers.resolve("p/m").unwrap().model;
    for expected in [KEY, "another-key"] {
        std::fs::write(key.path(), expected).unwrap();
        model.call(&prompt(vec![said("hi")]), &context(1), &mut |_| {}).await.unwrap();
        let sent = server.requests().pop().unwrap();
        assert!(sent.headers.contains(&("x-api-key".to_owned(), expected.to_owned())));
    }
}

#[tokio::test]
async fn o_003_a_connection_that_ends_or_breaks_inside_a_tool_call_is_incomplete() {
    for given in ALL {
        for end in [Vec::new(), vec![Piece::Break]] {
            let body = [pieces(given.cut_in_call(), 100), end].concat();
            let failure = call(given.dialect, stream(&given, body)).await.end.unwrap_err();
            assert_eq!(failure.class, Class::Incomplete, "{}", given.dialect);
        }
    }
}

#[tokio::test]
async fn o_004_the_end_of_the_connection_is_no_end_of_the_answer() {
    for given in ALL {
        // Whole events, and none of them the terminal marker.
        let before = &given.stream[..given.stream.find(given.marker).unwrap()];
        let events = before.rfind('\n').map_or("", |end| &before[..=end]);
        let failure = call(given.dialect, stream(&given, pieces(events, 50))).await.end.unwrap_err();
        assert_eq!(failure.class, Class::Incomplete, "{}", given.dialect);
    }
    let cut = OPENAI.find("data: [DONE]").unwrap();
    assert_eq!(call(DialectName::OpenAi, ScriptReply::stream(pieces(&OPENAI[..cut], 50))).await.end, openai(OPENAI));
}

#[tokio::test]
async fn o_009_carriage_returns_cut_by_the_network_change_nothing() {
    for given in ALL {
        let text = given.stream.replace("\r\n", "\n").replace('\n', "\r\n");
        // The chunk ends between CR and LF.
        let body = text.split_inclusive('\r').map(|piece| Piece::Bytes(piece.as_bytes().to_vec())).collect();
        assert_eq!(call(given.dialect, stream(&given, body)).await.end.unwrap(), given.answer(), "{}", given.dialect);
    }
}

#[tokio::test]
async fn o_010_characters_cut_by_the_network_are_whole() {
    for given in ALL {
        let body = given.stream.as_bytes().chunks(1).map(|byte| Piece::Bytes(byte.to_vec())).collect();
        let answer = call(given.dialect, stream(&given, body)).await.end.unwrap();
        assert_eq!(answer, given.answer(), "{}", given.dialect);
        assert!(!format!("{answer:?}").contains('\u{fffd}'));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_marker_does_not_matter() {
    let cut = OPENAI.find("data: [DONE]").unwrap();
    let body = [pieces(&OPENAI[..cut], 100), vec![Piece::Break]].concat();
    assert_eq!(call(DialectName::OpenAi, ScriptReply::stream(body)).await.end, openai(OPENAI));
    // Nothing is waited for once the marker is there.
    let body = [pieces(ANTHROPIC, 100), vec![Piece::Forever]].concat();
    assert_eq!(call(DialectName::Anthropic, ScriptReply::stream(body)).await.end, anthropic(ANTHROPIC));
}

#[tokio::test]
async fn o_005_a_429_without_credit_is_quota_and_is_asked_once() {
    let body = r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"no credit"}}"#;
    let server = server(ScriptReply::whole(429, "application/json", body)).await;
    let failure = call_with(config(DialectName::OpenAi, &server)).await.end.unwrap_err();
    assert_eq!((failure.class, failure.status), (Class::Quota, Some(429)));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn o_006_hints_and_request_ids_of_an_error_reply_are_kept() {
    let reply = ScriptReply::whole(
        429,
        "application/json",
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
    )
    .with_header("date", "Wed, 21 Oct 2026 07:27:30 GMT")
    .with_header("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")
    .with_header("request-id", "req_7");
    let failure = call(DialectName::Anthropic, reply).await.end.unwrap_err();
    let expected = Failure {
        class: Class::RateLimit,
        status: Some(429),
        kind: "rate_limit_error".into(),
        message: "slow down".into(),
        retry_after: Some(30_000),
        request_id: Some("req_7".into()),
    };
    assert_eq!(failure, expected);
}

#[tokio::test]
async fn o_007_the_latest_reset_of_a_used_up_bucket_is_the_wait() {
    let reply = ScriptReply::whole(429, "application/json", r#"{"type":"error","error":{"type":"rate_limit_error"}}"#)
        .with_header("date", "Mon, 30 Nov 2026 02:30:50 GMT")
        .with_header("anthropic-ratelimit-input-tokens-remaining", "0")
        .with_header("anthropic-ratelimit-input-tokens-reset", "2026-11-30T02:31:10Z")
        .with_header("anthropic-ratelimit-output-tokens-remaining", "0")
        .with_header("anthropic-ratelimit-output-tokens-reset", "2026-11-30T02:30:55Z")
        .with_header("anthropic-ratelimit-requests-remaining", "7")
        .with_header("anthropic-ratelimit-requests-reset", "2026-11-30T04:00:00Z");
    let failure = call(DialectName::Anthropic, reply).await.end.unwrap_err();
    assert_eq!((failure.class, failure.retry_after), (Class::RateLimit, Some(20_000)));
}

#[tokio::test]
async fn o_008_a_retry_delay_in_the_body_is_the_wait() {
    let info = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"38s"}]}}"#;
    for (body, wait) in
        [(info.to_owned(), 38_000), (format!("[{info}]"), 38_000), (info.replace("38s", "36.429760048s"), 36_429)]
    {
        let reply = ScriptReply::whole(429, "application/json", body.clone());
        let failure = call(DialectName::Gemini, reply).await.end.unwrap_err();
        assert_eq!((failure.class, failure.retry_after), (Class::RateLimit, Some(wait)), "{body}");
        // The same inside a stream that is open already.
        let reply = ScriptReply::stream(pieces(&format!("data: {body}\r\n\r\n"), 20));
        assert_eq!(call(DialectName::Gemini, reply).await.end.unwrap_err().retry_after, Some(wait), "{body}");
    }
}

#[tokio::test]
async fn o_017_an_answer_with_a_call_that_the_provider_could_not_read_is_a_failed_attempt() {
    let chunk = |parts: &str, reason: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":{parts}}},\"finishReason\":\"{reason}\",\"finishMessage\":\"Malformed function call: f(\",\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":9}}}}\r\n\r\n"
        )
    };
    let call_part = r#"[{"functionCall":{"name":"bash","args":{}}}]"#;
    for (parts, reason) in [
        ("[]", "MALFORMED_FUNCTION_CALL"),
        (call_part, "MALFORMED_FUNCTION_CALL"),
        (call_part, "UNEXPECTED_TOOL_CALL"),
        (call_part, "TOO_MANY_TOOL_CALLS"),
        ("[]", "MALFORMED_RESPONSE"),
        (call_part, "INVALID_FUNCTION_CALL"),
    ] {
        let reply = ScriptReply::stream(pieces(&chunk(parts, reason), 30));
        let failure = call(DialectName::Gemini, reply).await.end.unwrap_err();
        assert_eq!((failure.class, failure.kind.as_str()), (Class::Malformed, reason));
        assert!(failure.message.contains("Malformed function call: f("), "{}", failure.message);
    }
    let hidden = "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\",\"native_finish_reason\":\"MALFORMED_FUNCTION_CALL\"}]}\n\ndata: [DONE]\n\n";
    let failure = call(DialectName::OpenAi, ScriptReply::stream(pieces(hidden, 30))).await.end.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Malformed, "MALFORMED_FUNCTION_CALL"));
}

#[tokio::test]
async fn o_018_pages_of_proxies_are_transient_and_never_shown() {
    for dialect in ALL.map(|given| given.dialect) {
        for reply in [
            ScriptReply::whole(524, "text/plain", ""),
            ScriptReply::whole(520, "text/html", "<html>web server is returning an unknown error</html>"),
            ScriptReply::whole(521, "text/html; charset=utf-8", "<!doctype html><title>521</title>"),
            ScriptReply::whole(530, "text/html", "error code: 1016"),
            ScriptReply::whole(502, "application/json", "<html>"),
            ScriptReply::whole(408, "text/html", "<html>"),
            ScriptReply::whole(425, "text/plain", ""),
            ScriptReply::whole(200, "text/html", "<!DOCTYPE html>"),
            ScriptReply::whole(200, "application/json", "upstream error"),
            ScriptReply::whole(200, "application/json", "{\"status\":\"ok\"}"),
        ] {
            let status = reply.status;
            let failure = call(dialect, reply.with_header("cf-ray", "ray-1")).await.end.unwrap_err();
            assert_eq!((failure.class, failure.status), (Class::Transient, Some(status)), "{dialect}");
            assert_eq!(failure.request_id.as_deref(), Some("ray-1"), "what support will ask for");
            let shows_page = ["html", "upstream error", "1016"].iter().any(|part| failure.message.contains(part));
            assert!(!shows_page, "{}", failure.message);
        }
    }
}

#[tokio::test]
async fn o_021_a_retired_model_is_a_matter_of_the_configuration() {
    for (dialect, status, body) in [
        (
            DialectName::Anthropic,
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: old-1"}}"#,
        ),
        (
            DialectName::OpenAi,
            404,
            r#"{"error":{"code":"model_not_found","message":"no such model","type":"invalid_request_error"}}"#,
        ),
        (DialectName::Responses, 400, r#"{"error":{"code":"model_not_found","message":"no such model"}}"#),
        (
            DialectName::Gemini,
            404,
            r#"{"error":{"code":404,"message":"models/old-1 is not found","status":"NOT_FOUND"}}"#,
        ),
        (DialectName::Ollama, 404, r#"{"error":"model 'old-1' not found"}"#),
        (DialectName::Ollama, 410, "gone"),
        // A status without words, and words without a status.
        (DialectName::OpenAi, 404, "<html>"),
        (DialectName::Anthropic, 400, r#"{"type":"error","error":{"type":"not_found_error","message":"old-1"}}"#),
    ] {
        let failure = call(dialect, ScriptReply::whole(status, "application/json", body)).await.end.unwrap_err();
        assert_eq!(failure.class, Class::Config, "{dialect} {status}");
    }
}

#[tokio::test]
async fn o_019_and_o_020_too_long_and_too_big_are_told_apart_in_every_dialect() {
    for (dialect, status, body, class) in [
        (
            DialectName::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            Class::Overflow,
        ),
        (DialectName::OpenAi, 400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, Class::Overflow),
        (
            DialectName::Gemini,
            400,
            r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}"#,
            Class::Overflow,
        ),
        (DialectName::Ollama, 500, r#"{"error":"no user query found in messages"}"#, Class::Overflow),
        (DialectName::Anthropic, 413, "<html>413 Request Entity Too Large</html>", Class::TooBig),
        (DialectName::Gemini, 413, "", Class::TooBig),
        (
            DialectName::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"request_too_large","message":"x"}}"#,
            Class::TooBig,
        ),
        (
            DialectName::Anthropic,
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            Class::TooBig,
        ),
    ] {
        let failure = call(dialect, ScriptReply::whole(status, "text/html", body)).await.end.unwrap_err();
        assert_eq!(failure.class, class, "{dialect} {status} {body}");
    }
    let failed = RESPONSES.replace(
        "\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\"",
        "\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"Your input exceeds the context window of this model.\"},\"status\":\"failed\"",
    );
    let failure = call(DialectName::Responses, ScriptReply::stream(pieces(&failed, 60))).await.end.unwrap_err();
    assert_eq!(failure.class, Class::Overflow);
}

#[tokio::test]
async fn o_022_a_refused_key_is_a_matter_of_the_credential_in_every_dialect() {
    for (dialect, status, body) in [
        (
            DialectName::Anthropic,
            401,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        ),
        (DialectName::OpenAi, 401, r#"{"error":{"code":"invalid_api_key","message":"Incorrect API key"}}"#),
        (DialectName::Responses, 403, "<html>"),
        (
            DialectName::Gemini,
            400,
            r#"{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
        ),
        (DialectName::Ollama, 401, r#"{"error":"unauthorized"}"#),
        (DialectName::Gemini, 400, r#"{"error":{"code":400,"message":"x","details":[{"reason":"API_KEY_INVALID"}]}}"#),
    ] {
        let failure = call(dialect, ScriptReply::whole(status, "application/json", body)).await.end.unwrap_err();
        assert_eq!(failure.class, Class::Credential, "{dialect}");
    }
}

#[tokio::test]
async fn o_023_one_call_is_one_request_whatever_is_answered() {
    for dialect in ALL.map(|given| given.dialect) {
        for status in [429, 500, 503, 529] {
            let server = server(ScriptReply::whole(status, "application/json", "{}")).await;
            assert!(call_with(config(dialect, &server)).await.end.is_err());
            assert_eq!(server.requests().len(), 1, "{dialect} {status}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = server(ScriptReply::stream(pieces(ANTHROPIC, 100))).await;
    let reply = ScriptReply::whole(307, "text/plain", "").with_header("location", &target.base_url());
    let failure = call(DialectName::Anthropic, reply).await.end.unwrap_err();
    assert_eq!(failure.class, Class::Config);
    assert!(target.requests().is_empty());
}

/// A limit that passes at once, and one that does not pass in a test.
const SHORT: Option<Duration> = Some(Duration::from_millis(30));

#[tokio::test]
async fn silence_ends_the_attempt_at_its_limit_in_every_dialect() {
    for given in ALL {
        let body = [pieces(given.cut_in_call(), 100), vec![Piece::Forever]].concat();
        let server = server(stream(&given, body)).await;
        let mut config = config(given.dialect, &server);
        config.timeouts.idle = SHORT;
        let failure = call_with(config.clone()).await.end.unwrap_err();
        assert_eq!((failure.class, failure.kind.as_str()), (Class::Incomplete, "idle_timeout"));
        config.timeouts.idle = None;
        config.timeouts.total = SHORT;
        assert_eq!(call_with(config).await.end.unwrap_err().kind, "total_timeout");
    }
}

/// Signs of life without end.
fn pings(dialect: DialectName) -> &'static str {
    match dialect {
        DialectName::Anthropic => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        DialectName::OpenAi => ": PROCESSING\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n",
        DialectName::Responses => "event: response.in_progress\ndata: {\"type\":\"response.in_progress\"}\n\n",
        DialectName::Gemini => "data: {}\r\n\r\n",
        DialectName::Ollama | DialectName::Script => "\n{\"message\":{\"content\":\"\"},\"done\":false}\n",
    }
}

#[tokio::test]
async fn ollama_is_always_told_which_context_to_use_and_requests_are_planned_by_the_same() {
    let given = ALL.iter().find(|given| given.dialect == DialectName::Ollama).unwrap();
    let server = server(stream(given, pieces(given.stream, 1_000))).await;
    let window = |change: &dyn Fn(&mut ProviderConfig)| {
        let mut config = config(given.dialect, &server);
        change(&mut config);
        let facts = config.facts("m");
        assert!(facts.cuts_silently);
        (config, facts.context_window)
    };
    let options =
        |number: u64| serde_json::Map::from_iter([("options".to_owned(), serde_json::json!({"num_ctx": number}))]);
    for (config, planned) in [
        window(&|_| {}),
        window(&|config| config.context_window = Some(9_000)),
        window(&|config| config.context_windows = BTreeMap::from([("m".to_owned(), 8_000)])),
        window(&|config| (config.context_window, config.extra_body) = (Some(9_000), options(7_000))),
    ] {
        assert_eq!(call_with(config).await.end.unwrap(), given.answer());
        let body: serde_json::Value = serde_json::from_slice(&server.requests().last().unwrap().body).unwrap();
        assert_eq!(body["options"]["num_ctx"].as_u64(), planned, "{body}");
        assert_eq!(body["options"]["num_predict"], 100);
    }
    assert_eq!(server.requests().len(), 4);
    let remote = ProviderConfig::new(DialectName::OpenAi).facts("m");
    assert_eq!((remote.context_window, remote.cuts_silently), (None, false));
}

#[tokio::test]
async fn pings_are_signs_of_life_but_no_progress() {
    for given in ALL {
        let ping = [Piece::Wait(Duration::from_millis(3)), Piece::Bytes(pings(given.dialect).into())];
        let begun = pieces(given.before_call(), 1_000);
        let body = [begun, std::iter::repeat_n(ping, 2_000).flatten().collect()].concat();
        let server = server(stream(&given, body)).await;
        let mut config = config(given.dialect, &server);
        // Nothing is ever silent for so long, and still the attempt ends.
        config.timeouts.idle = Some(Duration::from_secs(20));
        config.timeouts.progress = Some(Duration::from_millis(100));
        let failure = call_with(config).await.end.unwrap_err();
        let expected = (Class::Incomplete, "progress_timeout");
        assert_eq!((failure.class, failure.kind.as_str()), expected, "{}: {}", given.dialect, failure.message);
    }
}

#[tokio::test]
async fn a_server_that_sends_its_headers_first_may_take_the_time_of_the_first_byte() {
    let given = &ALL[4];
    let late = [vec![Piece::Wait(Duration::from_millis(120))], pieces(given.stream, 100)].concat();
    let server = server(stream(given, late)).await;
    let mut config = config(given.dialect, &server);
    config.timeouts.idle = Some(Duration::from_millis(60));
    assert_eq!(call_with(config.clone()).await.end.unwrap(), given.answer());
    config.timeouts.first_byte = SHORT;
    let failure = call_with(config.clone()).await.end.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Transient, "first_byte_timeout"));
    // A model of its own may be slower than the provider's others.
    config.model_timeouts = BTreeMap::from([(
        "m".to_owned(),
        tenure_model::TimeoutsConfig { first_byte: Some(Duration::from_secs(20)), ..Default::default() },
    )]);
    assert_eq!(call_with(config).await.end.unwrap(), given.answer());
}

#[tokio::test]
async fn silence_before_the_first_byte_has_its_own_limit() {
    // A listener that takes the connection and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = ProviderConfig::new(DialectName::OpenAi);
    config.base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
    config.timeouts.first_byte = SHORT;
    let failure = call_with(config).await.end.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Transient, "first_byte_timeout"));
}

#[tokio::test]
async fn nobody_there_is_transient() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config =
        ProviderConfig { base_url: Some(format!("http://{address}")), ..ProviderConfig::new(DialectName::OpenAi) };
    let failure = call_with(config).await.end.unwrap_err();
    assert_eq!(failure.class, Class::Transient);
    assert!(failure.message.contains("cannot be reached"), "{}", failure.message);
}

#[test]
fn names_of_models_lead_to_providers() {
    let mut openai = ProviderConfig::new(DialectName::OpenAi);
    openai.models.push("org/llama".to_owned());
    let configs = BTreeMap::from([
        ("anthropic".to_owned(), ProviderConfig::new(DialectName::Anthropic)),
        ("local".to_owned(), openai),
    ]);
    let providers = Providers::new(configs, Some("local/big".into())).unwrap();
    for (name, expected) in [
        ("anthropic/claude-x", Ok("anthropic/claude-x")),
        ("local/a/b", Ok("local/a/b")),
        ("claude-x", Ok("anthropic/claude-x")),
        ("org/llama", Ok("local/org/llama")),
        ("default", Ok("local/big")),
        ("", Ok("local/big")),
        ("script/echo", Ok("script/echo")),
        ("script/none", Err("scenario_not_found")),
        ("nobody/x", Err("model_unknown")),
        ("x", Err("model_unknown")),
    ] {
        let resolved = providers.resolve(name);
        let found = resolved.as_ref().map(|resolved| resolved.full_name.as_str()).map_err(|problem| problem.code);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn providers_that_cannot_work_are_refused_with_a_hint() {
    let with = |base_url: &str| ProviderConfig {
        base_url: Some(base_url.to_owned()),
        ..ProviderConfig::new(DialectName::OpenAi)
    };
    for (name, config) in [("a/b", with("http://h")), ("a", with("localhost:1")), ("a", with("ftp://h"))] {
        let problem = Providers::new(BTreeMap::from([(name.to_owned(), config)]), None).unwrap_err();
        assert_eq!(problem.code, "provider_invalid");
        assert!(!problem.hint.is_empty());
    }
}
