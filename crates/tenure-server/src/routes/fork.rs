//! Forks: a new session from a part of another one's log, and from files of some moment (promise P17).

use super::files::{blocking, snapshots};
use super::sessions::check_money;
use super::{AgentsOf, agents, environments, find_session, session_id, show_with_inbox};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::repeat;
use crate::request::{JsonBody, Path};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::error::Code;
use tenure_api::fields::{Problem, change_metadata};
use tenure_api::session::{ForkFiles, SessionFork, WireSession};
use tenure_core::{Body, Event, EventId, NewFork, Session, SessionId, SnapshotId, apply, fork, undone};
use tenure_files::snapshots::{Adopted, Id};
use tenure_store::{EventQuery, Kind, MAX_PAGE, NewSession, Order, Remembered, SessionView};

type Shared = State<Arc<ServerState>>;

/// How long a fork waits for the holder of the files to store what is new in them (hazard Z-33).
const FRESH_WITHIN: Duration = Duration::from_secs(10);

/// Rows after the snapshot that are looked through for commands whose changes it does not have.
const MAX_ROWS: usize = 1_000;

/// `POST /v1/sessions/{session_id}/fork`
pub(crate) async fn create(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireSession>> {
    let id = session_id(&id)?;
    let idempotency = body.idempotency(&caller);
    if let Some(Remembered::Session(id)) = repeat::earlier(&state, &caller, idempotency.as_ref()).await? {
        let view = find_session(&state, &caller, id).await?;
        return show_with_inbox(&state, &caller, view).await.map(Json);
    }
    let body = body.masked(&*state.config.mask);
    let request = SessionFork::read(&body.fields()?)?;
    let parent = find_session(&state, &caller, id).await?;
    let mut of = AgentsOf::new(&state, &caller);
    let agent = of.get(&parent).await?;
    if agent.archived_at.is_some() {
        return Err(agents::archived(agent.id));
    }
    let environment = environments::find(&state, &caller, parent.session.environment).await?;
    if environment.archived_at.is_some() {
        return Err(environments::archived(environment.id));
    }
    let mut metadata = parent.metadata.clone();
    change_metadata(&mut metadata, request.metadata.clone())?;

    let last = parent.session.last_seq;
    let at = request.at_seq.unwrap_or(last);
    if at > last {
        return Err(Problem::invalid("at_seq", format_args!("the newest event of session {id} is {last}")).into());
    }
    // The log is read from its beginning; not while the files are waited for.
    let turn = state.deep_reads.acquire().await.map_err(ApiError::internal)?;
    let cut = match &request.replacement {
        None => at,
        Some(_) => last_message(&state, &caller, id, at).await? - 1,
    };
    let shared = read(&state, &caller, &parent.session, cut).await?;
    drop(turn);
    // What the newest event saw is in the folder, and perhaps in no snapshot yet.
    let is_newest = cut == last && matches!(request.files, ForkFiles::Same);
    let parent = if is_newest || matches!(request.files, ForkFiles::Latest) {
        fresh(&state, &caller, parent).await?
    } else {
        parent
    };
    let start = start(&state, &caller, &request.files, &shared, (&parent.session, is_newest)).await?;

    let now = state.store().now().await?;
    let new_id = SessionId::from_bits(state.new_bits()).on_shard(id.shard());
    let left = parent.session.budget.limits.left(&parent.session.budget, now.since(parent.session.created_at));
    let agent = agent.with_models(&shared.head.models);
    let limits = check_money(&state, &agent, request.limits.apply(left), request.limits.limits_money())?;
    let snapshot = start.source.map(|_| SnapshotId::from_bits(state.new_bits()));
    let title = request.title.unwrap_or_else(|| parent.session.title.clone());
    let new = NewFork { id: new_id, created_at: now, title, limits, snapshot, told: start.told };
    let (mut session, drafts) = fork(shared.head, new);
    let mut events = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let id = draft.id.unwrap_or_else(|| EventId::from_bits(state.new_bits()));
        let event = Event { id, seq: session.last_seq + 1, at: now, step: draft.step, body: draft.body };
        apply(&mut session, &event).map_err(ApiError::internal)?;
        events.push(event);
    }
    // Before the session: what it begins with must be there when somebody takes it up.
    if let (Some(source), Some(snapshot)) = (start.source, snapshot) {
        let adopted = Adopted {
            id: Id(snapshot.bits()),
            session: new_id.to_string(),
            seq: cut + 1,
            is_in_line: start.is_in_line,
            taken_at_ms: u64::try_from(now.0).unwrap_or(0),
        };
        let snapshots = snapshots(&state, &session)?;
        blocking(move || snapshots.adopt(source, adopted)).await?;
    }
    let inputs = request.replacement.into_iter().map(|input| (EventId::from_bits(state.new_bits()), input)).collect();
    let added = state.store().create(NewSession { session, events, metadata, inputs, idempotency }).await;
    let is_unused = match &added {
        Ok(created) => created.is_repeat,
        // Perhaps it was added, and only the reply was lost.
        Err(error) => error.kind != Kind::Retry,
    };
    if let Some(snapshot) = snapshot.filter(|_| is_unused) {
        let snapshots = snapshots(&state, &parent.session)?;
        blocking(move || snapshots.remove(Id(snapshot.bits()))).await?;
    }
    show_with_inbox(&state, &caller, added?.view).await.map(Json)
}

/// The part of a log that a fork shares.
struct SharedPart {
    /// Its fold.
    head: Session,
    /// Rows after the newest snapshot that its last event saw, as far as [`MAX_ROWS`].
    since: Vec<Event>,
}

