//! Drains the output of a command: beginning and end in memory, all of it in a log up to a cap.
//!
//! The pipe is emptied as fast as it fills, also after the caps, so that no command blocks on a
//! full pipe and none costs memory. Background processes may write for as long as they live.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

/// Bytes read in one go.
const CHUNK_BYTES: usize = 64 * 1024;

/// What is kept of an output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) head: Vec<u8>,
    pub(crate) tail: VecDeque<u8>,
    pub(crate) total: u64,
}

/// A running drain.
pub(crate) struct Spool {
    kept: Arc<Mutex<Kept>>,
    settle: Option<oneshot::Sender<oneshot::Sender<()>>>,
    done: watch::Receiver<bool>,
}

/// Makes the pipe for a command and starts to drain it. Returns the end that the command writes to.
pub(crate) fn start(log: &PathBuf, log_bytes: u64, kept_bytes: usize) -> io::Result<(Spool, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
    // A larger pipe means fewer wake-ups; a refusal costs nothing.
    let _ = rustix::pipe::fcntl_setpipe_size(&read, 1024 * 1024);
    let read = pipe::Receiver::from_owned_fd(read)?;
    let log = File::create(log)?;
    let kept = Arc::new(Mutex::new(Kept::default()));
    let (settle, settled) = oneshot::channel();
    let (finished, done) = watch::channel(false);
    let drain = Drain { kept: Arc::clone(&kept), log, log_room: log_bytes, half: kept_bytes / 2 };
    tokio::spawn(async move {
        drain.run(read, settled).await;
        finished.send_replace(true);
    });
    Ok((Spool { kept, settle: Some(settle), done }, write))
}

impl Spool {
    /// Waits until everything that was in the pipe at the time of the call has been taken.
    pub(crate) async fn settle(&mut self) -> Kept {
        if let Some(settle) = self.settle.take() {
            let (answer, answered) = oneshot::channel();
            // A closed channel means that the drain has met the end: nothing is left to take.
            if settle.send(answer).is_ok() {
                let mut done = self.done.clone();
                tokio::select! {
                    _ = answered => {}
                    _ = done.wait_for(|done| *done) => {}
                }
            } else {
                let _ = self.done.wait_for(|done| *done).await;
            }
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Drain {
    kept: Arc<Mutex<Kept>>,
    log: File,
    log_room: u64,
    half: usize,
}

impl Drain {
    async fn run(mut self, read: pipe::Receiver, mut settled: oneshot::Receiver<oneshot::Sender<()>>) {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut asked = false;
        loop {
            tokio::select! {
                biased;
                answer = &mut settled, if !asked => {
                    asked = true;
                    let Ok(answer) = answer else { continue };
                    let mut waiting = rustix::io::ioctl_fionread(&read).unwrap_or(0);
                    while waiting > 0 {
                        match rustix::io::read(&read, &mut chunk[..]) {
                            Ok(0) => break,
                            Ok(count) => {
                                self.take(chunk.get(..count).unwrap_or_default());
                                waiting = waiting.saturating_sub(count as u64);
                            }
                            Err(_) => break,
                        }
                    }
                    // The caller may have gone.
                    let _ = answer.send(());
                }
                ready = read.readable() => {
                    if ready.is_err() {
                        return;
                    }
                    match read.try_read(&mut chunk) {
                        Ok(0) => return,
                        Ok(count) => self.take(chunk.get(..count).unwrap_or_default()),
                        Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                        Err(_) => return,
                    }
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.log_room).unwrap_or(usize::MAX).min(bytes.len());
        let logged = bytes.get(..room).unwrap_or_default();
        // A log that cannot be written must not stop the command; the counters stay true.
        self.log_room = match self.log.write_all(logged) {
            Ok(()) => self.log_room - room as u64,
            Err(_) => 0,
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.total += bytes.len() as u64;
        let to_head = (self.half - kept.head.len().min(self.half)).min(bytes.len());
        let (first, rest) = bytes.split_at(to_head);
        kept.head.extend_from_slice(first);
        kept.tail.extend(rest.iter().skip(rest.len().saturating_sub(self.half)));
        let excess = kept.tail.len().saturating_sub(self.half);
        kept.tail.drain(..excess);
    }
}
