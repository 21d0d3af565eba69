//! What the holder of an external loop's lease does with it.

use super::queues::agent_of;
use crate::error::{ApiError, Result};
use crate::external::{self, Due, Pen};
use crate::keys::{Caller, sha256};
use crate::live::OWN_NODE;
use crate::request::{JsonBody, Path};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::fields::Problem;
use tenure_api::lease::{CheckpointRequest, LEASE_SPAN, LeaseTicket, WireLease, WireRenewed, read_span};
use tenure_core::{EventId, LeaseId, Session};
use tenure_store::{Checkpoint, EXTERNAL, EventQuery, Kind, Lease, MAX_PAGE, Order, State as StoreState, Then};

type Shared = State<Arc<ServerState>>;

/// Longest piece of a preview, in characters.
const MAX_PREVIEW: usize = 65_536;

/// Commits of one request that are looked for when it is repeated: one, and one more for each time that an
/// input came while it parked.
const MAX_COMMITS: usize = 8;

fn ticket(text: &str) -> Result<LeaseTicket> {
    LeaseTicket::parse(text).ok_or_else(|| ApiError::new(Code::LeaseNotFound, "the path names no lease"))
}

fn lease_of(caller: &Caller, ticket: LeaseTicket) -> Lease {
    let LeaseTicket { session, epoch, nonce } = ticket;
    Lease { tenant: caller.tenant.clone(), session, epoch, nonce, node: EXTERNAL }
}

