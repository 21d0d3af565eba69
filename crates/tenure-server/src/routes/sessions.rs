//! Sessions.

mod search;

use self::search::Search;
use super::{AgentsOf, agents, environments, find_session, session_id, show, show_with_inbox, take_ahead};
use crate::deliver;
use crate::error::{ApiError, Result};
use crate::keys::{Caller, sha256};
use crate::page::{self, Sieve};
use crate::repeat;
use crate::request::{Created, JsonBody, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::agent::ModelsChange;
use tenure_api::error::Code;
use tenure_api::limits::LimitsChange;
use tenure_api::page::{Deleted, Page};
use tenure_api::session::{SessionCreate, SessionUpdate, WireSession};
use tenure_core::{Agent, AgentRef, EventId, InputBody, Limits, ModelChoice, Phase, Session, SessionId, Shard};
use tenure_store::{Idempotency, Kind, NewSession, Order, Remembered, SessionQuery, SessionView};

type Shared = State<Arc<ServerState>>;

/// Most rows that one filtered page looks through.
const MAX_SCAN: usize = 5_000;

/// Most sessions that a tail gives.
const MAX_BY_TAIL: usize = 20;

/// `POST /v1/sessions`
pub(crate) async fn create(State(state): Shared, caller: Caller, body: JsonBody) -> Result<Json<WireSession>> {
    let idempotency = body.idempotency(&caller);
    if let Some(Remembered::Session(id)) = repeat::earlier(&state, &caller, idempotency.as_ref()).await? {
        let view = find_session(&state, &caller, id).await?;
        return show_with_inbox(&state, &caller, view).await.map(Json);
    }
    let body = body.masked(&*state.config.mask);
    let request = SessionCreate::read(&body.fields()?)?;
    let agent = agents::find(&state, &caller, request.agent, request.version).await?;
    if agent.archived_at.is_some() {
        return Err(agents::archived(agent.id));
    }
    let environment = environments::find(&state, &caller, request.environment).await?;
    if environment.archived_at.is_some() {
        return Err(environments::archived(environment.id));
    }
    let limits = request.limits.apply(agent.limits);
    let limits = check_money(&state, &agent, limits, request.limits.limits_money())?;
    let id = new_id(&state, &caller, idempotency.as_ref());
    let pinned = AgentRef { id: agent.id, version: agent.version };
    let now = state.store().now().await?;
    let mut session = Session::new(id, caller.tenant.clone(), pinned, environment.id, now);
    session.title = request.title;
    session.queue = agent.run_loop.queue().map(str::to_owned);
    session.budget.limits = limits;
    let inputs = request.inputs.into_iter().map(|input| (EventId::from_bits(state.new_bits()), input)).collect();
    let new = NewSession { session, events: Vec::new(), metadata: request.metadata, inputs, idempotency };
    let created = state.store().create(new).await?;
    show_with_inbox(&state, &caller, created.view).await.map(Json)
}

/// `GET /v1/sessions/{session_id}`
pub(crate) async fn get(State(state): Shared, caller: Caller, Path(id): Path<String>) -> Result<Json<WireSession>> {
    let view = find_session(&state, &caller, session_id(&id)?).await?;
    show_with_inbox(&state, &caller, view).await.map(Json)
}

/// `POST /v1/sessions/{session_id}`
pub(crate) async fn update(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<WireSession>> {
    let id = session_id(&id)?;
    let idempotency = body.idempotency(&caller);
    let body = body.masked(&*state.config.mask);
    let request = SessionUpdate::read(&body.fields()?)?;
    let view = find_session(&state, &caller, id).await?;
    if repeat::earlier(&state, &caller, idempotency.as_ref()).await?.is_none() {
        let mut inputs: Vec<InputBody> = request.title.clone().map(InputBody::Title).into_iter().collect();
        if !request.models.is_empty() {
            inputs.push(InputBody::Models(changed_models(&state, &caller, &view, &request).await?));
        }
        if !request.limits.is_empty() {
            let change = (&request.limits, &request.models);
            inputs.push(InputBody::Limits(changed_limits(&state, &caller, &view, change).await?));
        }
        // Also without a change: the key of the request is remembered with the delivery.
        if !inputs.is_empty() || !request.metadata.is_empty() || idempotency.is_some() {
            deliver::deliver_with_notes(&state, &caller, id, inputs, request.metadata, idempotency).await?;
        }
    }
    let view = find_session(&state, &caller, id).await?;
    show_with_inbox(&state, &caller, view).await.map(Json)
}

/// `POST /v1/sessions/{session_id}/archive`
pub(crate) async fn archive(State(state): Shared, caller: Caller, Path(id): Path<String>) -> Result<Json<WireSession>> {
    let id = session_id(&id)?;
    deliver::deliver(&state, &caller, id, vec![InputBody::Archive], None).await?;
    let view = find_session(&state, &caller, id).await?;
    show_with_inbox(&state, &caller, view).await.map(Json)
}

/// `DELETE /v1/sessions/{session_id}`
pub(crate) async fn delete(State(state): Shared, caller: Caller, Path(id): Path<String>) -> Result<Json<Deleted>> {
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let removed_rows = match state.store().delete(&caller.tenant, id).await {
        Ok(removed) => removed,
        Err(error) if error.kind == Kind::Conflict => {
            return Err(ApiError::new(Code::SessionBusy, error.message));
        }
        Err(error) => return Err(error.into()),
    };
    let folders = [(state.config.workspace)(id), (state.config.outputs)(id)];
    let newest = view.session.files.snapshot.map(|id| tenure_files::snapshots::Id(id.bits()));
    let snapshots = newest.map(|newest| (super::files::snapshots(&state, &view.session), newest));
    let removed = tokio::task::spawn_blocking(move || {
        match snapshots {
            None => {}
            // What they alone needed is collected later.
            Some((Ok(snapshots), newest)) => {
                if let Err(error) = snapshots.remove_chain(newest, &id.to_string()) {
                    tracing::warn!(session = %id, %error, "remove the snapshots of a deleted session");
                }
            }
            Some((Err(error), _)) => tracing::warn!(session = %id, ?error, "open the snapshots of a deleted session"),
        }
        for folder in folders {
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(folder = %folder.display(), %error, "remove files of a deleted session");
                }
                Ok(()) | Err(_) => {}
            }
        }
    });
    removed.await.map_err(ApiError::internal)?;
    let kept_events = (removed_rows.kept_up_to > 0).then_some(removed_rows.kept_up_to);
    Ok(Json(Deleted { id: id.to_string(), kind: "session_deleted".into(), kept_events }))
}

