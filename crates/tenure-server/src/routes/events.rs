//! Events of a session: read and sent.

use super::{find_session, session_id};
use crate::deliver;
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::page;
use crate::request::{JsonBody, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::event::{WireEvent, read_events};
use tenure_api::page::{Page, Rows};
use tenure_core::{SessionId, Timestamp};
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
    after: Option<Timestamp>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Filter {
    fn read(query: &Query) -> Result<Self> {
        Ok(Self {
            types: query.all("types").into_iter().map(str::to_owned).collect(),
            after: query.time("created_at[gt]")?,
            from: query.time("created_at[gte]")?,
            before: query.time("created_at[lt]")?,
            until: query.time("created_at[lte]")?,
        })
    }

    fn is_empty(&self) -> bool {
        self.types.is_empty() && self.takes_queued()
    }

    fn takes_queued(&self) -> bool {
        [self.after, self.from, self.before, self.until].iter().all(Option::is_none)
    }

    fn takes_type(&self, kind: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|wanted| wanted == kind)
    }

    fn takes(&self, kind: &str, at: Timestamp) -> bool {
        self.takes_type(kind)
            && self.after.is_none_or(|after| at > after)
            && self.from.is_none_or(|from| at >= from)
            && self.before.is_none_or(|before| at < before)
            && self.until.is_none_or(|until| at <= until)
    }
}
