//! A connection that ends when its other side reads nothing for too long (case O-059).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A connection with a limit for writes that do not move.
#[derive(Debug)]
pub(super) struct Timed<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    stuck: Pin<Box<Sleep>>,
    is_stuck: bool,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stuck: Box::pin(tokio::time::sleep(limit)), is_stuck: false }
    }

    fn moved<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.is_stuck = false;
            return poll;
        }
        if !self.is_stuck {
            self.is_stuck = true;
            let until = Instant::now() + self.limit;
            self.stuck.as_mut().reset(until);
        }
        ready!(self.stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.moved(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.moved(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.moved(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.moved(cx, poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn o_059_a_write_that_does_not_move_ends_the_connection() {
        let (near, _far) = tokio::io::duplex(16);
        let mut timed = Timed::new(near, Duration::from_millis(50));
        let error = timed.write_all(&[0; 64]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_slow_reader_that_reads_is_not_cut() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut timed = Timed::new(near, Duration::from_secs(60));
        let write = async { timed.write_all(&[7; 64]).await };
        let read = async {
            let mut bytes = [0; 64];
            far.read_exact(&mut bytes).await.map(|_| bytes)
        };
        let (written, read) = tokio::join!(write, read);
        assert!(written.is_ok() && read.is_ok_and(|bytes| bytes == [7; 64]));
    }
}
