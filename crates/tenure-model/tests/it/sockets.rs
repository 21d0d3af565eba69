//! The client against a server that sends exactly these bytes over a real socket.

use crate::given::{ANTHROPIC, OPENAI, anthropic, context, openai, prompt, said};
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

#[tokio::test]
async fn both_dialects_answer_over_a_socket_whatever_the_chunks() {
    for (dialect, text, expected) in
        [(DialectName::Anthropic, ANTHROPIC, anthropic(ANTHROPIC)), (DialectName::OpenAi, OPENAI, openai(OPENAI))]
    {
        for size in [3, 64, 10_000] {
            let reply = ScriptReply::stream(pieces(text, size)).with_header("request-id", "req_9");
            let outcome = call(dialect, reply).await;
            assert_eq!(outcome.events[0], StreamEvent::Started { request_id: Some("req_9".into()) });
            let expected = Answer { request_id: Some("req_9".into()), ..expected.clone().unwrap() };
            assert_eq!(outcome.end.unwrap(), expected, "{dialect} {size}");
        }
    }
}

#[tokio::test]
async fn the_key_is_sent_in_the_dialects_header_and_nowhere_else() {
    let key = key_file();
    for (dialect, name, value) in [
        (DialectName::Anthropic, "x-api-key", KEY.to_owned()),
        (DialectName::OpenAi, "authorization", format!("Bearer {KEY}")),
    ] {
        let server = server(ScriptReply::stream(pieces("", 1))).await;
        let _ =
            call_with(ProviderConfig { api_key_file: Some(key.path().to_owned()), ..config(dialect, &server) }).await;
        let requests = server.requests();
        let carrying: Vec<&(String, String)> =
            requests[0].headers.iter().filter(|(_, value)| value.contains(KEY)).collect();
        assert_eq!(carrying, [&(name.to_owned(), value)]);
        assert!(!String::from_utf8_lossy(&requests[0].body).contains(KEY));
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
    let cut = ANTHROPIC.find("\\\"ls\\\"").unwrap();
    for end in [Vec::new(), vec![Piece::Break]] {
        let body = [pieces(&ANTHROPIC[..cut], 100), end].concat();
        let outcome = call(DialectName::Anthropic, ScriptReply::stream(body)).await;
        assert_eq!(outcome.end.unwrap_err().class, Class::Incomplete);
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
async fn o_018_pages_of_proxies_are_transient_and_never_shown() {
    for reply in [
        ScriptReply::whole(524, "text/plain", ""),
        ScriptReply::whole(520, "text/html", "<html>web server is returning an unknown error</html>"),
        ScriptReply::whole(200, "text/html", "<!DOCTYPE html>"),
        ScriptReply::whole(200, "application/json", "upstream error"),
    ] {
        let status = reply.status;
        let failure = call(DialectName::OpenAi, reply).await.end.unwrap_err();
        assert_eq!((failure.class, failure.status), (Class::Transient, Some(status)));
        assert!(
            !failure.message.contains("html") && !failure.message.contains("upstream error"),
            "{}",
            failure.message
        );
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

#[tokio::test]
async fn silence_ends_the_attempt_at_its_limit() {
    let short = Duration::from_millis(30);
    let key = key_file();
    let body = [pieces(&ANTHROPIC[..600], 100), vec![Piece::Forever]].concat();
    let server = server(ScriptReply::stream(body)).await;
    let mut config =
        ProviderConfig { api_key_file: Some(key.path().to_owned()), ..config(DialectName::Anthropic, &server) };
    config.timeouts.idle = Some(short);
    let failure = call_with(config.clone()).await.end.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str()), (Class::Incomplete, "idle_timeout"));
    config.timeouts.idle = Some(Duration::from_secs(60));
    config.timeouts.total = Some(short);
    assert_eq!(call_with(config).await.end.unwrap_err().kind, "total_timeout");
}

#[tokio::test]
async fn silence_before_the_first_byte_has_its_own_limit() {
    // A listener that takes the connection and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = ProviderConfig::new(DialectName::OpenAi);
    config.base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
    config.timeouts.first_byte = Some(Duration::from_millis(30));
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
