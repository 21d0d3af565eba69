//! What a process hands to its parts: where they count and where they trace.

use crate::metrics::{Kind, Registry, Spec};
use crate::trace::Tracer;

/// Instruments and spans of a process; the default counts into nothing that anybody reads, and traces
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// All instruments.
    pub registry: Registry,
    /// Makes spans.
    pub tracer: Tracer,
}

pub(crate) const SPANS_EXPORTED: Spec =
    Spec { name: "tenure_spans_exported", kind: Kind::Counter, labels: &[], help: "Spans that the collector took." };

pub(crate) const SPANS_DROPPED: Spec = Spec {
    name: "tenure_spans_dropped",
    kind: Kind::Counter,
    labels: &["reason"],
    help: "Spans that were dropped: queue_full, collector (unreachable, too slow or refusing) or stopped.",
};

/// The instruments of this crate.
pub const METERS: &[Spec] = &[SPANS_EXPORTED, SPANS_DROPPED];
