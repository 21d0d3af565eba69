//! Calls that are carried out without a sandbox: what the simulator puts in its place.

use super::Sandboxes;
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::Arc;
use tenure_core::{Call, Done, Json, SessionId};

/// Carries out calls in place of sandboxes. Dropping the future of a call stops it where it is.
#[async_trait]
pub trait Hands: Send + Sync + 'static {
    /// Carries out one call of a session.
    async fn run(&self, session: SessionId, call: &Call, input: &Json) -> Done;
}

impl Sandboxes {
    /// No sandbox, ever: `hands` carry out the calls, and there are no files.
    pub fn played(hands: Arc<dyn Hands>) -> Self {
        let folders = super::Folders { data: PathBuf::new() };
        Self { hands: Some(hands), ..Self::new(Vec::new(), folders, Vec::new()) }
    }

    pub(crate) fn hands(&self) -> Option<&Arc<dyn Hands>> {
        self.hands.as_ref()
    }
}