async fn read(state: &ServerState, caller: &Caller, parent: &Session, cut: u64) -> Result<SharedPart> {
    let mut head = Session::new(parent.id, parent.tenant.clone(), parent.agent, parent.environment, parent.created_at);
    head.queue.clone_from(&parent.queue);
    head.budget.limits = parent.budget.limits;
    let mut since = Vec::new();
    while head.last_seq < cut {
        let rows = page(state, caller, parent.id, Some(head.last_seq), Order::Ascending).await?;
        if rows.is_empty() {
            return Err(ApiError::internal(format!("session {}: the log ends before event {cut}", parent.id)));
        }
        for event in rows.into_iter().take_while(|event| event.seq <= cut) {
            apply(&mut head, &event).map_err(ApiError::internal)?;
            match event.body {
                Body::SnapshotCreated { .. } | Body::Forked { .. } => since.clear(),
                _ if since.len() < MAX_ROWS => since.push(event),
                _ => {}
            }
        }
    }
    Ok(SharedPart { head, since })
}

/// The `seq` of the newest message of the user up to `at`.
async fn last_message(state: &ServerState, caller: &Caller, id: SessionId, at: u64) -> Result<u64> {
    let mut before = Some(at + 1);
    loop {
        let rows = page(state, caller, id, before, Order::Descending).await?;
        if let Some(event) = rows.iter().find(|event| matches!(event.body, Body::UserMessage { .. })) {
            return Ok(event.seq);
        }
        let Some(last) = rows.last() else {
            let message = "replace_last_input: there is no message of a user up to that event";
            return Err(ApiError::new(Code::InvalidField, message));
        };
        before = Some(last.seq);
    }
}

async fn page(
    state: &ServerState,
    caller: &Caller,
    session: SessionId,
    after: Option<u64>,
    order: Order,
) -> Result<Vec<Event>> {
    let query = EventQuery { tenant: caller.tenant.clone(), session, after, order, limit: MAX_PAGE };
    Ok(state.store().events(query).await?)
}

/// The parent after its files were stored, if that had to be done and somebody did it in time.
async fn fresh(state: &ServerState, caller: &Caller, parent: SessionView) -> Result<SessionView> {
    let session = &parent.session;
    if !session.files.is_dirty || session.has_ended() {
        return Ok(parent);
    }
    match super::snapshots::store_files(state, caller, session.id, FRESH_WITHIN, None).await? {
        Some(stored) => Ok(stored),
        None => Ok(parent),
    }
}

/// The files that a fork begins with.
struct Start {
    /// The snapshot that has them.
    source: Option<Id>,
    /// Whether the shared events saw what led to it.
    is_in_line: bool,
    /// What the model is told.
    told: Option<String>,
}

async fn start(
    state: &ServerState,
    caller: &Caller,
    files: &ForkFiles,
    shared: &SharedPart,
    (parent, is_newest): (&Session, bool),
) -> Result<Start> {
    let newest = parent.files.snapshot;
    let undone = || {
        undone(&shared.since).map(|commands| {
            format!(" What these later commands did to files is not there, run them again if it is needed: {commands}.")
        })
    };
    let (source, is_in_line, what) = match files {
        ForkFiles::None => (None, false, "The workspace is empty.".to_owned()),
        ForkFiles::Same if is_newest && newest.is_some() && !parent.files.is_dirty => {
            // Stored after that event, and in between it may have worked on.
            let what = if parent.files.snapshot_seq > shared.head.last_seq + 1 {
                format!("Files in the workspace are those of event {}, a little later.", parent.files.snapshot_seq)
            } else {
                "Files in the workspace are as they were then.".to_owned()
            };
            (newest, true, what)
        }
        ForkFiles::Same => {
            let what = match shared.head.files.snapshot {
                None if shared.head.files.epoch == 0 => "The workspace is empty.".to_owned(),
                None => format!(
                    "The files of then are stored nowhere: the workspace is empty.{}",
                    undone().unwrap_or_default()
                ),
                Some(_) => format!(
                    "Files in the workspace are those of the snapshot of event {}.{}",
                    shared.head.files.snapshot_seq,
                    undone().unwrap_or_default()
                ),
            };
            (shared.head.files.snapshot, true, what)
        }
        ForkFiles::Latest => match newest {
            None => (None, false, "There is no snapshot of its files: the workspace is empty.".to_owned()),
            Some(_) => {
                let dirty = if parent.files.is_dirty { " Later changes are not in it." } else { "" };
                let seq = parent.files.snapshot_seq;
                (newest, true, format!("Files in the workspace are those of its newest snapshot (event {seq}).{dirty}"))
            }
        },
        ForkFiles::Snapshot(id) => {
            let snapshots = snapshots(state, parent)?;
            let record = super::files::any_record(&snapshots, Id(id.bits())).await?;
            let whose: Option<SessionId> = record.session.parse().ok();
            let is_own = whose == Some(parent.id) && record.seq <= shared.head.last_seq;
            // A snapshot of somebody who was deleted, or of another tenant, is none.
            if let Some(whose) = whose {
                find_session(state, caller, whose).await.map_err(|_| super::files::no_snapshot(Id(id.bits())))?;
            }
            (Some(*id), is_own, format!("Files in the workspace are those of snapshot {id}."))
        }
    };
    // Nothing to tell where there never was anything.
    let had_files = shared.head.files.epoch > 0 || source.is_some();
    let told = had_files.then(|| {
        format!(
            "This is a fork of session {} at event {}. {what} Running processes, files elsewhere (such as /tmp) and the \
             shell's working directory are gone, and callbacks made before belong to the other session.",
            parent.id, shared.head.last_seq
        )
    });
    Ok(Start { source: source.map(|id| Id(id.bits())), is_in_line, told })
}
