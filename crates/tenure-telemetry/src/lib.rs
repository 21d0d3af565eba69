//! Metrics and traces, for the people who run an installation.
//!
//! [`Registry`] holds instruments whose series are bounded, and is written as OpenMetrics text.
//! [`Tracer`] makes spans; an [`Exporter`] sends them to a collector by OTLP (http/protobuf) from a
//! queue with bounds, so that a collector that is slow, dead or wrong never slows the work: what does
//! not fit is dropped and counted.
//!
//! This crate knows nothing of sessions. Its wall clock is for people alone: no time that it reads is
//! ever compared with one of the store (hazard Z-24).

mod clock;
mod metrics;
mod settings;
mod telemetry;
mod trace;

pub use metrics::snapshot::{Family, Sample, Sampled, merge};
pub use metrics::text::{Format, write};
pub use metrics::{Counter, Gauge, Histogram, Kind, MAX_LABEL_BYTES, MAX_SERIES, OVERFLOW, Registry, Spec, buckets};
pub use settings::{Content, Settings, SettingsError};
pub use telemetry::{METERS, Telemetry};
pub use trace::export::{Exporter, MAX_BATCH, MAX_QUEUED_BYTES, MAX_QUEUED_SPANS, Mask};
pub use trace::{MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES, Span, SpanContext, SpanId, SpanKind, TraceId, Tracer, Value};
