//! Requests that are repeated under their idempotency key: known before anything is checked that may
//! have changed since the first one, such as whether an agent is archived.

use crate::error::Result;
use crate::keys::Caller;
use crate::state::ServerState;
use tenure_store::{Idempotency, Remembered};

/// What the first request with this key got; `None` for the first one, and for one without a key.
pub(crate) async fn earlier(
    state: &ServerState,
    caller: &Caller,
    key: Option<&Idempotency>,
) -> Result<Option<Remembered>> {
    match key {
        Some(key) => Ok(state.store().remembered(&caller.tenant, key).await?),
        None => Ok(None),
    }
}
