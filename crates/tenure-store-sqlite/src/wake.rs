//! Hints to this process and to the others that have the store open (design 7.4).
//!
//! A hint makes things faster and is never needed: a thread that looks at SQLite's `data_version`
//! finds every commit of another process within [`LOOK`].

use rusqlite::Connection;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenure_core::SessionId;
use tenure_store::Hint;
use tokio::sync::broadcast;

/// How often commits of other processes are looked for.
const LOOK: Duration = Duration::from_millis(25);

/// Hints that a receiver may be behind before it is told to look at everything.
const BACKLOG: usize = 8_192;

/// How long the list of other processes is used before the folder is read again.
const PEERS: Duration = Duration::from_millis(500);

/// Most hints in one datagram; more become one that says "anything".
const MAX_HINTS: usize = 64;

/// Sends and receives hints.
#[derive(Debug)]
pub(crate) struct Wake {
    hints: broadcast::Sender<Hint>,
    folder: PathBuf,
    own: PathBuf,
    socket: UnixDatagram,
    peers: Mutex<(Vec<PathBuf>, Option<Instant>)>,
    stop: AtomicBool,
}

impl Wake {
    /// Binds a socket of this process and starts to listen.
    pub(crate) fn start(data: &Path, connection: Connection) -> std::io::Result<Arc<Self>> {
        let folder = data.join("wake");
        std::fs::create_dir_all(&folder)?;
        let own = folder.join(format!("{}-{:08x}", std::process::id(), rand::random::<u32>()));
        let socket = bind(&folder, &own)?;
        socket.set_read_timeout(Some(LOOK))?;
        let wake = Arc::new(Self {
            hints: broadcast::channel(BACKLOG).0,
            folder,
            own,
            socket: socket.try_clone()?,
            peers: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let listener = Arc::downgrade(&wake);
        std::thread::Builder::new().name("store-wake".to_owned()).spawn(move || listen(&listener, &socket, &connection))?;
        Ok(wake)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    /// Tells this process and the others about a commit.
    pub(crate) fn send(&self, hints: Vec<Hint>) {
        if hints.is_empty() {
            return;
        }
        for hint in &hints {
            let _ = self.hints.send(*hint);
        }
        let text = encode(&hints);
        for peer in self.peers() {
            if self.socket.send_to(text.as_bytes(), &peer).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
                // Its process is gone without removing it.
                let _ = std::fs::remove_file(&peer);
            }
        }
    }

    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.own);
    }

    fn peers(&self) -> Vec<PathBuf> {
        let mut peers = self.peers.lock().expect("nobody panics while holding it");
        if peers.1.is_none_or(|read_at| read_at.elapsed() >= PEERS) {
            let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
            *peers = (entries.map(|entry| entry.path()).filter(|path| *path != self.own).collect(), Some(Instant::now()));
        }
        peers.0.clone()
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.close();
    }
}

/// Socket paths are limited to about 100 bytes; a longer one is reached through its open folder.
fn bind(folder: &Path, own: &Path) -> std::io::Result<UnixDatagram> {
    match UnixDatagram::bind(own) {
        Ok(socket) => {
            socket.set_nonblocking(false)?;
            Ok(socket)
        }
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "no wake-up socket; other processes are found by looking");
            UnixDatagram::unbound()
        }
    }
}

fn listen(wake: &std::sync::Weak<Wake>, socket: &UnixDatagram, connection: &Connection) {
    let mut buffer = [0; 8_192];
    let mut version = data_version(connection);
    loop {
        let received = socket.recv(&mut buffer);
        let Some(wake) = wake.upgrade() else { return };
        if wake.stop.load(Ordering::Relaxed) {
            return;
        }
        match received {
            Ok(length) => decode(&buffer[..length]).for_each(|hint| {
                let _ = wake.hints.send(hint);
            }),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                let newest = data_version(connection);
                if newest != version {
                    version = newest;
                    let _ = wake.hints.send(Hint::Anything);
                }
            }
            Err(_) => std::thread::park_timeout(LOOK),
        }
    }
}

fn data_version(connection: &Connection) -> Option<i64> {
    connection.prepare_cached("PRAGMA data_version").ok()?.query_row([], |row| row.get(0)).ok()
}

fn encode(hints: &[Hint]) -> String {
    if hints.len() > MAX_HINTS {
        return "a\n".to_owned();
    }
    let line = |hint: &Hint| match hint {
        Hint::Session(session) => format!("s{session}\n"),
        Hint::Control(session) => format!("c{session}\n"),
        Hint::Runnable => "r\n".to_owned(),
        Hint::Anything => "a\n".to_owned(),
    };
    hints.iter().map(line).collect()
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = Hint> {
    let text = std::str::from_utf8(bytes).unwrap_or("a");
    let hint = |line: &str| {
        let session = || line.get(1..)?.parse::<SessionId>().ok();
        match line.as_bytes().first() {
            Some(b's') => session().map_or(Hint::Anything, Hint::Session),
            Some(b'c') => session().map_or(Hint::Anything, Hint::Control),
            Some(b'r') => Hint::Runnable,
            _ => Hint::Anything,
        }
    };
    text.lines().map(hint).collect::<Vec<_>>().into_iter()
}
