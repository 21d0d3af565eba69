//! From a bounded queue to a collector.
//!
//! ```text
//! span ends ─▶ offer ─▶ queue ─▶ batch ─▶ POST ─┬─▶ taken: exported
//!                └─ full: dropped               └─▶ refused, slow or away: again, then dropped
//! ```
//! Whoever ends a span never waits: the queue takes it or not. One request is under way at a time, so
//! a slow collector fills the queue and nothing else.

use super::{Ended, Tracer, otlp};
use crate::metrics::Counter;
use crate::settings::{Settings, SettingsError, Target};
use crate::telemetry::{SPANS_DROPPED, SPANS_EXPORTED, Telemetry};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Most spans that wait.
pub const MAX_QUEUED_SPANS: usize = 4_096;

/// Most bytes that the waiting spans hold.
pub const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// Most spans in one request.
pub const MAX_BATCH: usize = 512;

/// How long a batch waits for more spans.
const LINGER: Duration = Duration::from_secs(1);

/// Most tries of one batch.
const MAX_TRIES: u32 = 3;

/// Longest wait before the second try; twice as long before the next.
const AGAIN: Duration = Duration::from_millis(500);

/// Longest wait that a collector may ask for.
const MAX_HINT: Duration = Duration::from_secs(5);

/// How long the last spans may take when the process stops.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Takes known secrets out of a text.
pub type Mask = Arc<dyn Fn(String) -> String + Send + Sync>;

/// Where spans go when they end.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Ended>,
    bytes: Arc<AtomicUsize>,
    dropped: Counter,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    /// Takes a span, or drops it; never waits.
    pub(crate) fn offer(&self, span: Ended) {
        let size = span.size();
        let is_full = self.bytes.fetch_add(size, Ordering::Relaxed) + size > MAX_QUEUED_BYTES;
        if is_full || self.sender.try_send(span).is_err() {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            self.dropped.add(&["queue_full"], 1);
        }
    }
}

/// Sends spans to a collector, in a task of its own.
#[derive(Debug)]
pub struct Exporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Makes `telemetry` trace to the collector that the settings and the environment name; `None` if
    /// they name none. Call inside a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with which setting.
    pub fn start(
        telemetry: &mut Telemetry,
        settings: &Settings,
        variable: &dyn Fn(&str) -> Option<String>,
        mask: Mask,
    ) -> Result<Option<Self>, SettingsError> {
        let Some(target) = settings.target(variable)? else { return Ok(None) };
        let problem =
            |error: reqwest::Error| SettingsError { setting: "telemetry.otlp_endpoint", problem: error.to_string() };
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(target.timeout)
            .default_headers(target.headers.clone())
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(problem)?;
        let (sender, spans) = mpsc::channel(MAX_QUEUED_SPANS);
        let (bytes, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let dropped = telemetry.registry.counter(&SPANS_DROPPED);
        let exported = telemetry.registry.counter(&SPANS_EXPORTED);
        let queue = Queue { sender, bytes: bytes.clone(), dropped: dropped.clone() };
        telemetry.tracer = Tracer::new(queue, target.content);
        let sending = Sending { client, target, mask, exported, dropped, is_failing: false };
        let task = tokio::spawn(run(spans, bytes, sending, stop.clone()));
        Ok(Some(Self { stop, task }))
    }

    /// Sends what waits, within a short time, and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

async fn run(mut spans: mpsc::Receiver<Ended>, bytes: Arc<AtomicUsize>, mut sending: Sending, stop: CancellationToken) {
    let mut batch = Vec::new();
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => {}
            () = fill(&mut spans, &mut batch) => {}
        }
        let ready = take(&mut batch, &bytes);
        tokio::select! {
            () = stop.cancelled() => batch = ready,
            () = sending.send(&ready) => {}
        }
    }
    spans.close();
    let flush = async {
        loop {
            while batch.len() < MAX_BATCH
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            sending.send(&batch).await;
            batch.clear();
        }
    };
    if tokio::time::timeout(FLUSH_WITHIN, flush).await.is_err() {
        let left = batch.len() + spans.len();
        sending.dropped.add(&["stopped"], left as u64);
    }
}

/// Waits for a span, then a while for more.
async fn fill(spans: &mut mpsc::Receiver<Ended>, batch: &mut Vec<Ended>) {
    if spans.recv_many(batch, MAX_BATCH).await == 0 {
        // Nobody can end a span any more; wait for the stop.
        return std::future::pending().await;
    }
    let more = async {
        while batch.len() < MAX_BATCH {
            let room = MAX_BATCH - batch.len();
            if spans.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, more).await;
}

fn take(batch: &mut Vec<Ended>, bytes: &AtomicUsize) -> Vec<Ended> {
    let size = batch.iter().map(Ended::size).sum();
    bytes.fetch_sub(size, Ordering::Relaxed);
    std::mem::take(batch)
}

struct Sending {
    client: Client,
    target: Target,
    mask: Mask,
    exported: Counter,
    dropped: Counter,
    /// Whether the newest batch was not taken; it is logged once.
    is_failing: bool,
}

enum Refused {
    /// Worth another try, after this long if the collector says so.
    Retry(String, Option<Duration>),
    /// The same again would be refused again.
    ForGood(String),
}

impl Sending {
    async fn send(&mut self, batch: &[Ended]) {
        if batch.is_empty() {
            return;
        }
        let masked: Vec<Ended> = batch.iter().cloned().map(|span| span.mask(&*self.mask)).collect();
        let body = otlp::request(&self.target.resource, &masked);
        let mut tries = 1;
        let why = loop {
            let (why, wait) = match self.post(body.clone()).await {
                Ok(()) => {
                    self.exported.add(&[], batch.len() as u64);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the collector takes spans again");
                    }
                    return;
                }
                Err(Refused::ForGood(why)) => break why,
                Err(Refused::Retry(why, hint)) => (why, hint),
            };
            if tries >= MAX_TRIES {
                break why;
            }
            // Full jitter, on top of what the collector asks for.
            let jitter = (AGAIN * 2_u32.pow(tries - 1)).mul_f64(rand::random_range(0.0..=1.0));
            tokio::time::sleep(wait.unwrap_or_default().min(MAX_HINT) + jitter).await;
            tries += 1;
        };
        self.dropped.add(&["collector"], batch.len() as u64);
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(spans = batch.len(), why, "the collector takes no spans; they are dropped until it does");
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), Refused> {
        let request = self.client.post(self.target.url.clone()).header(CONTENT_TYPE, "application/x-protobuf");
        // The address may hold a password: it is not in the words.
        let response =
            request.body(body).send().await.map_err(|error| Refused::Retry(words(error.without_url()), None))?;
        let status = response.status();
        let hint = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        match status {
            _ if status.is_success() => Ok(()),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Refused::Retry(status.to_string(), hint.map(Duration::from_secs))),
            _ => Err(Refused::ForGood(status.to_string())),
        }
    }
}

/// An error with what lies below it.
fn words(error: reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut below: Option<&dyn std::error::Error> = std::error::Error::source(&error);
    while let Some(error) = below {
        words = format!("{words}: {error}");
        below = error.source();
    }
    words
}
