//! The listener over real sockets.

use crate::hand::{self, Hand};
use crate::house::{House, KEY, PATIENCE};
use std::time::Duration;
use tenure_api::client::{Client, EventStream, From, Next};
use tenure_core::{Block, InputBody};
use tenure_server::Limits;
use tenure_store::Delivery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

pub(crate) struct Listening {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) task: tokio::task::JoinHandle<std::io::Result<()>>,
}

pub(crate) async fn listen(house: &House) -> Listening {
    listen_within(house, Limits::default()).await
}

pub(crate) async fn listen_within(house: &House, limits: Limits) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Listening { address, task: tokio::spawn(tenure_server::serve_within(listener, house.state.clone(), limits)) }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\n\r\n")
}

/// Reads until a text has come; gives the newest part of what was read.
async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut newest = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("bytes in time").unwrap();
        assert!(read > 0, "the connection ended before {wanted:?}: {}", String::from_utf8_lossy(&newest));
        // As much of what came before as the text may begin in.
        newest.drain(..newest.len().saturating_sub(wanted.len()));
        newest.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&newest);
        if text.contains(wanted) {
            return text.into_owned();
        }
    }
}

#[tokio::test]
async fn o_091_connections_that_send_no_whole_head_are_closed_and_others_are_served() {
    let house = House::new();
    // Short ones, so that the test does not wait for the usual half minute.
    let server = listen_within(&house, Limits { headers: Duration::from_millis(300), ..Limits::default() }).await;
    let mut silent = Vec::new();
    for place in 0..100 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        if place % 2 == 0 {
            stream.write_all(b"GET /healthz HT").await.unwrap();
        }
        silent.push(stream);
    }
    let mut served = TcpStream::connect(server.address).await.unwrap();
    served.write_all(get("/healthz").as_bytes()).await.unwrap();
    read_until(&mut served, "200 OK").await;
    for mut stream in silent {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("closed");
    }
}

