//! The listener over real sockets.

use crate::hand::{self, Hand};
use crate::house::{House, KEY, PATIENCE};
use std::time::Duration;
use tenure_core::{Block, InputBody};
use tenure_server::Limits;
use tenure_store::Delivery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

struct Listening {
    address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn listen(house: &House) -> Listening {
    listen_within(house, Limits::default()).await
}

async fn listen_within(house: &House, limits: Limits) -> Listening {
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
            .deliver(Delivery { tenant, session: id, inputs: inputs.collect(), idempotency: None })
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
