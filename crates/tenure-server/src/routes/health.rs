//! Whether the server lives, and whether it can do its work.

use crate::error::{ApiError, Result};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tenure_api::error::Code;

/// How long the store may take to say its time.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// `GET /healthz`: the process answers.
pub(crate) async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// `GET /readyz`: the store answers too.
pub(crate) async fn readyz(State(state): State<Arc<ServerState>>) -> Result<Json<Value>> {
    if state.config.stop.is_cancelled() {
        return Err(ApiError::new(Code::StoreBusy, "the server is stopping"));
    }
    let answered = tokio::time::timeout(READY_WITHIN, state.store().now()).await;
    answered.map_err(|_| ApiError::new(Code::StoreBusy, "the store does not answer in time"))??;
    Ok(Json(json!({"status": "ready"})))
}

/// `GET /openapi.json`
pub(crate) async fn openapi() -> Json<Value> {
    Json(tenure_api::openapi::document())
}
