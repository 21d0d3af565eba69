//! An event stream that survives lost connections and restarts of the server.

use super::{Client, Error, Frame, Frames};
use crate::event::STREAM_FROM_HEADER;
use rand::Rng;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Response};
use std::collections::VecDeque;
use std::time::Duration;

/// First wait before a new connection; it doubles, with full jitter.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait before a new connection.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A stream without a byte for so long is dead: the server sends a comment every 5 s.
const SILENCE: Duration = Duration::from_secs(20);
/// Connections that fail in a row before the stream gives up: about a minute.
const MOST_FAILURES: u32 = 24;

/// Where a stream starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The first event.
    Start,
    /// What happens after the connection stands.
    Now,
    /// After this `seq`.
    After(u64),
}

/// What a stream gives next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame.
    Frame(Frame),
    /// The connection was lost; a new one is tried after this time, nothing is missed.
    Reconnecting {
        /// How many tries failed so far.
        failures: u32,
        /// The wait before the next one.
        wait: Duration,
    },
    /// The stream was opened again.
    Reconnected,
}

/// The events of one session, in order, without gap or repeat.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    session: String,
    from: From,
    previews: bool,
    last_id: Option<String>,
    connection: Option<Response>,
    decoder: Frames,
    ready: VecDeque<Frame>,
    failures: u32,
    pending_wait: Option<Duration>,
}

impl EventStream {
    pub(crate) async fn open(client: Client, session: String, from: From, previews: bool) -> Result<Self, Error> {
        let mut stream = Self {
            client,
            session,
            from,
            previews,
            last_id: None,
            connection: None,
            decoder: Frames::default(),
            ready: VecDeque::new(),
            failures: 0,
            pending_wait: None,
        };
        stream.connect().await?;
        Ok(stream)
    }

    /// The next frame, or news about the connection. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the server refuses the stream or stays away for too long.
    pub async fn next(&mut self) -> Result<Next, Error> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                if let Some(id) = &frame.id {
                    self.last_id = Some(id.clone());
                }
                return Ok(Next::Frame(frame));
            }
            if let Some(wait) = self.pending_wait {
                tokio::time::sleep(wait).await;
                self.pending_wait = None;
            }
            if self.connection.is_none() {
                match self.connect().await {
                    Ok(()) => return Ok(Next::Reconnected),
                    Err(error) if self.is_final(&error) => return Err(error),
                    Err(_) => return Ok(self.wait_again()),
                }
            }
            let connection = self.connection.as_mut().expect("it was made just above");
            match tokio::time::timeout(SILENCE, connection.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.failures = 0;
                    match self.decoder.push(&bytes) {
                        Ok(frames) => self.ready.extend(frames),
                        Err(_) => {
                            return Err(Error::Unreadable {
                                base: self.client.base().to_owned(),
                                reason: format!(
                                    "a frame of the stream is longer than {} bytes",
                                    super::MAX_FRAME_BYTES
                                ),
                            });
                        }
                    }
                }
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    self.connection = None;
                    return Ok(self.wait_again());
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let after = match &self.from {
            From::Start => Some("0".to_owned()),
            From::Now => None,
            From::After(seq) => Some(seq.to_string()),
        };
        let mut query = Vec::new();
        let mut headers = HeaderMap::new();
        match (&self.last_id, &after) {
            (Some(id), _) => {
                let id = HeaderValue::from_str(id).map_err(|_| Error::Unreadable {
                    base: self.client.base().to_owned(),
                    reason: "an id of the stream holds control characters".to_owned(),
                })?;
                headers.insert("last-event-id", id);
            }
            (None, Some(after)) => query.push(("after", after.as_str())),
            (None, None) => {}
        }
        if self.previews {
            query.push(("event_deltas[]", "agent.message"));
        }
        let path = ["v1", "sessions", &self.session, "events", "stream"];
        let request = self.client.request(Method::GET, &path, &query)?.header("accept", "text/event-stream");
        let connection = self.client.send(request, &headers).await?;
        if self.last_id.is_none() {
            // Of a live stream nobody else says where it began.
            let from = connection.headers().get(STREAM_FROM_HEADER).and_then(|from| from.to_str().ok());
            self.last_id = from.map(str::to_owned);
        }
        self.connection = Some(connection);
        self.decoder = Frames::default();
        Ok(())
    }

    /// Whether another try can't help: the server answered, and it was not "later".
    fn is_final(&self, error: &Error) -> bool {
        match error {
            Error::Refused(refusal) => {
                (refusal.status < 500 && refusal.status != 429) || self.failures >= MOST_FAILURES
            }
            Error::Unreachable { .. } => self.failures >= MOST_FAILURES,
            Error::Address { .. } | Error::Unreadable { .. } | Error::Unsendable { .. } => true,
        }
    }

    fn wait_again(&mut self) -> Next {
        let most = FIRST_WAIT.saturating_mul(1 << self.failures.min(8)).min(LONGEST_WAIT);
        let wait = most.mul_f64(rand::rng().random_range(0.1..=1.0));
        self.failures += 1;
        self.pending_wait = Some(wait);
        Next::Reconnecting { failures: self.failures, wait }
    }
}
