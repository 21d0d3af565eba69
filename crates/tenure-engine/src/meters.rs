//! What a worker counts.
//!
//! Names follow the conventions of OpenTelemetry for GenAI where they have one (dots become
//! underscores); what they have no name for begins with `tenure_`.

use std::time::Duration;
use tenure_api::event::outcome_word;
use tenure_core::{Outcome, Usage};
use tenure_telemetry::{Counter, Gauge, Histogram, Kind, Registry, Spec, buckets};

const SECONDS: Kind = Kind::Histogram(buckets::SECONDS);

const MODEL_DURATION: Spec = Spec {
    name: "gen_ai_client_operation_duration_seconds",
    kind: SECONDS,
    labels: &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"],
    help: "How long attempts of model calls took; error_type is the class of a failed one.",
};
const FIRST_CHUNK: Spec = Spec {
    name: "gen_ai_client_operation_time_to_first_chunk_seconds",
    kind: SECONDS,
    labels: &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"],
    help: "How long a model took until the first piece of its answer.",
};
const TOKENS: Spec = Spec {
    name: "gen_ai_client_token_usage",
    kind: Kind::Histogram(buckets::TOKENS),
    labels: &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type"],
    help: "Tokens of each answer; input includes what was read from or written to the provider's cache.",
};
const CACHED_TOKENS: Spec = Spec {
    name: "tenure_model_cached_tokens",
    kind: Kind::Counter,
    labels: &["gen_ai_provider_name", "gen_ai_request_model", "cache"],
    help: "Input tokens that were read from the provider's cache or written to it.",
};
const ATTEMPTS: Spec = Spec {
    name: "tenure_model_attempts",
    kind: Kind::Counter,
    labels: &["gen_ai_provider_name", "gen_ai_request_model", "class"],
    help: "Attempts of model calls by what came of them: answered, interrupted, or the class of the failure.",
};
const TOOL_DURATION: Spec = Spec {
    name: "gen_ai_execute_tool_duration_seconds",
    kind: SECONDS,
    labels: &["gen_ai_tool_name", "outcome"],
    help: "How long tool calls in sandboxes took.",
};
const LEASES_HELD: Spec =
    Spec { name: "tenure_leases_held", kind: Kind::Gauge, labels: &[], help: "Leases that this worker holds now." };
const LEASE_DURATION: Spec = Spec {
    name: "tenure_lease_duration_seconds",
    kind: SECONDS,
    labels: &["end"],
    help: "How long leases were held, by how they ended: let_go, released (the worker stops), lost or failed.",
};
const QUEUE_WAIT: Spec = Spec {
    name: "tenure_queue_wait_seconds",
    kind: SECONDS,
    labels: &[],
    help: "How long sessions were queued before this worker leased them.",
};
const COMMITTED_EVENTS: Spec = Spec {
    name: "tenure_committed_events",
    kind: Kind::Counter,
    labels: &[],
    help: "Events that this worker committed.",
};
const SANDBOX_START: Spec = Spec {
    name: "tenure_sandbox_start_duration_seconds",
    kind: SECONDS,
    labels: &["driver", "outcome"],
    help: "How long the starts of sandboxes took.",
};
const PREVIEWS_DROPPED: Spec = Spec {
    name: "tenure_node_previews_dropped",
    kind: Kind::Counter,
    labels: &[],
    help: "Preview frames that a server was too slow to read from this worker; it starts again from the whole message.",
};

/// The instruments of a worker.
pub const METERS: &[Spec] = &[
    MODEL_DURATION,
    FIRST_CHUNK,
    TOKENS,
    CACHED_TOKENS,
    ATTEMPTS,
    TOOL_DURATION,
    LEASES_HELD,
    LEASE_DURATION,
    QUEUE_WAIT,
    COMMITTED_EVENTS,
    SANDBOX_START,
    PREVIEWS_DROPPED,
];

/// The operation of all model calls, as the conventions call it.
pub(crate) const CHAT: &str = "chat";

/// Counts what a worker does.
#[derive(Debug)]
pub(crate) struct Meters {
    model_duration: Histogram,
    first_chunk: Histogram,
    tokens: Histogram,
    cached_tokens: Counter,
    attempts: Counter,
    tool_duration: Histogram,
    pub(crate) leases_held: Gauge,
    lease_duration: Histogram,
    queue_wait: Histogram,
    pub(crate) committed_events: Counter,
    sandbox_start: Histogram,
    pub(crate) previews_dropped: Counter,
}

/// A model as the labels name it.
#[derive(Clone, Debug)]
pub(crate) struct ModelLabels {
    /// As the configuration calls the provider.
    pub(crate) provider: String,
    /// As the provider calls the model.
    pub(crate) model: String,
}

impl Meters {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            model_duration: registry.histogram(&MODEL_DURATION),
            first_chunk: registry.histogram(&FIRST_CHUNK),
            tokens: registry.histogram(&TOKENS),
            cached_tokens: registry.counter(&CACHED_TOKENS),
            attempts: registry.counter(&ATTEMPTS),
            tool_duration: registry.histogram(&TOOL_DURATION),
            leases_held: registry.gauge(&LEASES_HELD),
            lease_duration: registry.histogram(&LEASE_DURATION),
            queue_wait: registry.histogram(&QUEUE_WAIT),
            committed_events: registry.counter(&COMMITTED_EVENTS),
            sandbox_start: registry.histogram(&SANDBOX_START),
            previews_dropped: registry.counter(&PREVIEWS_DROPPED),
        }
    }

    /// One attempt of a model call; `error` is the class of a failure.
    pub(crate) fn attempt(&self, of: &ModelLabels, class: &str, error: Option<&str>, took: Duration) {
        let ModelLabels { provider, model } = of;
        self.attempts.add(&[provider, model, class], 1);
        self.model_duration.observe(&[CHAT, provider, model, error.unwrap_or_default()], took.as_secs_f64());
    }

    pub(crate) fn first_chunk(&self, of: &ModelLabels, took: Duration) {
        self.first_chunk.observe(&[CHAT, &of.provider, &of.model], took.as_secs_f64());
    }

    pub(crate) fn tokens(&self, of: &ModelLabels, usage: Usage) {
        let ModelLabels { provider, model } = of;
        let count = |kind: &str, tokens: u64| self.tokens.observe(&[CHAT, provider, model, kind], tokens as f64);
        count("input", all_input(usage));
        count("output", usage.output);
        for (cache, tokens) in [("read", usage.cache_read), ("write", usage.cache_write)] {
            if tokens > 0 {
                self.cached_tokens.add(&[provider, model, cache], tokens);
            }
        }
    }

    pub(crate) fn tool(&self, name: &str, outcome: Outcome, took: Duration) {
        self.tool_duration.observe(&[name, outcome_word(outcome)], took.as_secs_f64());
    }

    pub(crate) fn lease(&self, end: &str, took: Duration) {
        self.lease_duration.observe(&[end], took.as_secs_f64());
    }

    pub(crate) fn queued_for(&self, millis: u64) {
        self.queue_wait.observe(&[], Duration::from_millis(millis).as_secs_f64());
    }

    pub(crate) fn sandbox_started(&self, driver: &str, outcome: Outcome, took: Duration) {
        self.sandbox_start.observe(&[driver, outcome_word(outcome)], took.as_secs_f64());
    }
}

/// Input tokens as the conventions count them: with those of the cache.
pub(crate) fn all_input(usage: Usage) -> u64 {
    usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write)
}
