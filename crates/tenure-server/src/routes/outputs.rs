//! Full outputs of commands: those whose output was cut for the model.

use super::files::send_file;
use super::{find_session, session_id};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::request::Path;
use crate::state::ServerState;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_core::EventId;

/// `GET /v1/sessions/{session_id}/outputs/{tool_use_id}`: the file `<tool_use_id>.log` of the
/// session's folder of outputs.
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path((id, call)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    super::files::check_destination(&headers)?;
    let id = session_id(&id)?;
    find_session(&state, &caller, id).await?;
    let missing = || ApiError::new(Code::OutputNotFound, format!("no full output is kept for {call:?}"));
    // Only an id, so that the name cannot lead anywhere.
    let call_id: EventId = call.parse().map_err(|_| missing())?;
    let name = format!("{call_id}.log");
    let path = (state.config.outputs)(id).join(&name);
    let opened = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(path)?;
        let found = file.metadata()?;
        std::io::Result::Ok((file, found))
    });
    match opened.await.map_err(ApiError::internal)? {
        Ok((file, found)) if found.is_file() => {
            let changed = found.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let tag = format!("{:x}-{:x}", found.len(), changed.unwrap_or_default().as_nanos());
            send_file(file, found.len(), &tag, name.as_bytes(), &headers)
        }
        Ok(_) => Err(missing()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing()),
        Err(error) => Err(ApiError::internal(error)),
    }
}