/// `GET /v1/sessions`
pub(crate) async fn list(State(state): Shared, caller: Caller, query: Query) -> Result<Json<Page<WireSession>>> {
    let rows = match query.get("tail") {
        Some(tail) => Page { data: by_tail(&state, &caller, tail).await?, next_page: None },
        None => rows(&state, &caller, &query).await?,
    };
    let mut agents = AgentsOf::new(&state, &caller);
    let mut data = Vec::with_capacity(rows.data.len());
    let with_archived = query.flag("include_archived")? || query.get("tail").is_some();
    for view in rows.data {
        if view.inbox_len == 0 {
            data.push(show(&view, agents.get(&view).await?));
            continue;
        }
        // What was acknowledged holds in the list too, although no worker has taken it yet.
        let wire = match show_with_inbox(&state, &caller, view).await {
            Ok(wire) => wire,
            // Deleted since the list was read.
            Err(error) if error.is(Code::SessionNotFound) => continue,
            Err(error) => return Err(error),
        };
        if with_archived || wire.archived_at.is_none() {
            data.push(wire);
        }
    }
    Ok(Json(Page { data, next_page: rows.next_page }))
}

async fn by_tail(state: &ServerState, caller: &Caller, tail: &str) -> Result<Vec<SessionView>> {
    let ids = state.store().sessions_by_tail(&caller.tenant, tail, MAX_BY_TAIL).await?;
    let mut views = Vec::with_capacity(ids.len());
    for id in ids {
        views.extend(state.store().session(&caller.tenant, id).await?);
    }
    Ok(views)
}

async fn rows(state: &ServerState, caller: &Caller, query: &Query) -> Result<Page<SessionView>> {
    let filter = Filter::read(query)?;
    let search = Search::read(state, caller, query.get("q").unwrap_or_default()).await?;
    let mut wanted = session_query(caller, query)?;
    if wanted.phases.is_empty() {
        wanted.phases = search.phases();
    }
    // Whether the store alone answers the query.
    let is_answered = search.is_empty() || search.is_open() && wanted.phases == search.phases();
    let takes = |view: &SessionView| filter.takes(view) && search.takes(view);
    let sieve = Sieve { is_open: filter.is_empty() && is_answered, max_scan: MAX_SCAN, takes: &takes };
    let read = async |after, limit| Ok(state.store().sessions(SessionQuery { after, limit, ..wanted.clone() }).await?);
    page::walk(page::limit(query)?, page::cursor(query)?, sieve, |view| view.session.id, read).await
}

/// What a request asks for, from the first row on.
fn session_query(caller: &Caller, query: &Query) -> Result<SessionQuery> {
    let agent = query.get("agent_id").map(super::agent_id).transpose()?;
    let phases =
        query.all("phase").into_iter().chain(query.all("phases")).map(phase).collect::<Result<Vec<Phase>>>()?;
    let order = match query.get("order") {
        None | Some("desc") => Order::Descending,
        Some("asc") => Order::Ascending,
        Some(other) => {
            return Err(ApiError::new(Code::InvalidQuery, format!("order: expected asc or desc, found {other:?}")));
        }
    };
    let created = Created::read(query)?;
    Ok(SessionQuery {
        tenant: caller.tenant.clone(),
        agent,
        phases,
        with_archived: query.flag("include_archived")?,
        created_from: created.first(),
        created_before: created.end(),
        after: None,
        order,
        limit: 0,
    })
}

