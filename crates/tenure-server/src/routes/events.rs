//! Events of a session: read and sent.

use super::{find_session, session_id};
use crate::deliver;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::page;
use crate::request::{Created, JsonBody, Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::event::{WireEvent, read_events};
use tenure_api::page::{Page, Rows};
use tenure_api::scope::Scope;
use tenure_core::{InputBody, SessionId, Timestamp};
use tenure_store::{EventQuery, Order, Receipt};

type Shared = State<Arc<ServerState>>;

/// Most rows that one filtered page looks through.
const MAX_SCAN: usize = 20_000;

/// `POST /v1/sessions/{session_id}/events`: all or nothing, answered after the commit.
pub(crate) async fn send(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<Rows<WireEvent>>> {
    let id = session_id(&id)?;
    let idempotency = body.idempotency(&caller);
    let body = body.masked(&*state.config.mask);
    let inputs = read_events(&body.fields()?, "events")?;
    if inputs.iter().any(|input| matches!(input, InputBody::Confirmation { .. })) {
        // The agent's own programs may hold a client's key; they must not approve for it (hazard Z-06).
        caller.needs(Scope::Person, "user.tool_confirmation")?;
    }
    let delivered = deliver::deliver(&state, &caller, id, inputs, idempotency).await?;
    let show = |receipt: &Receipt| match receipt {
        Receipt::Queued(input) => WireEvent::queued(input),
        Receipt::Logged(event) => Some(state.shown(id, event)),
        Receipt::Nothing => None,
    };
    Ok(Json(Rows { data: delivered.receipts.iter().filter_map(show).collect() }))
}

/// `GET /v1/sessions/{session_id}/events`
pub(crate) async fn list(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Page<WireEvent>>> {
    let id = session_id(&id)?;
    find_session(&state, &caller, id).await?;
    let limit = page::limit(&query)?;
    let filter = Filter::read(&query)?;
    let order = match query.get("order") {
        None | Some("asc") => Order::Ascending,
        Some("desc") => Order::Descending,
        Some(other) => {
            return Err(ApiError::new(Code::InvalidQuery, format!("order: expected asc or desc, found {other:?}")));
        }
    };
    let mut after: Option<u64> = page::cursor(&query)?;
    let (mut data, mut scanned) = (Vec::new(), 0);
    loop {
        let wanted = if filter.is_empty() { limit + 1 - data.len() } else { tenure_store::MAX_PAGE };
        let wanted = wanted.min(tenure_store::MAX_PAGE);
        let rows = EventQuery { tenant: caller.tenant.clone(), session: id, after, order, limit: wanted };
        let rows = state.store().events(rows).await?;
        let is_last = rows.len() < wanted;
        for row in &rows {
            if data.len() == limit {
                return Ok(Json(Page { data, next_page: after.map(page::next) }));
            }
            after = Some(row.seq);
            scanned += 1;
            let wire = state.shown(id, row);
            if filter.takes(wire.type_name(), row.at) {
                data.push(wire);
            }
        }
        if is_last {
            if order == Order::Ascending && filter.takes_queued() {
                data.extend(queued(&state, id, &filter).await?);
            }
            return Ok(Json(Page { data, next_page: None }));
        }
        if scanned >= MAX_SCAN {
            return Ok(Json(Page { data, next_page: after.map(page::next) }));
        }
    }
}

/// Inputs that wait, which come after everything that was processed.
async fn queued(state: &ServerState, id: SessionId, filter: &Filter) -> Result<Vec<WireEvent>> {
    let inbox = state.store().inbox(id).await?;
    let wire = inbox.iter().filter_map(|(_, input)| WireEvent::queued(input));
    Ok(wire.filter(|event| filter.takes_type(event.type_name())).collect())
}

/// Which rows a request wants.
struct Filter {
    types: Vec<String>,
    created: Created,
}

impl Filter {
    fn read(query: &Query) -> Result<Self> {
        let types = query.all("types").into_iter().map(str::to_owned).collect();
        Ok(Self { types, created: Created::read(query)? })
    }

    fn is_empty(&self) -> bool {
        self.types.is_empty() && self.takes_queued()
    }

    fn takes_queued(&self) -> bool {
        self.created.is_all()
    }

    fn takes_type(&self, kind: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|wanted| wanted == kind)
    }

    fn takes(&self, kind: &str, at: Timestamp) -> bool {
        self.takes_type(kind) && self.created.takes(at)
    }
}
