//! Behind a real nginx as it comes: it collects replies and compresses them unless it is told not to.
//!
//! Left out, and said so, where there is no nginx. `cargo xtask test` fetches one if it can.

use crate::hand::Hand;
use crate::house::{House, KEY, PATIENCE};
use crate::listener::listen;
use crate::node::{Attempt, Node};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How often it is looked whether nginx listens.
const LOOK: Duration = Duration::from_millis(20);

struct Nginx {
    child: Child,
    socket: PathBuf,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, of the system or the one that was fetched for the tests.
fn program() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nginx/usr/sbin/nginx");
    let runs = |program: &PathBuf| {
        let version = Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    [PathBuf::from("nginx"), PathBuf::from("/usr/sbin/nginx"), fetched].into_iter().find(runs)
}

/// Starts nginx in front of a server, with the defaults for everything that is not named.
async fn start(program: &Path, folder: &Path, upstream: std::net::SocketAddr) -> Nginx {
    let socket = folder.join("nginx.sock");
    let place = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "daemon off; master_process off; pid {pid}; error_log stderr warn;
         events {{ worker_connections 64; }}
         http {{
             access_log off; gzip on; gzip_proxied any;
             client_body_temp_path {body}; proxy_temp_path {proxy}; fastcgi_temp_path {fastcgi};
             uwsgi_temp_path {uwsgi}; scgi_temp_path {scgi};
             server {{ listen unix:{socket}; location / {{ proxy_pass http://{upstream}; }} }}
         }}",
        pid = place("nginx.pid"),
        body = place("body"),
        proxy = place("proxy"),
        fastcgi = place("fastcgi"),
        uwsgi = place("uwsgi"),
        scgi = place("scgi"),
        socket = socket.display(),
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command.arg("-e").arg("stderr").arg("-p").arg(folder).arg("-c").arg(&file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut nginx = Nginx { child, socket };
    let up = async {
        while UnixStream::connect(&nginx.socket).await.is_err() {
            assert_eq!(nginx.child.try_wait().unwrap(), None, "nginx ended");
            tokio::time::sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, up).await.expect("nginx listens");
    nginx
}

/// Reads until a text has come; gives all that was read.
async fn read_until(stream: &mut UnixStream, text: &mut String, wanted: &str) {
    let mut buffer = [0; 16 * 1024];
    while !text.contains(wanted) {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| panic!("{wanted:?} is held back by the proxy: {text}")).unwrap();
        assert!(read > 0, "the connection ended before {wanted:?}: {text}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
}

#[tokio::test]
async fn o_058_behind_a_real_nginx_each_token_comes_when_it_is_said() {
    let Some(program) = program() else {
        // Not through the macro: what that prints is kept back when a test passes.
        let left_out =
            "LEFT OUT: o_058 behind a real nginx; there is no nginx here (Debian: apt-get install nginx-light)\n";
        std::io::stderr().write_all(left_out.as_bytes()).unwrap();
        return;
    };
    let house = House::new();
    let session = house.session().await;
    let node = Node::start(&house).await;
    house.say(&session, "hi").await;
    let mut hand = Hand::claim_as(&house, node.id).await;
    hand.take_inputs().await;
    let span = hand.begin(1).await;
    let server = listen(&house).await;
    let nginx = start(&program, house.folder.path(), server.address).await;
    let mut stream = UnixStream::connect(&nginx.socket).await.unwrap();
    let path = format!("/v1/sessions/{session}/events/stream?after=0&event_deltas[]=agent.message");
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\naccept-encoding: gzip\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    read_until(&mut stream, &mut text, "span.model_request_start").await;
    assert!(text.contains("Server: nginx"), "{text}");
    let lower = text.to_lowercase();
    assert!(lower.contains("content-type: text/event-stream") && !lower.contains("content-encoding"), "{text}");
    assert!(lower.contains("cache-control: no-cache, no-transform"), "{text}");
    // Each is said only when the one before it has come through: nothing waits for more.
    let mut attempt = Attempt::of(&hand, 1);
    node.tell(&attempt.start());
    for token in ["One", " token", " at", " a", " time"] {
        node.tell(&attempt.delta(token));
        read_until(&mut stream, &mut text, &format!("\"text\":\"{token}\"")).await;
    }
    hand.answer(&span, attempt.block, "One token at a time").await;
    read_until(&mut stream, &mut text, "event: session.status_idle").await;
}
