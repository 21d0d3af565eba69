//! Queues of external loops: leases are taken here (design 4.9).

use crate::error::{ApiError, Result};
use crate::external::{Due, Pen};
use crate::keys::{Caller, sha256};
use crate::request::{JsonBody, Path};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::error::Code;
use tenure_api::lease::{TakeRequest, WireLease, WireLeases, WireQueue, check_queue};
use tenure_core::{Agent, Event, LeaseId};
use tenure_store::{Claim, EXTERNAL, EventQuery, Hint, Lane, Leased, Order};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

type Shared = State<Arc<ServerState>>;

/// A queue is looked at so often while a request waits: hints may be lost.
const POLL: Duration = Duration::from_secs(1);

/// `POST /v1/queues/{queue}/leases`: waits for something runnable, at most as long as the request says.
pub(crate) async fn take(
    State(state): Shared,
    caller: Caller,
    Path(queue): Path<String>,
    body: JsonBody,
) -> Result<Json<WireLeases>> {
    check_name(&queue)?;
    let request = TakeRequest::read(&body.fields()?)?;
    // The same request again gets the same leases (hazard Z-03).
    let id = body.idempotency(&caller).map(|key| {
        let name = [caller.tenant.0.as_bytes(), b"\n", key.scope.as_bytes(), b"\n", key.key.as_bytes()].concat();
        let digest = sha256(&[&state.config.installation_key[..], &name].concat());
        u128::from_be_bytes(digest[..16].try_into().expect("a digest has 32 bytes"))
    });
    let lane = Lane::Queue { tenant: caller.tenant.clone(), name: queue, span: request.span };
    let limit = usize::try_from(request.max).unwrap_or(1);
    let mut hints = state.store().hints();
    let deadline = Instant::now() + Duration::from_millis(request.wait);
    loop {
        let id = LeaseId::from_bits(id.unwrap_or_else(rand::random));
        let claim = Claim { node: EXTERNAL, lane: lane.clone(), id, limit };
        let mut data = Vec::new();
        for leased in state.store().claim(claim).await? {
            data.extend(begin(&state, &caller, leased, &request).await?);
        }
        if !data.is_empty() || Instant::now() >= deadline || state.config.stop.is_cancelled() {
            return Ok(Json(WireLeases { data }));
        }
        let until = deadline.min(Instant::now() + POLL);
        tokio::select! {
            () = state.config.stop.cancelled() => {}
            () = tokio::time::sleep_until(until) => {}
            () = runnable(&mut hints) => {}
        }
    }
}

fn check_name(queue: &str) -> Result<()> {
    check_queue(queue).map_err(|what| ApiError::new(Code::QueueNotFound, format!("queue: {what}")))
}

async fn runnable(hints: &mut tokio::sync::broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Runnable | Hint::Anything) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Session(_) | Hint::Control(_)) => {}
            // The store is closing; the poll says so.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Takes a lease up; none if the session needs no loop now, such as one that was paused.
async fn begin(
    state: &ServerState,
    caller: &Caller,
    leased: Leased,
    request: &TakeRequest,
) -> Result<Option<WireLease>> {
    let agent = agent_of(state, caller, &leased.session).await?;
    let until = leased.now.after(request.span);
    match Pen::begin(state, &agent, leased).await {
        Ok((pen, due)) if due != Due::Nothing => {
            let tail = tail(state, caller, &pen, request.tail).await?;
            Ok(Some(pen.show(due, Some(tail), Some(until))))
        }
        Ok(_) => Ok(None),
        // Somebody else was quicker, or an operator ended it.
        Err(error) if error.is(Code::LeaseLost) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The version of the agent that a session is pinned to.
pub(super) async fn agent_of(state: &ServerState, caller: &Caller, session: &tenure_core::Session) -> Result<Agent> {
    let pinned = session.agent;
    let agent = state.store().agent(&caller.tenant, pinned.id, Some(pinned.version)).await?;
    agent.ok_or_else(|| {
        ApiError::internal(format!(
            "session {} is pinned to agent {} version {}, which is gone",
            session.id, pinned.id, pinned.version
        ))
    })
}

/// The newest rows of a log, oldest first.
async fn tail(state: &ServerState, caller: &Caller, pen: &Pen<'_>, rows: u64) -> Result<Vec<Event>> {
    let query = EventQuery {
        tenant: caller.tenant.clone(),
        session: pen.lease().session,
        after: None,
        order: Order::Descending,
        limit: usize::try_from(rows).unwrap_or(0),
    };
    let mut tail = if rows == 0 { Vec::new() } else { state.store().events(query).await? };
    tail.reverse();
    Ok(tail)
}

/// `GET /v1/queues/{queue}`: for autoscalers. A queue that nobody used is empty.
pub(crate) async fn depth(State(state): Shared, caller: Caller, Path(queue): Path<String>) -> Result<Json<WireQueue>> {
    check_name(&queue)?;
    let depth = state.store().queue_depth(&caller.tenant, &queue).await?;
    let now = state.store().now().await?;
    Ok(Json(WireQueue {
        queue,
        depth: depth.queued,
        oldest: depth.oldest.map(tenure_api::time::write),
        oldest_ms: depth.oldest.map(|oldest| now.since(oldest)),
        working: depth.leased,
    }))
}
