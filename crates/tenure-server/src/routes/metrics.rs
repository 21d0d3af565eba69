//! What the installation counted, as text for a scraper.
//!
//! One address shows everything: a server asks the live workers too, and their series carry the label
//! `node`. Who scrapes several servers of one installation leaves the workers out of all but one with
//! `?nodes=none`.

use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::Query;
use crate::state::ServerState;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream;
use reqwest::Client;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::error::Code;
use tenure_api::event::class_word;
use tenure_api::node::{METRICS_PATH, NODE_KEY_HEADER};
use tenure_store::{ConditionView, Node};
use tenure_telemetry::{Family, Format, merge, write};

/// How long a worker may take to say what it counted.
const NODE_WITHIN: Duration = Duration::from_secs(2);

/// Most workers that one scrape asks; a larger installation scrapes its workers by themselves.
const MAX_NODES: usize = 64;

/// Workers that are asked at a time.
const NODES_AT_ONCE: usize = 16;

/// Largest reply of a worker.
const MAX_NODE_BYTES: usize = 8 * 1024 * 1024;

/// `GET /metrics`
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    _: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response> {
    let with_nodes = match query.get("nodes") {
        None | Some("all") => true,
        Some("none") => false,
        Some(other) => {
            let message = format!("nodes: expected all or none, found {other:?}");
            return Err(ApiError::new(Code::InvalidQuery, message));
        }
    };
    let nodes = look(&state).await?;
    let others = if with_nodes { ask(&state, nodes).await } else { Vec::new() };
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let families = merge(state.config.telemetry.registry.snapshot(), others);
    Ok(([(header::CONTENT_TYPE, format.content_type())], write(&families, format)).into_response())
}

/// Looks at what only the store knows. Gives the live nodes.
async fn look(state: &ServerState) -> Result<Vec<Node>> {
    let (counts, now, nodes) =
        (state.store().counts().await?, state.store().now().await?, state.store().nodes().await?);
    let meters = &state.meters;
    let states =
        [("queued", counts.queued), ("leased", counts.leased), ("parked", counts.parked), ("ended", counts.ended)];
    states.iter().for_each(|(name, count)| meters.sessions.set(&[name], *count as f64));
    let age = counts.queued_since.map_or(0, |since| now.since(since));
    meters.oldest_queued.set(&[], Duration::from_millis(age).as_secs_f64());
    let (dead, alive): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|node| node.is_dead);
    meters.nodes.set(&["alive"], alive.len() as f64);
    meters.nodes.set(&["dead"], dead.len() as f64);
    meters.leases_owned.set(&[], alive.iter().map(|node| node.leases).sum::<u64>() as f64);
    let conditions = state.store().conditions(None).await?;
    meters.condition_waiting.clear();
    for ConditionView { condition, waiting } in conditions {
        let model = condition.key.model.as_deref().unwrap_or_default();
        let labels = [&condition.key.credential, model, class_word(condition.class), condition.stage.name()];
        meters.condition_waiting.set(&labels, waiting as f64);
    }
    Ok(alive)
}

async fn ask(state: &ServerState, nodes: Vec<Node>) -> Vec<(String, Vec<Family>)> {
    let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(NODE_WITHIN).build();
    let Ok(client) = client else { return Vec::new() };
    let key = &state.config.node_key;
    let asked = nodes.len();
    let mut told: Vec<(String, Vec<Family>)> = stream::iter(nodes.into_iter().take(MAX_NODES))
        .map(|node| families_of(client.clone(), key, node))
        .buffer_unordered(NODES_AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    told.sort_by(|a, b| a.0.cmp(&b.0));
    state.meters.nodes_silent.set(&[], (asked - told.len()) as f64);
    told
}

async fn families_of(client: Client, key: &str, node: Node) -> Option<(String, Vec<Family>)> {
    let url = format!("http://{}{METRICS_PATH}", node.address);
    let response = client.get(url).header(NODE_KEY_HEADER, key).send().await.ok()?.error_for_status().ok()?;
    let (mut chunks, mut body) = (response.bytes_stream(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.ok()?);
        if body.len() > MAX_NODE_BYTES {
            tracing::warn!(node = %node.id, "what a node counted is too large");
            return None;
        }
    }
    Some((node.id.to_string(), serde_json::from_slice(&body).ok()?))
}
