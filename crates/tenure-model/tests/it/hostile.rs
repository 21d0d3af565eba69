//! Providers that send what no provider should: each ends the attempt, within bounds, with a clear word.

use crate::given::{ALL, Given, context, decode, prompt, said};
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::failure::{Class, Failure};
use tenure_core::{BlockKind, SessionId};
use tenure_model::{CallContext, DialectName, MAX_ANSWER_BLOCKS, MAX_EVENT_BYTES, Models, ProviderConfig, Providers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that answers every connection with `head`, and then with `body` until the other side hangs
/// up; or once, if it is to end.
async fn raw_server(head: Vec<u8>, body: Vec<u8>, is_endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let _ = socket.read(&mut request).await;
            let mut is_open = socket.write_all(&head).await.is_ok();
            while is_open {
                is_open = socket.write_all(&body).await.is_ok() && is_endless;
            }
            let _ = socket.shutdown().await;
        }
    });
    url
}

async fn fails(dialect: DialectName, url: String) -> Failure {
    let mut config = ProviderConfig { base_url: Some(url), ..ProviderConfig::new(dialect) };
    // Far beyond what the bounds of bytes allow; a test that reaches it has found something.
    config.timeouts.total = Some(Duration::from_secs(120));
    let providers = Providers::new(BTreeMap::from([("p".to_owned(), config)]), None).unwrap();
    let model = providers.resolve("p/m").unwrap().model;
    let context = CallContext { session: SessionId::from_bits(1), ..context(1) };
    model.call(&prompt(vec![said("hi")]), &context, &mut |_| {}).await.unwrap_err()
}

fn head(given: &Given, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {}\r\nconnection: close\r\n{more}\r\n", given.content_type()).into_bytes()
}

/// One event around a value.
fn event(dialect: DialectName, json: &str) -> String {
    if dialect == DialectName::Ollama { format!("{json}\n") } else { format!("data: {json}\n\n") }
}

#[tokio::test]
async fn a_line_without_end_ends_the_attempt_at_the_bound_of_an_event() {
    for given in &ALL {
        let url = raw_server(head(given, ""), vec![b'x'; 1 << 20], true).await;
        let failure = fails(given.dialect, url).await;
        assert_eq!(failure.class, Class::Incomplete, "{}", given.dialect);
        assert!(failure.message.contains("too large"), "{}", failure.message);
    }
}

#[tokio::test]
async fn white_space_and_pings_without_end_end_the_attempt_at_the_bound_of_an_answer() {
    for given in &ALL {
        let blank = " ".repeat(1 << 16);
        for body in [format!("{blank}\n\n"), format!(": {blank}\r\n\r\n")] {
            // Comments are no lines of JSON.
            if given.dialect == DialectName::Ollama && body.starts_with(':') {
                continue;
            }
            let url = raw_server(head(given, ""), body.into_bytes(), true).await;
            let failure = fails(given.dialect, url).await;
            assert_eq!(failure.class, Class::Incomplete, "{}", given.dialect);
            assert!(failure.message.contains("larger than"), "{}", failure.message);
        }
    }
}

#[tokio::test]
async fn headers_without_end_and_without_meaning_are_refused() {
    let given = &ALL[0];
    let many = (0..5_000).map(|number| format!("x-{number}: {number}\r\n")).collect::<String>();
    let long = format!("x-long: {}\r\n", "x".repeat(8 << 20));
    for more in [many, long] {
        let url = raw_server(head(given, &more), Vec::new(), false).await;
        let failure = fails(given.dialect, url).await;
        assert_eq!(failure.class, Class::Transient);
        assert!(
            failure.message.starts_with("no reply that can be read") && failure.message.len() < 400,
            "{}",
            failure.message
        );
    }
    let url = raw_server(b"\x16\x03\x01\x02\x00 not HTTP at all".to_vec(), Vec::new(), false).await;
    assert_eq!(fails(given.dialect, url).await.class, Class::Transient);
}

#[tokio::test]
async fn a_compressed_reply_is_not_unpacked() {
    for given in &ALL {
        let url = raw_server(head(given, "content-encoding: gzip\r\n"), vec![0x1f, 0x8b, 8, 0], false).await;
        let failure = fails(given.dialect, url).await;
        assert_eq!((failure.class, failure.kind.as_str()), (Class::Transient, "compressed_reply"));
    }
}

