//! The routes, one topic per file.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod callbacks;
pub(crate) mod conditions;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod environments;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod feed;
pub(crate) mod files;
pub(crate) mod fleet;
pub(crate) mod fork;
pub(crate) mod health;
pub(crate) mod leases;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod outputs;
pub(crate) mod queues;
pub(crate) mod sessions;
pub(crate) mod snapshots;
pub(crate) mod stream;
pub(crate) mod timeline;

use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::state::ServerState;
use std::collections::BTreeMap;
use tenure_api::error::Code;
use tenure_api::session::{Surroundings, WireSession};
use tenure_core::{Agent, AgentId, EnvironmentId, InputBody, SessionId, Timestamp};
use tenure_store::{SessionView, State};

/// The id in a path; one that is not even an id belongs to nothing.
pub(crate) fn session_id(text: &str) -> Result<SessionId> {
    text.parse().map_err(|_| ApiError::new(Code::SessionNotFound, format!("there is no session {text:?}")))
}

/// The id in a path.
pub(crate) fn agent_id(text: &str) -> Result<AgentId> {
    text.parse().map_err(|_| ApiError::new(Code::AgentNotFound, format!("there is no agent {text:?}")))
}

/// The id in a path.
pub(crate) fn environment_id(text: &str) -> Result<EnvironmentId> {
    text.parse().map_err(|_| ApiError::new(Code::EnvironmentNotFound, format!("there is no environment {text:?}")))
}

/// A session of the caller.
pub(crate) async fn find_session(state: &ServerState, caller: &Caller, id: SessionId) -> Result<SessionView> {
    let view = state.store().session(&caller.tenant, id).await?;
    view.ok_or_else(|| ApiError::new(Code::SessionNotFound, format!("there is no session {id}")))
}

/// The agents of sessions, each read once in a request.
pub(crate) struct AgentsOf<'a> {
    state: &'a ServerState,
    caller: &'a Caller,
    read: BTreeMap<(AgentId, u32), Agent>,
}

impl<'a> AgentsOf<'a> {
    pub(crate) fn new(state: &'a ServerState, caller: &'a Caller) -> Self {
        Self { state, caller, read: BTreeMap::new() }
    }

    /// The version of an agent to which a session is pinned.
    pub(crate) async fn get(&mut self, view: &SessionView) -> Result<&Agent> {
        let pinned = view.session.agent;
        let key = (pinned.id, pinned.version);
        if !self.read.contains_key(&key) {
            let agent = self.state.store().agent(&self.caller.tenant, pinned.id, Some(pinned.version)).await?;
            let agent = agent.ok_or_else(|| {
                ApiError::internal(format!(
                    "session {} is pinned to agent {} version {}, which is gone",
                    view.session.id, pinned.id, pinned.version
                ))
            })?;
            self.read.insert(key, agent);
        }
        Ok(self.read.get(&key).expect("it was just read"))
    }
}

/// A session as the API shows it.
pub(crate) fn show(view: &SessionView, agent: &Agent) -> WireSession {
    let around = Surroundings {
        metadata: &view.metadata,
        is_leased: view.state == State::Leased,
        node: view.node.map(|node| node.to_string()),
        updated_at: view.updated_at,
        archived_at: view.archived_at,
        inbox_len: view.inbox_len,
        queue_position: view.queue_position,
    };
    WireSession::of(&view.session, agent, around)
}

/// A session with the changes of operators that wait in its inbox, so that whoever changed it reads
/// what was acknowledged.
pub(crate) async fn show_with_inbox(
    state: &ServerState,
    caller: &Caller,
    mut view: SessionView,
) -> Result<WireSession> {
    if view.inbox_len > 0 {
        let inbox = state.store().inbox(view.session.id).await?;
        // What was consumed meanwhile is missing there, and is in this head.
        view = find_session(state, caller, view.session.id).await?;
        for (_, input) in inbox {
            take_ahead(&mut view, &input.body, input.at);
        }
    }
    let mut agents = AgentsOf::new(state, caller);
    let agent = agents.get(&view).await?;
    Ok(show(&view, agent))
}

pub(crate) fn take_ahead(view: &mut SessionView, input: &InputBody, at: Timestamp) {
    match input {
        InputBody::Title(title) => view.session.title.clone_from(title),
        InputBody::Limits(limits) => view.session.budget.limits = *limits,
        InputBody::Models(choice) => view.session.models.clone_from(choice),
        InputBody::Pause => view.session.is_paused = true,
        InputBody::Resume => view.session.is_paused = false,
        InputBody::Archive => view.archived_at = view.archived_at.or(Some(at)),
        InputBody::Message { .. }
        | InputBody::System { .. }
        | InputBody::Interrupt
        | InputBody::Confirmation { .. }
        | InputBody::CustomResult { .. }
        | InputBody::Callback { .. }
        // The store changed them with the delivery.
        | InputBody::Metadata(_)
        | InputBody::Snapshot
        | InputBody::Cancel => {}
    }
}
