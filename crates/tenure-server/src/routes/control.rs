//! What operators do to a session: pause, resume, cancel, change its limits.

use super::sessions::changed_limits;
use super::{find_session, session_id, show_with_inbox};
use crate::deliver;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::repeat;
use crate::request::{JsonBody, Path};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::agent::ModelsChange;
use tenure_api::error::Code;
use tenure_api::limits::LimitsChange;
use tenure_api::session::WireSession;
use tenure_core::InputBody;

type Shared = State<Arc<ServerState>>;

/// `POST /v1/sessions/{session_id}/pause`
pub(crate) async fn pause(
    state: Shared,
    caller: Caller,
    id: Path<String>,
    body: JsonBody,
) -> Result<Json<WireSession>> {
    control(state, caller, id, body, InputBody::Pause).await
}

/// `POST /v1/sessions/{session_id}/resume`
pub(crate) async fn resume(
    state: Shared,
    caller: Caller,
    id: Path<String>,
    body: JsonBody,
) -> Result<Json<WireSession>> {
    control(state, caller, id, body, InputBody::Resume).await
}

/// `POST /v1/sessions/{session_id}/cancel`: the reply means recorded; the last event comes when the
/// processes are gone (promise P15).
pub(crate) async fn cancel(
    state: Shared,
    caller: Caller,
    id: Path<String>,
    body: JsonBody,
) -> Result<Json<WireSession>> {
    control(state, caller, id, body, InputBody::Cancel).await
}

/// `POST /v1/sessions/{session_id}/budget`
pub(crate) async fn budget(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireSession>> {
    let id = session_id(&id)?;
    let fields = body.fields()?;
    let is_wrapped = fields.change("limits").is_some() || fields.change("budget").is_some();
    let change = if is_wrapped { LimitsChange::read(&fields)? } else { LimitsChange::read_fields(&fields)? };
    if change.is_empty() {
        return Err(ApiError::new(Code::MissingField, "name at least one of steps, tokens, cost_usd, wall_seconds"));
    }
    let view = find_session(&state, &caller, id).await?;
    if repeat::earlier(&state, &caller, body.idempotency(&caller).as_ref()).await?.is_some() {
        return show_with_inbox(&state, &caller, view).await.map(Json);
    }
    let limits = changed_limits(&state, &caller, &view, (&change, &ModelsChange::default())).await?;
    control(State(state), caller, Path(id.to_string()), body, InputBody::Limits(limits)).await
}

async fn control(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
    input: InputBody,
) -> Result<Json<WireSession>> {
    let id = session_id(&id)?;
    deliver::deliver(&state, &caller, id, vec![input], body.idempotency(&caller)).await?;
    let view = find_session(&state, &caller, id).await?;
    show_with_inbox(&state, &caller, view).await.map(Json)
}
