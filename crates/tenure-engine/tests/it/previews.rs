//! What a node tells other nodes about open messages (design 4.7).

use crate::house::{House, PATIENCE, Running};
use tenure_api::node::{NODE_KEY_HEADER, PREVIEWS_PATH};
use tenure_core::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;

async fn connect(worker: &Running, key: &str) -> Lines<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(worker.address).await.unwrap();
    let request = format!("GET {PREVIEWS_PATH} HTTP/1.1\r\nhost: x\r\n{NODE_KEY_HEADER}: {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream).lines()
}

/// Reads until a line holds this; returns the lines.
async fn until(lines: &mut Lines<BufReader<TcpStream>>, wanted: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            seen.push(line);
            if seen.last().is_some_and(|line| line.contains(wanted)) {
                return;
            }
        }
        panic!("the connection ended: {seen:?}");
    };
    tokio::time::timeout(PATIENCE, read).await.expect("it comes");
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_connects_late_is_told_the_open_message_so_far() {
    let mut house =
        House::new("[[turn]]\ndo = [{ say = \"hello world\", pieces = 2 }, { stall = \"forever\" }]\n").await;
    let worker = house.worker().await;
    let session = house.session().await;
    let mut first = connect(&worker, "node").await;
    house.say(session, "go").await;
    until(&mut first, "world").await;
    // The message is open and silent now; whoever comes sees all of it at once.
    let mut late = connect(&worker, "node").await;
    let lines = until(&mut late, "hello world").await;
    assert!(lines.iter().any(|line| line.contains("\"start\"") && line.contains(&session.to_string())), "{lines:?}");
    house.send(session, InputBody::Cancel).await;
    until(&mut first, "\"end\"").await;
    until(&mut late, "\"end\"").await;
    let mut stranger = connect(&worker, "another key").await;
    until(&mut stranger, "401").await;
    worker.stop().await;
}
