//! What a server counts.

use std::time::Duration;
use tenure_telemetry::{Counter, Gauge, Histogram, Kind, Registry, Spec, buckets};

const REQUEST_DURATION: Spec = Spec {
    name: "http_server_request_duration_seconds",
    kind: Kind::Histogram(buckets::SECONDS),
    labels: &["http_request_method", "http_route", "http_response_status_code"],
    help: "How long requests took until their reply began; a request without a route has an empty one.",
};
const STREAMS_OPEN: Spec =
    Spec { name: "tenure_streams_open", kind: Kind::Gauge, labels: &[], help: "Event streams that are open now." };
const PREVIEWS_DROPPED: Spec = Spec {
    name: "tenure_previews_dropped",
    kind: Kind::Counter,
    labels: &[],
    help: "Preview frames that readers were too slow for; each starts again from what is kept of the message.",
};
const SESSIONS: Spec = Spec {
    name: "tenure_sessions",
    kind: Kind::Gauge,
    labels: &["state"],
    help: "Sessions of all tenants by their state in the store: queued, leased, parked or ended.",
};
const OLDEST_QUEUED: Spec = Spec {
    name: "tenure_oldest_queued_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "How long the oldest queued session has been waiting for a worker; 0 if none waits.",
};
const NODES: Spec = Spec {
    name: "tenure_nodes",
    kind: Kind::Gauge,
    labels: &["state"],
    help: "Workers by what the store knows of them: alive or dead.",
};
const NODES_LEASES: Spec = Spec {
    name: "tenure_leases_owned",
    kind: Kind::Gauge,
    labels: &[],
    help: "Leases that all live workers own, as the store knows it.",
};
const NODES_SILENT: Spec = Spec {
    name: "tenure_nodes_silent",
    kind: Kind::Gauge,
    labels: &[],
    help: "Live workers that did not say in time what they counted; their series are missing in this text.",
};

const CONDITION_WAITING: Spec = Spec {
    name: "tenure_condition_waiting",
    kind: Kind::Gauge,
    labels: &["credential", "model", "class", "stage"],
    help: "Sessions of all tenants that are parked on a condition of an upstream; no model is every model of the credential.",
};

/// The instruments of a server.
pub const METERS: &[Spec] = &[
    REQUEST_DURATION,
    STREAMS_OPEN,
    PREVIEWS_DROPPED,
    SESSIONS,
    OLDEST_QUEUED,
    NODES,
    NODES_LEASES,
    NODES_SILENT,
    CONDITION_WAITING,
];

/// Counts what a server does.
#[derive(Debug)]
pub(crate) struct Meters {
    request_duration: Histogram,
    pub(crate) streams_open: Gauge,
    pub(crate) previews_dropped: Counter,
    pub(crate) sessions: Gauge,
    pub(crate) oldest_queued: Gauge,
    pub(crate) nodes: Gauge,
    pub(crate) leases_owned: Gauge,
    pub(crate) nodes_silent: Gauge,
    pub(crate) condition_waiting: Gauge,
}

impl Meters {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            request_duration: registry.histogram(&REQUEST_DURATION),
            streams_open: registry.gauge(&STREAMS_OPEN),
            previews_dropped: registry.counter(&PREVIEWS_DROPPED),
            sessions: registry.gauge(&SESSIONS),
            oldest_queued: registry.gauge(&OLDEST_QUEUED),
            nodes: registry.gauge(&NODES),
            leases_owned: registry.gauge(&NODES_LEASES),
            nodes_silent: registry.gauge(&NODES_SILENT),
            condition_waiting: registry.gauge(&CONDITION_WAITING),
        }
    }

    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        // A method is whatever the client writes.
        let method = match method {
            "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS" => method,
            _ => "_OTHER",
        };
        self.request_duration.observe(&[method, route, &status.to_string()], took.as_secs_f64());
    }
}
