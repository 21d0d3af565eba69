//! Spans in bins: what begins in equal stretches of a long log.
//!
//! The length of the log need not be known: when there are too many bins, each two of them become one.

use super::change::{Change, Kind, changes};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tenure_api::time;
use tenure_api::timeline::{WireBinned, WireSpan};
use tenure_core::{Event, Timestamp};
use tenure_store::PastLease;

/// Most bins of one page; an even number, so that two always become one.
const MAX_BINS: usize = 512;

/// Rows of a bin at first.
const FIRST_WIDTH: u64 = 16;

/// Bins over a range of rows.
pub(super) struct Bins {
    /// The row before the first one.
    after: u64,
    /// Rows of each bin.
    width: u64,
    bins: Vec<Bin>,
    open: BTreeMap<Kind, Open>,
    spans: u64,
}

struct Bin {
    from_seq: u64,
    to_seq: u64,
    start: Timestamp,
    end: Timestamp,
    spans: BTreeMap<String, WireBinned>,
}

struct Open {
    seq: u64,
    at: Timestamp,
}

impl Bins {
    pub(super) fn new(after: u64) -> Self {
        Self { after, width: FIRST_WIDTH, bins: Vec::new(), open: BTreeMap::new(), spans: 0 }
    }

    /// How many spans are in them.
    pub(super) fn spans(&self) -> u64 {
        self.spans
    }

    pub(super) fn take(&mut self, row: &Event) {
        self.reach(row);
        for change in changes(row) {
            match change {
                Change::Opens { kind, .. } => {
                    if let Entry::Vacant(place) = self.open.entry(kind) {
                        place.insert(Open { seq: row.seq, at: row.at });
                        self.count(row.seq, kind.word());
                    }
                }
                Change::Closes { kind, outcome } => {
                    if let Some(open) = self.open.remove(&kind) {
                        self.end(open.seq, kind.word(), row.at.since(open.at), outcome);
                    }
                }
            }
        }
    }

    /// Adds a lease where it began. After all rows: a lease may have begun behind the last one.
    pub(super) fn lease(&mut self, lease: &PastLease) {
        self.count(lease.from_seq + 1, "lease");
        if let Some(end) = lease.end {
            self.end(lease.from_seq + 1, "lease", end.at.since(lease.from), end.how.name());
        }
    }

    pub(super) fn show(self) -> Vec<WireSpan> {
        self.bins.into_iter().map(Bin::show).collect()
    }

    /// Makes the bin of a row the last one, or finds it so.
    fn reach(&mut self, row: &Event) {
        if let Some(last) = self
            .bins
            .last_mut()
            .filter(|last| (row.seq - self.after - 1) / self.width == (last.from_seq - self.after - 1) / self.width)
        {
            last.to_seq = row.seq;
            last.end = last.end.max(row.at);
            return;
        }
        if self.bins.len() == MAX_BINS {
            self.width *= 2;
            let halves = std::mem::take(&mut self.bins);
            let mut halves = halves.into_iter();
            while let Some(first) = halves.next() {
                self.bins.push(match halves.next() {
                    Some(second) => first.and(second),
                    None => first,
                });
            }
        }
        self.bins.push(Bin { from_seq: row.seq, to_seq: row.seq, start: row.at, end: row.at, spans: BTreeMap::new() });
    }

    /// The bin of a row; the last one for a row that is not there yet.
    fn bin(&mut self, seq: u64) -> Option<&mut Bin> {
        let place = usize::try_from((seq - self.after - 1) / self.width).unwrap_or(usize::MAX);
        let place = place.min(self.bins.len().saturating_sub(1));
        self.bins.get_mut(place)
    }

    fn count(&mut self, seq: u64, kind: &str) {
        self.spans += 1;
        if let Some(bin) = self.bin(seq) {
            bin.spans.entry(kind.to_owned()).or_default().count += 1;
        }
    }

    fn end(&mut self, seq: u64, kind: &str, took: u64, outcome: &str) {
        if let Some(binned) = self.bin(seq).and_then(|bin| bin.spans.get_mut(kind)) {
            binned.duration_ms += took;
            *binned.outcomes.entry(outcome.to_owned()).or_default() += 1;
        }
    }
}

impl Bin {
    /// This one and the next as one.
    fn and(mut self, next: Self) -> Self {
        self.to_seq = next.to_seq;
        self.end = self.end.max(next.end);
        for (kind, more) in next.spans {
            let binned = self.spans.entry(kind).or_default();
            binned.count += more.count;
            binned.duration_ms += more.duration_ms;
            for (outcome, count) in more.outcomes {
                *binned.outcomes.entry(outcome).or_default() += count;
            }
        }
        self
    }

    fn show(self) -> WireSpan {
        WireSpan {
            kind: "bin".into(),
            name: "bin".into(),
            id: format!("bin.{}.{}", self.from_seq, self.to_seq),
            from_seq: self.from_seq,
            to_seq: Some(self.to_seq),
            start: time::write(self.start),
            end: Some(time::write(self.end)),
            duration_ms: Some(self.end.since(self.start)),
            step: None,
            attempt: None,
            epoch: None,
            outcome: None,
            spans: self.spans,
        }
    }
}
