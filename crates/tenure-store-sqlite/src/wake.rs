//! Hints to this process and to the others that have the store open (design 7.4).
//!
//! ```text
//! writer ─ COMMIT ─┬─▶ broadcast ─▶ receivers in this process
//!                  └─▶ datagram to wake/<pid>-<random>.sock of each other process ─▶ its broadcast
//! ```
//! A hint makes things faster and is never needed: the writer thread of each process looks at
//! SQLite's `data_version`, which finds every commit of another process.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tenure_core::SessionId;
use tenure_store::Hint;
use tokio::sync::broadcast;

/// Hints that a receiver may be behind before it is told to look at everything.
const BACKLOG: usize = 8_192;

/// How long the list of other processes is used before the folder is read again.
const PEERS: Duration = Duration::from_millis(500);

/// Most hints in one datagram; more become one that says "anything".
const MAX_HINTS: usize = 64;

/// Largest datagram that is read.
const MAX_DATAGRAM: usize = 8_192;

/// How often the listener looks whether the store was closed.
const STOP_LOOK: Duration = Duration::from_millis(250);

/// Sends and receives hints.
#[derive(Debug)]
pub(crate) struct Wake {
    hints: broadcast::Sender<Hint>,
    folder: PathBuf,
    own: PathBuf,
    sender: UnixDatagram,
    peers: Mutex<(Vec<PathBuf>, Option<Instant>)>,
    stop: AtomicBool,
}

impl Wake {
    /// Binds a socket of this process and starts to listen.
    pub(crate) fn start(data: &Path) -> std::io::Result<Arc<Self>> {
        let folder = data.join("wake");
        std::fs::create_dir_all(&folder)?;
        let own = folder.join(format!("{}-{:08x}.sock", std::process::id(), rand::random::<u32>()));
        let sender = UnixDatagram::unbound()?;
        // A full queue of another process must never hold this one up.
        sender.set_nonblocking(true)?;
        let (hints, _) = broadcast::channel(BACKLOG);
        let wake = Arc::new(Self { hints, folder, own, sender, peers: Mutex::default(), stop: AtomicBool::new(false) });
        match UnixDatagram::bind(&wake.own) {
            Ok(socket) => {
                socket.set_read_timeout(Some(STOP_LOOK))?;
                let listener = Arc::downgrade(&wake);
                std::thread::Builder::new().name("store-wake".to_owned()).spawn(move || listen(&listener, &socket))?;
            }
            // A path of more than about 100 bytes cannot be bound.
            Err(error) => {
                tracing::warn!(path = %wake.own.display(), %error, "no wake-up socket; commits of other processes are found by looking");
            }
        }
        Ok(wake)
    }

    /// Hints from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    /// Tells this process and the others about a commit.
    pub(crate) fn send(&self, hints: &[Hint]) {
        if hints.is_empty() {
            return;
        }
        hints.iter().for_each(|hint| self.send_here(*hint));
        let peers = self.peers();
        if peers.is_empty() {
            return;
        }
        let text = encode(hints);
        for peer in peers {
            let sent = self.sender.send_to(text.as_bytes(), &peer);
            if sent.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
                // Its process ended without removing it.
                let _ = std::fs::remove_file(&peer);
            }
        }
    }

    /// Tells this process alone.
    pub(crate) fn send_here(&self, hint: Hint) {
        // Nobody listens: nobody is told.
        let _ = self.hints.send(hint);
    }

    /// Ends the listener and removes the socket.
    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.own);
    }

    fn peers(&self) -> Vec<PathBuf> {
        let mut peers = self.peers.lock().expect("nobody panics while holding it");
        if peers.1.is_none_or(|read_at| read_at.elapsed() >= PEERS) {
            let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
            *peers =
                (entries.map(|entry| entry.path()).filter(|path| *path != self.own).collect(), Some(Instant::now()));
        }
        peers.0.clone()
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.close();
    }
}

fn listen(wake: &Weak<Wake>, socket: &UnixDatagram) {
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        let received = socket.recv(&mut buffer);
        let Some(wake) = wake.upgrade() else { return };
        if wake.stop.load(Ordering::Relaxed) {
            return;
        }
        match received {
            Ok(length) => decode(&buffer[..length]).into_iter().for_each(|hint| wake.send_here(hint)),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) => {
                tracing::warn!(%error, "receive hints; commits of other processes are found by looking");
                return;
            }
        }
    }
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

fn decode(bytes: &[u8]) -> Vec<Hint> {
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
    text.lines().map(hint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_survive_a_datagram_and_too_many_become_one() {
        let session = SessionId::from_bits(7);
        let hints = vec![Hint::Session(session), Hint::Control(session), Hint::Runnable, Hint::Anything];
        assert_eq!(decode(encode(&hints).as_bytes()), hints);
        assert_eq!(decode(encode(&vec![Hint::Runnable; MAX_HINTS + 1]).as_bytes()), vec![Hint::Anything]);
        assert!(encode(&vec![Hint::Session(session); MAX_HINTS]).len() <= MAX_DATAGRAM);
    }

    #[test]
    fn damaged_datagrams_say_look_at_everything() {
        assert_eq!(decode(b"s\nsnonsense\n\xff"), vec![Hint::Anything]);
        assert_eq!(decode(b"snonsense\nr\n"), vec![Hint::Anything, Hint::Runnable]);
    }
}
