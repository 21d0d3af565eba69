//! Between bodies, which are asynchronous, and files, which block: bounded channels.

use crate::error::Result;
use crate::request::Arriving;
use axum::body::Body;
use bytes::{Buf, Bytes};
use futures_util::Stream;
use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Chunks that wait between the two sides.
const CHUNKS: usize = 8;

/// Largest chunk that is written at a time.
const CHUNK_BYTES: usize = 64 * 1024;

type Chunk = io::Result<Bytes>;

/// Reads a body in a thread that may block, while the returned future feeds it.
pub(super) fn from_body(mut body: Arriving) -> (impl Future<Output = Result<()>>, BodyReader) {
    let (feed, chunks) = mpsc::channel::<Chunk>(CHUNKS);
    let pump = async move {
        loop {
            match body.next().await {
                Ok(None) => return Ok(()),
                Ok(Some(chunk)) => {
                    // A reader that has ended says itself why.
                    if feed.send(Ok(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
                Err(error) => {
                    let _ = feed.send(Err(io::Error::other("the body did not arrive as a whole"))).await;
                    return Err(error);
                }
            }
        }
    };
    (pump, BodyReader { chunks, current: Bytes::new() })
}

/// The blocking side of a body.
pub(super) struct BodyReader {
    chunks: mpsc::Receiver<Chunk>,
    current: Bytes,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                None => return Ok(0),
                Some(chunk) => self.current = chunk?,
            }
        }
        let len = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}

/// A body that is written in a thread that may block.
pub(super) fn to_body() -> (BodyWriter, Body) {
    let (feed, chunks) = mpsc::channel::<Chunk>(CHUNKS);
    (BodyWriter { feed, pending: Vec::new() }, Body::from_stream(Chunks(chunks)))
}

struct Chunks(mpsc::Receiver<Chunk>);

impl Stream for Chunks {
    type Item = Chunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        self.0.poll_recv(cx)
    }
}

/// The blocking side of a body.
pub(super) struct BodyWriter {
    feed: mpsc::Sender<Chunk>,
    pending: Vec<u8>,
}

impl BodyWriter {
    /// Ends the body: in good order, or so that the client sees that it is not whole.
    pub(super) fn end(mut self, result: Result<(), String>) {
        let result = result.map_err(io::Error::other).and_then(|()| self.flush());
        if let Err(error) = result {
            let _ = self.feed.blocking_send(Err(error));
        }
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.pending));
        self.feed.blocking_send(Ok(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