/// Reads to the end of the connection.
async fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn o_091_a_connection_that_asks_nothing_more_is_closed() {
    let house = House::new();
    let server = listen_within(&house, Limits { headers: SHORT, ..Limits::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(get("/healthz").as_bytes()).await.unwrap();
    read_until(&mut stream, "\"ok\"").await;
    assert_eq!(read_to_end(stream).await, "");
}

#[tokio::test]
async fn o_091_a_body_that_stops_or_trickles_ends_its_request_and_nothing_is_kept() {
    let house = House::new();
    let session = house.session().await;
    let agents = house.get("/v1/agents").await.ok();
    let server = listen_within(&house, Limits { bodies: SHORT, ..Limits::default() }).await;
    let file = format!("/v1/sessions/{session}/files/content?path=f");
    let archive = format!("/v1/sessions/{session}/files/archive");
    for (method, path) in [("POST", "/v1/agents"), ("PUT", file.as_str()), ("PUT", archive.as_str())] {
        for trickles in [false, true] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\ncontent-length: 1000\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let (mut read, mut write) = stream.split();
            let mut reply = Vec::new();
            let trickle = async {
                // Each pause is shorter than the limit, and all of them together are not.
                let mut pause = tokio::time::interval(SHORT / 3);
                loop {
                    pause.tick().await;
                    if !trickles || write.write_all(b" ").await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                read = timeout(PATIENCE, read.read_to_end(&mut reply)) => drop(read.expect("closed")),
                () = trickle => unreachable!("it never ends"),
            }
            let reply = String::from_utf8_lossy(&reply);
            assert!(reply.starts_with("HTTP/1.1 408 "), "{method} {path} {trickles}: {reply}");
            assert!(reply.contains("\"body_timeout\"") && reply.contains("request-id: req_"), "{reply}");
        }
    }
    assert_eq!(house.get("/v1/agents").await.ok(), agents);
    assert_eq!(house.get(&file).await.code(), "file_not_found");
}

#[tokio::test]
async fn o_091_a_body_that_comes_steadily_may_take_longer_than_the_pause() {
    let house = House::new();
    let pause = Duration::from_secs(2);
    let server = listen_within(&house, Limits { bodies: pause, ..Limits::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = format!("{{\"name\": \"a\", \"model\": \"p/priced\", \"system\": \"{}\"}}", "x".repeat(20_000));
    let head = format!(
        "POST /v1/agents HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Rare enough that all of them are longer than the limit, and each is far from it.
    let mut ticks = tokio::time::interval(pause / 3);
    for chunk in body.as_bytes().chunks(4_096) {
        ticks.tick().await;
        stream.write_all(chunk).await.unwrap();
    }
    read_until(&mut stream, "200 OK").await;
}

#[tokio::test]
async fn o_091_a_long_stream_is_not_touched_by_the_limits_of_requests() {
    let house = House::new();
    let session = house.session().await;
    let server = listen_within(&house, Limits { headers: SHORT, writes: SHORT, bodies: SHORT }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(get(&format!("/v1/sessions/{session}/events/stream")).as_bytes()).await.unwrap();
    // Far beyond all limits; and every stream has a comment at least every five seconds.
    read_until(&mut stream, ": alive").await;
    house.say(&session, "still here").await;
    read_until(&mut stream, "still here").await;
}

#[tokio::test]
async fn heads_that_are_too_large_or_no_http_are_refused_and_others_are_served() {
    let house = House::new();
    let server = listen(&house).await;
    let big = "a".repeat(1024 * 1024);
    let many: String = (0..500).map(|number| format!("x-{number}: a\r\n")).collect();
    for (sent, status) in [
        (format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-big: {big}\r\n\r\n"), "431"),
        (format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"), "431"),
        (format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(70_000)), "414"),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n".to_owned(), "400"),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n".to_owned(), "400"),
        ("GET /\u{0} HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "400"),
        (
            "POST /v1/agents HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}"
                .to_owned(),
            "400",
        ),
        (
            "POST /v1/agents HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, nonsense\r\n\r\n".to_owned(),
            "400",
        ),
        ("POST /v1/agents HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may hang up in the middle of it.
        let _ = stream.write_all(sent.as_bytes()).await;
        let reply = read_to_end(stream).await;
        let is_refused =
            reply.starts_with(&format!("HTTP/1.1 {status} ")) || reply.is_empty() && sent.len() > 1_000_000;
        assert!(is_refused, "{}: {reply:?}", &sent[..sent.len().min(60)]);
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(get("/healthz").as_bytes()).await.unwrap();
    read_until(&mut stream, "200 OK").await;
}

#[tokio::test]
async fn requests_in_a_row_on_one_connection_are_answered_in_their_order() {
    let house = House::new();
    let server = listen(&house).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let paths = ["/healthz", "/v1/agents", "/v1/nothing", "/readyz"];
    let all: String = paths.iter().map(|path| get(path)).collect();
    stream.write_all(all.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let replies = read_to_end(stream).await;
    let at: Vec<usize> = ["\"ok\"", "next_page", "route_not_found", "\"ready\""]
        .iter()
        .map(|text| replies.find(text).unwrap_or_else(|| panic!("{text}: {replies}")))
        .collect();
    assert!(at.is_sorted(), "{replies}");
}

/// The next `user.message` that was processed, over as many connections as it takes.
async fn next_message(stream: &mut EventStream) -> String {
    loop {
        let next = timeout(PATIENCE, stream.next()).await.expect("in time").unwrap();
        if let Next::Frame(frame) = next
            && frame.event == "user.message"
            && frame.id.is_some()
        {
            return serde_json::from_str::<serde_json::Value>(&frame.data).unwrap()["content"][0]["text"].to_string();
        }
    }
}

#[tokio::test]
async fn o_055_our_client_keeps_its_place_over_drops_although_no_row_has_come() {
    for from in [From::Now, From::Start, From::After(1)] {
        let house = House::new();
        let session = house.session().await;
        house.say(&session, "before").await;
        Hand::claim(&house).await.turn("done").await;
        let first = listen(&house).await;
        let client = Client::new(&format!("http://{}", first.address), Some(KEY.into())).unwrap();
        let mut stream = client.events(&session, from.clone(), false).await.unwrap();
        if from == From::Start {
            assert_eq!(next_message(&mut stream).await, "\"before\"");
        }
        house.stop.cancel();
        timeout(PATIENCE, first.task).await.expect("stopped").unwrap().unwrap();
        // What happens while there is no connection, and while there is no server.
        house.say(&session, "meanwhile").await;
        Hand::claim(&house).await.turn("done").await;
        let again = House::over(house.store.clone(), |_| {});
        let listener = TcpListener::bind(first.address).await.unwrap();
        let serving = tokio::spawn(tenure_server::serve(listener, again.state.clone()));
        assert_eq!(next_message(&mut stream).await, "\"meanwhile\"");
        again.stop.cancel();
        timeout(PATIENCE, serving).await.expect("stopped").unwrap().unwrap();
    }
}

#[tokio::test]
async fn o_059_a_reader_that_never_reads_holds_little_and_can_come_back() {
    let house = House::sqlite();
    let session = house.session().await;
    let server = listen(&house).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(get(&format!("/v1/sessions/{session}/events/stream?after=0")).as_bytes()).await.unwrap();
    read_until(&mut stream, ": tenure").await;
    // Far more than the buffers of both sockets hold.
    let text = "x".repeat(100_000);
    for _ in 0..20 {
        let id = session.parse().unwrap();
        let inputs = (0..10).map(|_| {
            (
                tenure_core::EventId::from_bits(hand::next()),
                InputBody::Message { content: vec![Block::Text(text.clone())] },
            )
        });
        let tenant = tenure_core::TenantId("alice".into());
        house
            .store
            .deliver(Delivery { tenant, session: id, inputs: inputs.collect(), notes: None, idempotency: None })
            .await
            .unwrap();
    }
    Hand::claim(&house).await.take_inputs().await;
    // Others are served meanwhile, and the reader finds every row once it reads.
    let mut other = TcpStream::connect(server.address).await.unwrap();
    other.write_all(get(&format!("/v1/sessions/{session}")).as_bytes()).await.unwrap();
    read_until(&mut other, "\"last_seq\":201").await;
    read_until(&mut stream, "id: 201\n").await;
}

#[tokio::test]
async fn a_stop_ends_streams_and_lets_the_listener_go() {
    let house = House::new();
    let session = house.session().await;
    let server = listen(&house).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(get(&format!("/v1/sessions/{session}/events/stream")).as_bytes()).await.unwrap();
    read_until(&mut stream, ": tenure").await;
    house.stop.cancel();
    read_until(&mut stream, "connect again").await;
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("closed").unwrap();
    timeout(Duration::from_secs(30), server.task).await.expect("stopped").unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}
