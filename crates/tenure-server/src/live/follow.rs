//! One stream of one session: rows of the log in order, then the open message.
//!
//! Frames are made when the connection asks for them, so a reader that does not read holds one page
//! of rows and a bounded backlog of previews, and nothing grows (case O-059).
//!
//! Order: an open message is shown after the rows that were there when it began (`after_seq`), and
//! never after a later row, which is the end of it.

use super::hub::{AttemptKey, PreviewReader, new_part};
use super::{Cursor, PreviewPlace};
use crate::state::ServerState;
use bytes::Bytes;
use futures_util::FutureExt;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tenure_api::event::{WireEvent, preview_delta, preview_start};
use tenure_api::node::{PreviewFrame, PreviewKind};
use tenure_core::{Body, EventId, SessionId, TenantId};
use tenure_store::{EventQuery, Hint, Kind, Order};
use tokio::sync::broadcast;
use tokio::time::Instant;

/// The first row that there is of each log: nothing removes rows.
const FIRST_SEQ: u64 = 1;

/// A comment goes out so often, so that proxies and readers know that the stream lives.
const COMMENT: Duration = Duration::from_secs(5);

/// The log is read at least so often: hints may be lost.
const POLL: Duration = Duration::from_secs(1);

/// How long later rows wait for the end of an open message: both are told at the same moment, on
/// different ways, and what was said should be shown before it is history.
const GRACE: Duration = Duration::from_millis(20);

/// Most rows that are read at a time; they are all that a slow reader holds.
const PAGE: usize = 64;

/// Bytes of frames that one page aims at: small rows are read by the page, large ones one by one
/// (case O-059).
const PAGE_BYTES: usize = 256 * 1024;

/// What a reader opted in to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Previews of messages.
    pub(crate) message: bool,
    /// The begin of reasoning.
    pub(crate) thinking: bool,
}

/// One stream.
pub(crate) struct Follow {
    state: Arc<ServerState>,
    tenant: TenantId,
    session: SessionId,
    wanted: Wanted,
    /// The newest row that was sent.
    seq: u64,
    hints: broadcast::Receiver<Hint>,
    previews: Option<PreviewReader>,
    /// A preview that waits for the rows before it.
    held: Option<Arc<PreviewFrame>>,
    shown: Option<Shown>,
    /// What the reader had of an open message when it came.
    resumes: Option<PreviewPlace>,
    /// Inputs that were shown while they waited.
    queued: BTreeSet<EventId>,
    out: VecDeque<Bytes>,
    /// Rows that the next page may have.
    page: usize,
    is_stale: bool,
    /// The end of the log was reached once: what comes now is news.
    is_live: bool,
    /// The row that began the open model call.
    open_span: Option<u64>,
    /// Until when later rows wait for the end of the open message.
    grace: Option<Instant>,
    has_ended: bool,
    comment_at: Instant,
    poll_at: Instant,
}

/// The open message as far as it was sent.
struct Shown {
    key: AttemptKey,
    n: u64,
    /// Blocks of it that are reasoning, whose text is not previewed.
    thinking: BTreeSet<EventId>,
    /// Its node said that it has ended: its rows are there.
    is_over: bool,
    /// Some of it was lost on the way: the rest is not shown, its rows will be.
    is_broken: bool,
}

/// What woke the stream.
enum Woken {
    Stop,
    Stale,
    Quiet,
    Preview(Arc<PreviewFrame>),
    Comment,
    Poll,
}

impl Follow {
    /// Begins after `cursor`.
    pub(crate) fn new(
        state: Arc<ServerState>,
        tenant: TenantId,
        session: SessionId,
        cursor: Cursor,
        wanted: Wanted,
    ) -> Self {
        // Before the first read of the log, so that nothing falls between.
        let hints = state.store().hints();
        let previews = (wanted.message || wanted.thinking).then(|| state.previews.read(session));
        let now = Instant::now();
        Self {
            tenant,
            session,
            wanted,
            seq: cursor.seq,
            hints,
            previews,
            held: None,
            shown: None,
            resumes: cursor.preview,
            queued: BTreeSet::new(),
            // Headers and first bytes go out at once, also through proxies.
            out: VecDeque::from([Bytes::from_static(b": tenure\n\n")]),
            page: 1,
            is_stale: true,
            is_live: false,
            open_span: None,
            grace: None,
            has_ended: false,
            comment_at: now + COMMENT,
            poll_at: now + POLL,
            state,
        }
    }

