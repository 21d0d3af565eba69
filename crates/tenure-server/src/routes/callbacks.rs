//! Answers of outside jobs: no key, a token instead (hazard Z-36).

use crate::error::{ApiError, Result};
use crate::request::{Arriving, Path};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::{callback, webhook};
use tenure_core::{CallbackId, EventId, InputBody, SessionId, TenantId};
use tenure_store::{Delivery, Kind};

/// Largest answer of an outside job.
const MAX_CALLBACK_BYTES: usize = 256 * 1024;

/// `POST /v1/callbacks/{token}`: the first answer counts; a repeat gets the same reply and does
/// nothing.
pub(crate) async fn answer(
    State(state): State<Arc<ServerState>>,
    Path(token): Path<String>,
    headers: HeaderMap,
    body: Arriving,
) -> Result<Json<Value>> {
    // All reasons look the same to a stranger.
    let unknown = || ApiError::new(Code::CallbackNotFound, "there is no such callback, or it has expired");
    let (session, callback) = callback::parse(&state.config.installation_key, &token).ok_or_else(unknown)?;
    if let Some(wait) = state.callbacks.count(callback) {
        return Err(
            ApiError::new(Code::RateLimited, "too many requests for this callback").retry_after(wait.as_secs() + 1)
        );
    }
    let bytes = body.whole(MAX_CALLBACK_BYTES).await?;
    verify(&state, &headers, &bytes).await?;
    // Untrusted text for the model: known secrets are masked, nothing else is made of it.
    let text = (state.config.mask)(&String::from_utf8_lossy(&bytes));
    for tenant in tenants(&state) {
        match deliver(&state, tenant, session, callback, text.clone()).await {
            Ok(()) => return Ok(Json(json!({"status": "accepted"}))),
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(unknown())
}

/// Checks the signature, if the installation asks for one (case O-053).
async fn verify(state: &ServerState, headers: &HeaderMap, body: &[u8]) -> Result<()> {
    let Some(secret) = &state.config.callback_secret else {
        return Ok(());
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let signed = webhook::Signed {
        id: text("webhook-id"),
        timestamp: text("webhook-timestamp"),
        signatures: text("webhook-signature"),
    };
    let now = state.store().now().await?.0 / 1_000;
    webhook::verify(secret, signed, body, now)
        .map_err(|unsigned| ApiError::new(Code::InvalidSignature, unsigned.to_string()))
}

/// The tenants whose sessions a token may name: a token carries no tenant, and cannot be made
/// without the key of the installation.
fn tenants(state: &ServerState) -> Vec<TenantId> {
    state.config.keys.tenants()
}

async fn deliver(
    state: &ServerState,
    tenant: TenantId,
    session: SessionId,
    callback: CallbackId,
    body: String,
) -> Result<(), tenure_store::Error> {
    let input = (EventId::from_bits(state.new_bits()), InputBody::Callback { callback, body });
    state
        .store()
        .deliver(Delivery { tenant, session, inputs: vec![input], notes: None, idempotency: None })
        .await
        .map(drop)
}