fn phase(word: &str) -> Result<Phase> {
    let all = [
        Phase::Queued,
        Phase::Working,
        Phase::Waiting,
        Phase::NeedsYou,
        Phase::BackingOff,
        Phase::Paused,
        Phase::Idle,
        Phase::Done,
        Phase::Failed,
        Phase::Cancelled,
    ];
    let found = all.into_iter().find(|phase| phase.name() == word);
    found.ok_or_else(|| {
        ApiError::new(Code::InvalidQuery, format!("phase: {word:?} is none of {}", all.map(Phase::name).join(", ")))
    })
}

/// What the store cannot filter by.
struct Filter {
    statuses: Vec<String>,
    version: Option<u64>,
    /// Sessions of a deployment or with a memory store do not exist here.
    is_empty_by_design: bool,
}

impl Filter {
    fn read(query: &Query) -> Result<Self> {
        let statuses = query.all("statuses").into_iter().map(str::to_owned).collect::<Vec<_>>();
        let known = ["rescheduling", "running", "idle", "terminated"];
        if let Some(other) = statuses.iter().find(|status| !known.contains(&status.as_str())) {
            return Err(ApiError::new(
                Code::InvalidQuery,
                format!("statuses: {other:?} is none of {}", known.join(", ")),
            ));
        }
        let is_empty_by_design = query.get("deployment_id").is_some() || query.get("memory_store_id").is_some();
        Ok(Self { statuses, version: query.number("agent_version", 1, u64::MAX)?, is_empty_by_design })
    }

    fn is_empty(&self) -> bool {
        self.statuses.is_empty() && self.version.is_none() && !self.is_empty_by_design
    }

    fn takes(&self, view: &SessionView) -> bool {
        let status = view.session.status.name();
        !self.is_empty_by_design
            && (self.statuses.is_empty() || self.statuses.iter().any(|wanted| wanted == status))
            && self.version.is_none_or(|version| version == u64::from(view.session.agent.version))
    }
}

/// The limits of a session after a change.
pub(crate) async fn changed_limits(
    state: &ServerState,
    caller: &Caller,
    view: &SessionView,
    (limits, models): (&LimitsChange, &ModelsChange),
) -> Result<Limits> {
    let session = settled(state, caller, view.session.id).await?;
    let mut agents = AgentsOf::new(state, caller);
    let agent = agents.get(view).await?.with_models(&models.apply(&session.models));
    check_money(state, &agent, limits.apply(session.budget.limits), limits.limits_money())
}

/// The models of a session after a change: each is known, and a limit of money can bind.
async fn changed_models(
    state: &ServerState,
    caller: &Caller,
    view: &SessionView,
    request: &SessionUpdate,
) -> Result<ModelChoice> {
    for name in request.models.names() {
        state.config.models.check(name).map_err(|why| ApiError::new(Code::UnknownModel, format!("agent: {why}")))?;
    }
    let session = settled(state, caller, view.session.id).await?;
    let choice = request.models.apply(&session.models);
    let limits = request.limits.apply(session.budget.limits);
    let mut agents = AgentsOf::new(state, caller);
    let agent = agents.get(view).await?.with_models(&choice);
    check_money(state, &agent, limits, limits.cost_usd_micros.is_some())?;
    Ok(choice)
}

/// The head of a session with the changes of operators that wait in its inbox.
async fn settled(state: &ServerState, caller: &Caller, id: SessionId) -> Result<Session> {
    let inbox = state.store().inbox(id).await?;
    // What was consumed meanwhile is missing there, and is in this head.
    let mut view = find_session(state, caller, id).await?;
    for (_, input) in inbox {
        take_ahead(&mut view, &input.body, input.at);
    }
    Ok(view.session)
}

/// Refuses a limit of money that could not bind, and drops one that was only a default.
pub(super) fn check_money(state: &ServerState, agent: &Agent, mut limits: Limits, is_asked: bool) -> Result<Limits> {
    // An external loop says what its calls cost.
    if agent.run_loop.queue().is_some() {
        return Ok(limits);
    }
    let has_price = |model: &&String| state.config.models.check(model).is_ok_and(|known| known.has_price);
    // Every model that may be called: one without a price would make the limit a guess.
    let others = agent.fallback_models.iter().chain(&agent.policies.compaction.model);
    match std::iter::once(&agent.model).chain(others).find(|model| !has_price(model)) {
        Some(model) if is_asked => {
            let message = format!("budget: the price of {model} is not known, so a limit of money could not bind");
            return Err(ApiError::new(Code::ModelWithoutPrice, message));
        }
        Some(_) => limits.cost_usd_micros = None,
        None => {}
    }
    Ok(limits)
}

/// A new id on a shard; a repeated request gets the same shard, so that it meets its own row
/// (hazard Z-17).
fn new_id(state: &ServerState, caller: &Caller, idempotency: Option<&Idempotency>) -> SessionId {
    let id = SessionId::from_bits(state.new_bits());
    match idempotency {
        Some(idempotency) => {
            let name = format!("{}\n{}\n{}", caller.tenant, idempotency.scope, idempotency.key);
            id.on_shard(Shard(sha256(name.as_bytes())[0]))
        }
        None => id,
    }
}
