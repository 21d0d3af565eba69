//! Puts inputs into the inbox of a session, and names what the store refused.

use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::state::ServerState;
use std::collections::BTreeMap;
use tenure_api::error::Code;
use tenure_core::{EventId, InputBody, Refused, SessionId};
use tenure_store::{Delivered, Delivery, Idempotency, Kind, Notes};

/// Seconds after which a full inbox is tried again.
const FULL_RETRY_SECONDS: u64 = 5;

/// Delivers all inputs or none; returns when they are durable (promise P1).
pub(crate) async fn deliver(
    state: &ServerState,
    caller: &Caller,
    session: SessionId,
    inputs: Vec<InputBody>,
    idempotency: Option<Idempotency>,
) -> Result<Delivered> {
    deliver_with_notes(state, caller, session, inputs, BTreeMap::new(), idempotency).await
}

/// The same with changes of the client's notes.
pub(crate) async fn deliver_with_notes(
    state: &ServerState,
    caller: &Caller,
    session: SessionId,
    inputs: Vec<InputBody>,
    changes: BTreeMap<String, Option<String>>,
    idempotency: Option<Idempotency>,
) -> Result<Delivered> {
    let notes = (!changes.is_empty()).then(|| Notes { id: EventId::from_bits(state.new_bits()), changes });
    let inputs = inputs.into_iter().map(|input| (EventId::from_bits(state.new_bits()), input)).collect();
    let delivery = Delivery { tenant: caller.tenant.clone(), session, inputs, notes, idempotency };
    match state.store().deliver(delivery).await {
        Ok(delivered) => Ok(delivered),
        Err(error) => Err(refused(state, caller, session, error).await),
    }
}

async fn refused(state: &ServerState, caller: &Caller, session: SessionId, error: tenure_store::Error) -> ApiError {
    if error.kind == Kind::Full {
        return ApiError::new(Code::InboxFull, error.message).retry_after(FULL_RETRY_SECONDS);
    }
    if !matches!(error.kind, Kind::NotFound | Kind::Conflict) {
        return error.into();
    }
    let view = match state.store().session(&caller.tenant, session).await {
        Ok(view) => view,
        Err(error) => return error.into(),
    };
    let reason = error.source.as_ref().and_then(|source| source.downcast_ref::<Refused>());
    let ended = || ApiError::new(Code::SessionEnded, format!("session {session} has ended, or is about to"));
    match (view, reason) {
        (None, _) => ApiError::new(Code::SessionNotFound, format!("there is no session {session}")),
        (Some(_), Some(Refused::Ended)) => ended(),
        (Some(view), None) if view.session.has_ended() => ended(),
        (Some(_), _) if error.kind == Kind::NotFound => ApiError::new(Code::UnknownToolUse, error.message),
        (Some(_), _) => ApiError::new(Code::NotAnswerable, error.message),
    }
}