#[tokio::test]
async fn an_error_page_without_end_is_read_up_to_its_bound() {
    for status in ["503 Service Unavailable", "200 OK"] {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\n\r\n");
        let url = raw_server(head.into_bytes(), vec![b'<'; 1 << 16], true).await;
        let failure = fails(DialectName::OpenAi, url).await;
        assert_eq!(failure.class, Class::Transient);
        assert!(failure.message.len() < 400);
    }
}

#[test]
fn a_line_of_ten_megabytes_is_an_ordinary_event() {
    const { assert!(MAX_EVENT_BYTES > 10 << 20) };
    let long = "x".repeat(10 << 20);
    for given in &ALL {
        let stream = given.stream.replace("llo ", &format!("llo {long}")).replace("lo 😀", &format!("lo {long}"));
        let answer = decode(given.dialect, stream.as_bytes().chunks(1 << 16)).1.unwrap();
        let is_long = |kind: &BlockKind| matches!(kind, BlockKind::Text { text } if text.len() > long.len());
        assert!(answer.blocks.iter().any(|block| is_long(&block.kind)), "{}", given.dialect);
    }
}

#[test]
fn o_090_deep_json_ends_the_attempt_and_not_the_process() {
    for given in &ALL {
        for (field, depth) in FIELDS.into_iter().flat_map(|field| [127, 128, 10_000].map(|depth| (field, depth))) {
            let closed = "[".repeat(depth) + &"]".repeat(depth);
            for (deep, is_whole) in [("[".repeat(depth), false), ("{\"a\":".repeat(depth), false), (closed, true)] {
                let text = event(given.dialect, &format!("{{\"type\":\"response.completed\",\"{field}\":{deep}}}"));
                let (_, end) = decode(given.dialect, [text.as_bytes()]);
                assert!(is_whole || end.is_err(), "{} {field} {depth}", given.dialect);
            }
        }
        let text = event(given.dialect, &format!("{{\"type\":\"x\",\"delta\":{}", "[".repeat(1_000_000)));
        assert!(decode(given.dialect, [text.as_bytes()]).1.is_err(), "{}", given.dialect);
    }
}

/// Fields that some dialect reads.
const FIELDS: [&str; 8] = ["delta", "message", "item", "response", "candidates", "choices", "usage", "error"];

#[test]
fn blocks_without_end_end_the_attempt_at_their_bound() {
    for given in &ALL {
        let block = |number: usize| match given.dialect {
            DialectName::Anthropic => format!(
                "{{\"type\":\"content_block_start\",\"index\":{number},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"x\",\"name\":\"f\"}}}}"
            ),
            DialectName::OpenAi => format!(
                "{{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{number},\"id\":\"x{number}\",\"function\":{{\"name\":\"f\"}}}}]}}}}]}}"
            ),
            DialectName::Responses => format!(
                "{{\"type\":\"response.output_item.added\",\"output_index\":{number},\"item\":{{\"type\":\"function_call\",\"name\":\"f\"}}}}"
            ),
            DialectName::Gemini => {
                "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\"}}]}}]}".to_owned()
            }
            DialectName::Ollama | DialectName::Script => {
                "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}}".to_owned()
            }
        };
        let stream: String = (0..=MAX_ANSWER_BLOCKS + 1).map(|number| event(given.dialect, &block(number))).collect();
        let failure = decode(given.dialect, [stream.as_bytes()]).1.unwrap_err();
        assert_eq!(failure.class, Class::Incomplete, "{}", given.dialect);
        assert!(failure.message.contains("blocks"), "{}: {}", given.dialect, failure.message);
    }
}

#[test]
fn raw_control_characters_and_numbers_beyond_all_measure_end_the_attempt() {
    for given in &ALL {
        for json in [
            "{\"type\":\"x\u{1}\"}",
            "{\"usage\":{\"input_tokens\":1e400}}",
            "{\"type\":\"x\"} {}",
            "{\"type\":",
            "\u{feff}{}",
        ] {
            let text = event(given.dialect, json);
            assert!(decode(given.dialect, [text.as_bytes()]).1.is_err(), "{} {json}", given.dialect);
        }
    }
}

#[test]
fn counts_beyond_all_measure_do_not_overflow() {
    let most = u64::MAX;
    for given in &ALL {
        let stream = given
            .stream
            .replace("\"input_tokens\":10", &format!("\"input_tokens\":{most}"))
            .replace(":100", &format!(":{most}"))
            .replace(":80", &format!(":{most}"))
            .replace("\"candidatesTokenCount\":5", &format!("\"candidatesTokenCount\":{most}"));
        let usage = decode(given.dialect, [stream.as_bytes()]).1.unwrap().usage;
        assert!(usage.input <= most);
    }
}
