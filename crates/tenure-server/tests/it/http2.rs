//! HTTP/2 with prior knowledge, on the port that also speaks HTTP/1.1.

use crate::hand::Hand;
use crate::house::{House, KEY, PATIENCE};
use crate::listener::{SHORT, listen, listen_within};
use axum::http::{StatusCode, Version};
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tenure_server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap()
}

fn request(client: &reqwest::Client, address: SocketAddr, path: &str) -> reqwest::RequestBuilder {
    client.get(format!("http://{address}{path}")).header("x-api-key", KEY)
}

/// Reads chunks until a text has come.
async fn read_until(response: &mut reqwest::Response, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = timeout(PATIENCE, response.chunk()).await.expect("bytes in time").unwrap().expect("not the end");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    text
}

/// A client that speaks frames, so that it can misbehave. Answers pings, as those do who misbehave well.
struct Raw {
    stream: TcpStream,
    frames: VecDeque<RawFrame>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct RawFrame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A head, with nothing compressed.
fn head(path: &str) -> Vec<u8> {
    // GET and http are entries of the table that both sides know.
    let mut bytes = vec![0x82, 0x86];
    let text = |text: &str| {
        let mut part = vec![u8::try_from(text.len()).unwrap()];
        assert!(part[0] < 127, "longer texts are encoded otherwise");
        part.extend(text.as_bytes());
        part
    };
    for (name, value) in [(0x04, path), (0x01, "localhost")] {
        bytes.push(name);
        bytes.extend(text(value));
    }
    bytes.push(0);
    bytes.extend(text("x-api-key"));
    bytes.extend(text(KEY));
    bytes
}

impl Raw {
    /// Connects and says what it wants to be like.
    async fn connect(address: SocketAddr, settings: &[u8]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()).await.unwrap();
        Self { stream, frames: VecDeque::new(), bytes: Vec::new() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn get(&mut self, stream: u32, path: &str) {
        self.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &head(path))).await;
    }

    /// The next frame; `None` when the server has hung up.
    async fn next(&mut self) -> Option<RawFrame> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            let mut buffer = [0; 16 * 1024];
            let read = timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("something in time");
            // A reset is an end too.
            let read = read.unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.bytes.extend_from_slice(&buffer[..read]);
            self.parse().await;
        }
    }

    async fn parse(&mut self) {
        while let Some(head) = self.bytes.first_chunk::<9>() {
            let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            if self.bytes.len() < 9 + len {
                return;
            }
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let payload: Vec<u8> = self.bytes.drain(..9 + len).skip(9).collect();
            let answer = match kind {
                PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload),
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
                _ => Vec::new(),
            };
            // The server may be gone already.
            let _ = self.stream.write_all(&answer).await;
            self.frames.push_back(RawFrame { kind, flags, stream, payload });
        }
    }

    /// Reads up to the first frame that is wanted.
    async fn until(&mut self, wanted: impl Fn(&RawFrame) -> bool) -> RawFrame {
        loop {
            let frame = self.next().await.expect("the server hung up");
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// Reads until the server has hung up.
    async fn until_closed(&mut self) {
        while self.next().await.is_some() {}
    }
}

#[tokio::test]
async fn o_060_seven_streams_and_requests_share_one_connection() {
    let house = House::new();
    let session = house.session().await;
    let server = listen(&house).await;
    let client = client();
    let path = format!("/v1/sessions/{session}/events/stream?after=0");
    let mut tabs = Vec::new();
    for _ in 0..7 {
        let mut tab = request(&client, server.address, &path).send().await.unwrap();
        assert_eq!((tab.status(), tab.version()), (StatusCode::OK, Version::HTTP_2));
        assert_eq!(tab.headers()["content-type"], "text/event-stream; charset=utf-8");
        read_until(&mut tab, ": tenure").await;
        tabs.push(tab);
    }
    let reply = request(&client, server.address, "/v1/agents").send().await.unwrap();
    assert_eq!((reply.status(), reply.version()), (StatusCode::OK, Version::HTTP_2));
    assert!(reply.headers().contains_key("request-id"));
    house.say(&session, "to all tabs").await;
    Hand::claim(&house).await.turn("seen by all").await;
    for tab in &mut tabs {
        let text = read_until(tab, "event: session.status_idle").await;
        assert!(text.contains("to all tabs") && text.contains("seen by all"), "{text}");
    }
    house.stop.cancel();
    for mut tab in tabs {
        read_until(&mut tab, "the server stops").await;
    }
    timeout(PATIENCE, server.task).await.expect("stopped").unwrap().unwrap();
}

#[tokio::test]
async fn checks_of_host_and_key_hold_for_http_2() {
    let house = House::new();
    let server = listen(&house).await;
    let client = client();
    let get = |name: &'static str, value: &'static str| {
        let request = client.get(format!("http://{}/v1/agents", server.address)).header(name, value);
        async move {
            let reply = request.send().await.unwrap();
            let status = reply.status();
            let body: Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
            (status, body["error"]["code"].clone())
        }
    };
    assert_eq!(get("accept", "*/*").await, (StatusCode::UNAUTHORIZED, "authentication_required".into()));
    assert_eq!(get("origin", "https://elsewhere.example").await.0, StatusCode::FORBIDDEN);
    assert_eq!(get("x-forwarded-for", "203.0.113.9").await.1, "host_not_allowed");
}

#[tokio::test]
async fn o_091_http_2_connections_on_which_nothing_is_asked_are_closed() {
    let house = House::new();
    let server = listen_within(&house, Limits { headers: SHORT, ..Limits::default() }).await;
    let half_head = &frame(HEADERS, END_STREAM | END_HEADERS, 1, &head("/healthz"))[..20];
    let no_end_of_head = frame(HEADERS, END_STREAM, 1, &head("/healthz"));
    for sent in [&[][..], half_head, &no_end_of_head] {
        let mut raw = Raw::connect(server.address, &[]).await;
        raw.send(sent).await;
        raw.until_closed().await;
    }
    // A part of what the protocol begins with.
    for end in [0, 1, 10, PREFACE.len()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&PREFACE[..end]).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("closed");
    }
    // One that did ask, and then nothing more.
    let mut raw = Raw::connect(server.address, &[]).await;
    raw.get(1, "/healthz").await;
    raw.until(|frame| frame.stream == 1 && frame.flags & END_STREAM != 0).await;
    raw.until_closed().await;
    let reply = request(&client(), server.address, "/healthz").send().await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK, "others are served");
}

