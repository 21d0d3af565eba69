//! Spans one by one.

use super::change::{Change, Kind, changes};
use std::collections::BTreeMap;
use tenure_api::time;
use tenure_api::timeline::WireSpan;
use tenure_core::{Event, SessionId, Timestamp};
use tenure_store::PastLease;

/// Spans that begin in a range of rows, and those rows after it that end them.
pub(super) struct Spans {
    session: SessionId,
    /// The last row whose spans are shown.
    last: u64,
    spans: Vec<Span>,
    /// Places of those that are open.
    open: BTreeMap<Kind, usize>,
}

struct Span {
    wire: WireSpan,
    started: Timestamp,
}

impl Spans {
    pub(super) fn new(session: SessionId, last: u64) -> Self {
        Self { session, last, spans: Vec::new(), open: BTreeMap::new() }
    }

    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn take(&mut self, row: &Event) {
        for change in changes(row) {
            match change {
                Change::Opens { kind, name, attempt } => {
                    if row.seq <= self.last && !self.open.contains_key(&kind) {
                        self.open.insert(kind, self.spans.len());
                        self.spans.push(begin(row, kind, name, attempt));
                    }
                }
                Change::Closes { kind, outcome } => {
                    if let Some(span) = self.open.remove(&kind).and_then(|place| self.spans.get_mut(place)) {
                        span.wire.to_seq = Some(row.seq);
                        span.wire.end = Some(time::write(row.at));
                        span.wire.duration_ms = Some(row.at.since(span.started));
                        span.wire.outcome = Some(outcome.into());
                    }
                }
            }
        }
    }

    /// All of them with these leases, in the order in which they began.
    pub(super) fn show<'a>(self, leases: impl Iterator<Item = &'a PastLease>) -> Vec<WireSpan> {
        let session = self.session;
        let leases = leases.map(|lease| held(session, lease));
        let mut spans: Vec<WireSpan> = leases.chain(self.spans.into_iter().map(|span| span.wire)).collect();
        // A lease comes before the first row that it could write.
        spans.sort_by_key(|span| span.from_seq);
        spans
    }
}

fn begin(row: &Event, kind: Kind, name: String, attempt: Option<u32>) -> Span {
    let wire = WireSpan {
        kind: kind.word().into(),
        name,
        id: row.id.to_string(),
        from_seq: row.seq,
        to_seq: None,
        start: time::write(row.at),
        end: None,
        duration_ms: None,
        step: (row.step > 0).then_some(row.step),
        attempt,
        epoch: None,
        outcome: None,
        spans: BTreeMap::new(),
    };
    Span { wire, started: row.at }
}

fn held(session: SessionId, lease: &PastLease) -> WireSpan {
    WireSpan {
        kind: "lease".into(),
        name: lease.node.to_string(),
        id: format!("{session}.{}", lease.epoch),
        from_seq: lease.from_seq + 1,
        to_seq: lease.end.map(|end| end.seq),
        start: time::write(lease.from),
        end: lease.end.map(|end| time::write(end.at)),
        duration_ms: lease.end.map(|end| end.at.since(lease.from)),
        step: None,
        attempt: None,
        epoch: Some(lease.epoch),
        outcome: lease.end.map(|end| end.how.name().into()),
        spans: BTreeMap::new(),
    }
}