    /// Says that nothing the reader has is of this log, which begins with the rows that follow.
    pub(crate) fn reset_all(&mut self, asked: u64, last_seq: u64) {
        let body = serde_json::json!({
            "type": "session.reset", "session_id": self.session.to_string(), "reason": "beyond_the_log",
            "asked_seq": asked, "first_seq": FIRST_SEQ, "last_seq": last_seq,
        });
        self.out.push_back(frame("session.reset", Some("0"), &body.to_string()));
    }

    /// The next piece of the stream; `None` ends it.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.out.pop_front() {
                return Some(piece);
            }
            if self.has_ended {
                return None;
            }
            // What is said already goes out before later rows, which would make it void.
            if let Some(frame) = self.ready_preview() {
                self.take(frame);
                continue;
            }
            if self.is_stale {
                if let Some(frame) = self.late_preview().await {
                    self.take(frame);
                    continue;
                }
                self.is_stale = false;
                self.read_log().await;
                continue;
            }
            match self.wait().await {
                Woken::Stop => {
                    self.out.push_back(Bytes::from_static(b": the server stops; connect again with your last id\n\n"));
                    self.has_ended = true;
                }
                Woken::Stale => self.is_stale = true,
                Woken::Quiet => {}
                Woken::Preview(frame) => self.take(frame),
                Woken::Comment => {
                    self.out.push_back(Bytes::from_static(b": alive\n\n"));
                    self.comment_at = Instant::now() + COMMENT;
                }
                Woken::Poll => {
                    self.is_stale = true;
                    self.poll_at = Instant::now() + POLL;
                }
            }
        }
    }

    /// A preview that can be shown now, without waiting for one.
    fn ready_preview(&mut self) -> Option<Arc<PreviewFrame>> {
        if self.held.is_some() {
            return self.held.take_if(|frame| frame.after_seq <= self.seq);
        }
        self.previews.as_mut()?.next().now_or_never()
    }

    /// The next preview of a message that is open, if it comes within the grace.
    async fn late_preview(&mut self) -> Option<Arc<PreviewFrame>> {
        let is_open = self.open_span.is_some() || self.shown.as_ref().is_some_and(|shown| !shown.is_over);
        let previews = self.previews.as_mut().filter(|_| is_open && self.is_live && self.held.is_none());
        let until = *self.grace.get_or_insert_with(|| Instant::now() + GRACE);
        let frame = match previews {
            Some(previews) => tokio::time::timeout_at(until, previews.next()).await.ok(),
            None => None,
        };
        if frame.is_none() {
            self.grace = None;
        }
        frame
    }

    /// Shows a preview, or holds it until the rows before it were sent.
    fn take(&mut self, frame: Arc<PreviewFrame>) {
        if frame.after_seq > self.seq {
            self.held = Some(frame);
            self.is_stale = true;
        } else {
            self.show(&frame);
        }
    }

    async fn wait(&mut self) -> Woken {
        let can_show = self.held.is_none();
        let preview = async {
            match &mut self.previews {
                Some(previews) if can_show => previews.next().await,
                Some(_) | None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.state.config.stop.cancelled() => Woken::Stop,
            hint = self.hints.recv() => match hint {
                Ok(Hint::Session(session) | Hint::Control(session)) if session != self.session => Woken::Quiet,
                Ok(Hint::Runnable) => Woken::Quiet,
                Ok(Hint::Session(_) | Hint::Control(_) | Hint::Anything) | Err(broadcast::error::RecvError::Lagged(_)) => Woken::Stale,
                // The store is closing; the poll says so.
                Err(broadcast::error::RecvError::Closed) => {
                    tokio::time::sleep_until(self.poll_at).await;
                    Woken::Poll
                }
            },
            frame = preview => Woken::Preview(frame),
            () = tokio::time::sleep_until(self.comment_at) => Woken::Comment,
            () = tokio::time::sleep_until(self.poll_at) => Woken::Poll,
        }
    }

    /// Sends the rows after the newest one that was sent, and the inputs that wait.
    async fn read_log(&mut self) {
        // Not beyond a preview that waits: it belongs between these rows and those after them.
        let before = self.held.as_ref().map_or(u64::MAX, |frame| frame.after_seq - self.seq);
        let limit = usize::try_from(before).unwrap_or(PAGE).min(self.page);
        let query = EventQuery {
            tenant: self.tenant.clone(),
            session: self.session,
            after: Some(self.seq),
            order: Order::Ascending,
            limit,
        };
        let rows = match self.state.store().events(query).await {
            Ok(rows) => rows,
            Err(error) => return self.fail(&error).await,
        };
        let (mut is_cut, mut begins_call, mut bytes) = (rows.len() == limit, false, 0);
        for row in &rows {
            if begins_call && self.is_live && self.previews.is_some() {
                // The whole call was quicker than the last read: later rows have their grace too.
                is_cut = true;
                break;
            }
            begins_call = matches!(row.body, Body::SpanStart { .. });
            let wire = self.state.shown(self.session, row);
            self.seq = row.seq;
            self.queued.remove(&row.id);
            match row.body {
                Body::SpanStart { .. } => self.open_span = Some(row.seq),
                Body::SpanEnd { .. } => self.open_span = None,
                _ => {}
            }
            let frame = frame(wire.type_name(), Some(&self.seq.to_string()), &to_json(&wire));
            bytes += frame.len();
            self.out.push_back(frame);
        }
        if !rows.is_empty() {
            self.page = next_page(self.page, rows.len(), bytes);
            // Their end resets what was shown of an open message, also for a reader that came back.
            self.shown = None;
            self.resumes = None;
        }
        if is_cut {
            self.is_stale = true;
        } else {
            self.is_live = true;
        }
        if !is_cut && !self.has_ended {
            self.read_head().await;
        }
    }

    /// Looks whether anything can still come, and shows inputs that wait: once, and without an id
    /// (hazard Z-27).
    async fn read_head(&mut self) {
        let view = match self.state.store().session(&self.tenant, self.session).await {
            Ok(Some(view)) => view,
            Ok(None) => return self.deleted().await,
            Err(error) => return self.fail(&error).await,
        };
        if view.session.has_ended() {
            // All of it was sent, unless the last rows came after they were read.
            let is_whole = view.session.last_seq <= self.seq;
            self.has_ended = is_whole;
            self.is_stale = !is_whole;
            return;
        }
        if view.inbox_len == 0 {
            return;
        }
        let inbox = match self.state.store().inbox(self.session).await {
            Ok(inbox) => inbox,
            Err(error) => return self.fail(&error).await,
        };
        for (_, input) in inbox {
            if let Some(wire) = WireEvent::queued(&input)
                && self.queued.insert(input.id)
            {
                self.out.push_back(frame(wire.type_name(), None, &to_json(&wire)));
            }
        }
    }

    /// Says that the session is gone. No row says it: its log is gone too, so the event has the same
    /// id for every reader, and the time of the telling.
    async fn deleted(&mut self) {
        let id = EventId::from_bits(self.session.bits());
        let at = self.state.store().now().await.map(tenure_api::time::write).ok();
        let gone = serde_json::json!({
            "type": "session.deleted", "id": id.to_string(), "session_id": self.session.to_string(), "seq": null, "processed_at": at,
        });
        self.out.push_back(frame("session.deleted", None, &gone.to_string()));
        self.has_ended = true;
    }

    /// A store that is busy is asked again; anything else ends the stream with an error that says so
    /// (case O-062).
    async fn fail(&mut self, error: &tenure_store::Error) {
        match error.kind {
            Kind::Retry => {}
            Kind::NotFound => self.deleted().await,
            Kind::Fenced
            | Kind::Conflict
            | Kind::IdempotencyMismatch
            | Kind::Invalid
            | Kind::Full
            | Kind::NoSpace
            | Kind::Corrupt
            | Kind::Broken => {
                tracing::error!(session = %self.session, %error, "read events for a stream");
                let body = serde_json::json!({
                    "type": "error",
                    "error": {"type": "api_error", "code": "store_broken", "message": "the store cannot be read; connect again with your last id"},
                });
                self.out.push_back(frame("error", None, &body.to_string()));
                self.has_ended = true;
            }
        }
    }

    /// Shows what a preview adds to what was sent already.
    fn show(&mut self, frame: &PreviewFrame) {
        let key = AttemptKey::of(frame);
        // Its rows were sent: this comes too late.
        if frame.kind == PreviewKind::End {
            self.open_span = self.open_span.filter(|seq| *seq != frame.after_seq);
            if let Some(shown) = self.shown.as_mut().filter(|shown| shown.key == key) {
                shown.is_over = true;
            }
            self.is_stale = true;
            return;
        }
        if frame.after_seq < self.seq {
            return;
        }
        if self.shown.as_ref().is_none_or(|shown| shown.key != key) {
            let n = match self.resumes.take() {
                Some(place) if place.epoch == key.epoch && place.attempt == key.attempt => place.n,
                // The reader has a part of another attempt, and no row ends it (hazard Z-26).
                Some(_) => {
                    self.reset();
                    0
                }
                None => 0,
            };
            if self.shown.is_some() {
                self.reset();
            }
            self.shown = Some(Shown { key, n, thinking: BTreeSet::new(), is_over: false, is_broken: false });
        }
        let Some(shown) = &mut self.shown else { return };
        // Also of a block whose begin the reader had when it came.
        if let PreviewKind::Start { event_id, event_type } = &frame.kind
            && event_type == "agent.thinking"
        {
            shown.thinking.insert(*event_id);
        }
        if shown.is_broken || frame.n <= shown.n {
            return;
        }
        let len = match &frame.kind {
            PreviewKind::Start { .. } => 1,
            PreviewKind::Delta { text, .. } => text.len() as u64,
            PreviewKind::End => 0,
        };
        if frame.n.saturating_sub(len) > shown.n {
            // Text is missing: a message is never glued together (hazard Z-48).
            shown.is_broken = true;
            if shown.n > 0 {
                self.reset();
            }
            return;
        }
        let have = std::mem::replace(&mut shown.n, frame.n);
        let is_thinking =
            matches!(&frame.kind, PreviewKind::Delta { event_id, .. } if shown.thinking.contains(event_id));
        let place = PreviewPlace { epoch: key.epoch, attempt: key.attempt, n: frame.n };
        let id = Cursor { seq: self.seq, preview: Some(place) }.to_string();
        match &frame.kind {
            PreviewKind::Start { event_id, event_type } => {
                if self.wants(event_type) {
                    let body = preview_start(&event_id.to_string(), event_type, key.attempt);
                    self.out.push_back(self::frame("event_start", Some(&id), &body.to_string()));
                }
            }
            PreviewKind::Delta { event_id, text } => {
                if self.wanted.message && !is_thinking {
                    let body = preview_delta(&event_id.to_string(), new_part(text, frame.n, have), key.attempt);
                    self.out.push_back(self::frame("event_delta", Some(&id), &body.to_string()));
                }
            }
            PreviewKind::End => {}
        }
    }

    fn wants(&self, event_type: &str) -> bool {
        match event_type {
            "agent.message" => self.wanted.message,
            "agent.thinking" => self.wanted.thinking,
            _ => false,
        }
    }

    /// Says that what was shown of an open message is void.
    fn reset(&mut self) {
        let body = serde_json::json!({"type": "session.preview_reset", "after_seq": self.seq});
        self.out.push_back(frame("session.preview_reset", Some(&self.seq.to_string()), &body.to_string()));
    }
}