#[tokio::test]
async fn o_091_a_long_http_2_stream_is_not_touched_by_the_limits_of_requests() {
    let house = House::new();
    let session = house.session().await;
    let server = listen_within(&house, Limits { headers: SHORT, writes: SHORT, bodies: SHORT }).await;
    let path = format!("/v1/sessions/{session}/events/stream");
    let mut stream = request(&client(), server.address, &path).send().await.unwrap();
    // Far beyond all limits; and every stream has a comment at least every five seconds.
    read_until(&mut stream, ": alive").await;
    house.say(&session, "still here").await;
    read_until(&mut stream, "still here").await;
}

#[tokio::test]
async fn o_091_a_body_that_stops_ends_its_request_over_http_2() {
    let house = House::new();
    let server = listen_within(&house, Limits { bodies: SHORT, ..Limits::default() }).await;
    let silent = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let post = client().post(format!("http://{}/v1/agents", server.address)).header("x-api-key", KEY);
    let reply = timeout(PATIENCE, post.body(reqwest::Body::wrap_stream(silent)).send()).await.expect("an answer");
    assert_eq!(reply.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn o_059_an_http_2_reader_that_takes_nothing_loses_its_stream_and_not_its_connection() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, "hi").await;
    Hand::claim(&house).await.turn("hello").await;
    let server = listen_within(&house, Limits { writes: SHORT, ..Limits::default() }).await;
    // Streams begin with a window of zero: SETTINGS_INITIAL_WINDOW_SIZE.
    let mut raw = Raw::connect(server.address, &[0, 4, 0, 0, 0, 0]).await;
    raw.get(1, &format!("/v1/sessions/{session}/events/stream?after=0")).await;
    raw.until(|frame| frame.kind == HEADERS && frame.stream == 1).await;
    let until = tokio::time::Instant::now() + SHORT * 4;
    while tokio::time::Instant::now() < until {
        // Answers pings meanwhile, if there are any.
        if let Ok(frame) = tokio::time::timeout_at(until, raw.next()).await {
            let frame = frame.expect("the server hung up");
            assert!(frame.kind != DATA || frame.payload.is_empty(), "there is no window for it");
        }
    }
    // Now it would read: what is left of the stream ends with an error, so that it comes back with its cursor.
    raw.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0])).await;
    let end = raw.until(|frame| frame.stream == 1 && (frame.kind == RST_STREAM || frame.flags & END_STREAM != 0)).await;
    assert_eq!(end.kind, RST_STREAM, "it does not look whole");
    raw.get(3, "/healthz").await;
    raw.send(&frame(WINDOW_UPDATE, 0, 3, &[0, 1, 0, 0])).await;
    let body = raw.until(|frame| frame.stream == 3 && frame.kind == DATA).await;
    assert!(String::from_utf8_lossy(&body.payload).contains("ok"), "{body:?}");
}

#[tokio::test]
async fn o_059_a_slow_http_2_reader_that_reads_gets_everything() {
    let house = House::new();
    let session = house.session().await;
    house.say(&session, &"x".repeat(300_000)).await;
    Hand::claim(&house).await.turn("hello").await;
    let limit = Duration::from_secs(2);
    let server = listen_within(&house, Limits { writes: limit, ..Limits::default() }).await;
    let mut raw = Raw::connect(server.address, &[0, 4, 0, 0, 0, 0]).await;
    // For the connection as a whole there is room.
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 64, 0, 0])).await;
    raw.get(1, &format!("/v1/sessions/{session}/events/stream?after=0")).await;
    let (mut text, mut ticks) = (String::new(), tokio::time::interval(limit / 16));
    // All of it takes longer than the limit, and each piece is far from it.
    while !text.contains("event: session.status_idle") {
        ticks.tick().await;
        raw.send(&frame(WINDOW_UPDATE, 0, 1, &8_192_u32.to_be_bytes())).await;
        let mut piece = 0;
        while piece < 8_192 && !text.contains("event: session.status_idle") {
            let frame = raw.until(|frame| frame.stream == 1 && frame.kind != HEADERS).await;
            assert_eq!(frame.kind, DATA, "{frame:?}");
            piece += frame.payload.len();
            text.push_str(std::str::from_utf8(&frame.payload).unwrap());
        }
    }
}

#[tokio::test]
async fn http_2_heads_that_are_too_large_are_refused_and_others_are_served() {
    let house = House::new();
    let server = listen(&house).await;
    for size in [100_000, 1_000_000] {
        let client = client();
        let reply = request(&client, server.address, "/healthz").header("x-big", "a".repeat(size)).send().await;
        if let Ok(reply) = reply {
            assert_eq!(reply.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{size}");
        }
        let reply = request(&self::client(), server.address, "/healthz").send().await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
    }
}
