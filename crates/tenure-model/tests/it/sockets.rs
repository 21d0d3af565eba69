//! The client against a server that sends exactly these bytes.

use crate::decoders::{ANTHROPIC, OPENAI};
use std::collections::BTreeMap;
use tenure_core::failure::Class;
use tenure_core::{Block, Message, Prompt, SessionId, UserPart};
use tenure_model::{CallContext, Models, ProviderConfig, Providers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each connection with the next of `replies`, in pieces of `piece` bytes, then closes.
async fn serve(replies: Vec<String>, piece: usize) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        for reply in replies {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            loop {
                let read = socket.read(&mut buffer).await.unwrap();
                request.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&request).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap()));
                    if body.len() >= length.unwrap_or(0) {
                        break;
                    }
                }
            }
            requests.push(String::from_utf8_lossy(&request).into_owned());
            for part in reply.as_bytes().chunks(piece) {
                socket.write_all(part).await.unwrap();
                socket.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        }
        requests
    });
    (url, task)
}

fn stream(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_9\r\nconnection: close\r\n\r\n{body}")
}

fn prompt() -> Prompt {
    Prompt {
        model: "p/m".into(),
        model_name: "m".into(),
        system: Some("be brief".into()),
        messages: vec![Message::User(vec![UserPart::Block(Block::Text("hi".into()))])],
        tools: vec![],
        max_output_tokens: 100,
    }
}

async fn call(dialect: &str, url: &str, more: &str) -> Result<tenure_core::Answer, tenure_core::failure::Failure> {
    let config: ProviderConfig = toml::from_str(&format!("dialect = \"{dialect}\"\nbase_url = \"{url}\"\n{more}")).unwrap();
    let providers = Providers::new(BTreeMap::from([("p".to_owned(), config)]), None).unwrap();
    let model = providers.resolve("p/m").unwrap().model;
    let context = CallContext { session: SessionId::from_bits(1), step: 1, attempt: 1 };
    model.call(&prompt(), &context, &mut |_| {}).await
}

#[tokio::test]
async fn both_dialects_speak_over_a_real_socket_in_small_pieces() {
    for (dialect, body) in [("anthropic", ANTHROPIC), ("openai", OPENAI)] {
        let (url, server) = serve(vec![stream(body)], 7).await;
        let answer = call(dialect, &url, "").await.unwrap();
        assert_eq!(answer.request_id.as_deref(), Some("req_9"));
        let request = server.await.unwrap().remove(0);
        assert!(request.contains("\"stream\":true"), "{request}");
    }
}

#[tokio::test]
async fn o_001_an_error_event_inside_a_200_stream_fails_the_attempt() {
    let cut = ANTHROPIC.find("event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3").unwrap();
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":\"req_1\"}\n\n";
    let (url, _server) = serve(vec![stream(&format!("{}{error}", &ANTHROPIC[..cut]))], 64).await;
    let failure = call("anthropic", &url, "").await.unwrap_err();
    assert_eq!((failure.class, failure.kind.as_str(), failure.request_id.as_deref()), (Class::Transient, "overloaded_error", Some("req_1")));
}

#[tokio::test]
async fn o_002_an_error_as_the_first_event_is_the_same_as_before_the_stream() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    let (url, _server) = serve(vec![stream(error)], 64).await;
    assert_eq!(call("anthropic", &url, "").await.unwrap_err().class, Class::Transient);
}

#[tokio::test]
async fn o_018_a_page_of_a_proxy_under_status_200_is_a_failure_of_the_transport() {
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 15\r\nconnection: close\r\n\r\n<!DOCTYPE html>";
    let (url, _server) = serve(vec![page.to_owned()], 64).await;
    let failure = call("openai", &url, "").await.unwrap_err();
    assert_eq!(failure.class, Class::Transient);
    assert!(!failure.message.contains('<'));
}

#[tokio::test]
async fn a_missing_key_is_a_credential_failure_and_no_request() {
    let failure = call("openai", "http://127.0.0.1:9", "api_key_env = \"TENURE_TEST_NO_SUCH_KEY\"").await.unwrap_err();
    assert_eq!(failure.class, Class::Credential);
}

#[tokio::test]
async fn a_silent_provider_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let failure = call("openai", &url, "timeouts = { first_byte = \"50ms\" }").await.unwrap_err();
    assert_eq!(failure.class, Class::Transient);
}