/// How many rows to read after a page of so many rows and bytes.
fn next_page(page: usize, rows: usize, bytes: usize) -> usize {
    let fits = PAGE_BYTES * rows.max(1) / bytes.max(1);
    // Slowly up, at once down.
    fits.min(page * 2).clamp(1, PAGE)
}

fn to_json(event: &WireEvent) -> String {
    serde_json::to_string(event).expect("texts and numbers are always JSON")
}

/// One frame: always with its type, because the official clients drop frames without it.
fn frame(event: &str, id: Option<&str>, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + event.len() + 64);
    text.push_str("event: ");
    text.push_str(event);
    if let Some(id) = id {
        text.push_str("\nid: ");
        text.push_str(id);
    }
    // JSON of ours has no line breaks outside of escapes.
    text.push_str("\ndata: ");
    text.push_str(data);
    text.push_str("\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_059_pages_grow_with_small_rows_and_shrink_with_large_ones() {
        let mut page = 1;
        for _ in 0..10 {
            page = next_page(page, page, page * 300);
        }
        assert_eq!(page, PAGE);
        assert_eq!(next_page(PAGE, PAGE, PAGE * 1024 * 1024), 1);
        assert_eq!(next_page(1, 1, usize::MAX / 2), 1);
        assert_eq!(next_page(4, 4, 4 * 32 * 1024), 8);
    }
}