/// `POST /v1/leases/{lease_id}/checkpoint`: one atomic commit. The same request again does nothing and gets the
/// same rows.
pub(crate) async fn checkpoint(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireLease>> {
    let lease = lease_of(&caller, ticket(&id)?);
    let body = body.masked(&*state.config.mask);
    let request = CheckpointRequest::read(&body.fields()?)?;
    let commit_id = commit_id(&id, &body);
    let view = state.store().session(&caller.tenant, lease.session).await?;
    let view = view.ok_or_else(|| ApiError::new(Code::LeaseNotFound, "the session of this lease does not exist"))?;
    let agent = agent_of(&state, &caller, &view.session).await?;
    let now = state.store().now().await?;
    if view.session.last_seq != request.seq {
        let mut pen = Pen::new(&state, &agent, lease.clone(), view.session.clone(), now);
        let is_held = was_committed(&state, &lease, &view.session, request.seq, commit_id).await?;
        let query = EventQuery {
            tenant: caller.tenant.clone(),
            session: lease.session,
            after: Some(request.seq),
            order: Order::Ascending,
            limit: MAX_PAGE,
        };
        pen.repeated(state.store().events(query).await?);
        let due = if is_held { pen.due() } else { Due::Nothing };
        let until = if is_held { Some(renewed(&state, &lease, request.span).await?) } else { None };
        return Ok(Json(pen.show(due, None, until)));
    }
    if view.state != StoreState::Leased || view.epoch != lease.epoch {
        return Err(external::lease_lost(lease.session));
    }
    let mut pen = Pen::new(&state, &agent, lease.clone(), view.session, now);
    let due = pen.checkpoint(request.events, request.then, commit_id).await?;
    let until = if due == Due::Nothing { None } else { Some(renewed(&state, &lease, request.span).await?) };
    Ok(Json(pen.show(due, None, until)))
}

/// Names a request, so that it is recognised when it comes again.
fn commit_id(lease: &str, body: &JsonBody) -> LeaseId {
    let digest = sha256(&[lease.as_bytes(), b"\n", &body.digest()].concat());
    LeaseId::from_bits(u128::from_be_bytes(digest[..16].try_into().expect("a digest has 32 bytes")))
}

/// Whether a request that continues from another row was committed before, and whether the lease is still held;
/// an error otherwise.
async fn was_committed(
    state: &ServerState,
    lease: &Lease,
    head: &Session,
    seq: u64,
    commit_id: LeaseId,
) -> Result<bool> {
    let mut last = None;
    for id in std::iter::successors(Some(commit_id), |id| Some(external::following(*id))).take(MAX_COMMITS) {
        // A commit that cannot match, so that the store only looks whether it knows the id.
        let probe = Checkpoint {
            lease: lease.clone(),
            commit_id: id,
            events: Vec::new(),
            session: Session { last_seq: seq, ..head.clone() },
            consumed: 0,
            then: Then::Keep,
        };
        match state.store().commit(probe).await {
            Ok(committed) => return Ok(committed.is_held),
            Err(error) if matches!(error.kind, Kind::Invalid | Kind::Fenced) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    match last {
        None => Err(external::lease_lost(lease.session)),
        Some(error) if error.kind == Kind::Invalid => {
            let message = format!("seq: the log of session {} ends at {}, not at {seq}", lease.session, head.last_seq);
            Err(ApiError::new(Code::SeqConflict, message).details(json!({"seq": head.last_seq})))
        }
        Some(error) => Err(external::lost(error, lease)),
    }
}

async fn renewed(state: &ServerState, lease: &Lease, span: u64) -> Result<tenure_core::Timestamp> {
    let renewed = state.store().renew(lease, span).await;
    renewed.map(|renewed| renewed.until).map_err(|error| external::lost(error, lease))
}

/// `POST /v1/leases/{lease_id}/renew`
pub(crate) async fn renew(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireRenewed>> {
    let lease = known(&state, &caller, ticket(&id)?).await?;
    let span = read_span(&body.fields()?)?;
    let renewed = state.store().renew(&lease, span).await.map_err(|error| external::lost(error, &lease))?;
    Ok(Json(WireRenewed { expires_at: tenure_api::time::write(renewed.until), urgent: renewed.is_urgent }))
}

/// `POST /v1/leases/{lease_id}/release`: the session goes back to its queue. Releasing again does nothing.
pub(crate) async fn release(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _body: JsonBody,
) -> Result<Json<Value>> {
    let lease = known(&state, &caller, ticket(&id)?).await?;
    state.store().release(&lease).await?;
    if let Some((end, _)) = state.loops.end(lease.session, lease.epoch) {
        state.previews.take(OWN_NODE, end);
    }
    Ok(Json(json!({"status": "released"})))
}

/// `POST /v1/leases/{lease_id}/preview`: text that readers of the stream see before it is committed. It is kept
/// nowhere; the message of the next checkpoint takes its place.
pub(crate) async fn preview(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<Value>> {
    let lease = lease_of(&caller, ticket(&id)?);
    let body = body.masked(&*state.config.mask);
    let fields = body.fields()?;
    let kind = match fields.text("type", 32)?.as_deref() {
        None | Some("agent.message") => "agent.message",
        Some("agent.thinking") => "agent.thinking",
        Some(_) => return Err(Problem::invalid("type", "expected agent.message or agent.thinking").into()),
    };
    let text = fields.text("text", MAX_PREVIEW)?.unwrap_or_default();
    if !state.loops.is_checked(lease.session, lease.epoch) {
        let lease = known(&state, &caller, ticket(&id)?).await?;
        state.store().renew(&lease, LEASE_SPAN).await.map_err(|error| external::lost(error, &lease))?;
        let view = state.store().session(&caller.tenant, lease.session).await?;
        let after_seq = view.map_or(0, |view| view.session.last_seq);
        state.loops.checked(lease.session, lease.epoch, after_seq);
    }
    if fields.flag("reset")?.unwrap_or(false)
        && let Some(end) = state.loops.restart(lease.session)
    {
        state.previews.take(OWN_NODE, end);
    }
    let id = EventId::from_bits(state.new_bits());
    for frame in state.loops.tell(lease.session, kind, text, fields.flag("new_block")?.unwrap_or(false), id) {
        state.previews.take(OWN_NODE, frame);
    }
    Ok(Json(json!({"status": "shown"})))
}

/// A lease whose session is the caller's; whether it is still held, the store says.
async fn known(state: &ServerState, caller: &Caller, ticket: LeaseTicket) -> Result<Lease> {
    match state.store().session(&caller.tenant, ticket.session).await? {
        Some(_) => Ok(lease_of(caller, ticket)),
        None => Err(ApiError::new(Code::LeaseNotFound, "the session of this lease does not exist")),
    }
}
