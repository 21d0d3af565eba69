//! The timeline of a session: spans made of its log and its leases.
//!
//! A session with more spans than anybody looks at one by one is shown in bins, each with the range of
//! rows behind it, so that a reader may look closer with `from_seq` and `to_seq`.

mod bins;
mod change;
mod spans;

use super::{find_session, session_id};
use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::page;
use crate::request::{Path, Query};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use bins::Bins;
use spans::Spans;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tenure_api::error::Code;
use tenure_api::page::Page;
use tenure_api::timeline::WireSpan;
use tenure_core::{Event, SessionId};
use tenure_store::{EventQuery, LeaseQuery, Order, PastLease};

/// Rows whose spans one page shows unless the request says otherwise.
const ROWS: u64 = 2_000;

/// Most rows whose spans one page shows.
const MAX_ROWS: u64 = 20_000;

/// Spans above which bins are shown instead.
const MAX_SPANS: u64 = 20_000;

/// Most rows that one page of bins stands for; the next page goes on there.
const MAX_BINNED_ROWS: u64 = 500_000;

/// Most rows after a page that are looked through for the ends of its spans; beyond them a span is
/// shown as open, with the same id on no later page.
const MAX_LOOK_AHEAD: u64 = 5_000;

/// `GET /v1/sessions/{session_id}/timeline`: `limit` counts rows of the log.
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Page<WireSpan>>> {
    let id = session_id(&id)?;
    let view = find_session(&state, &caller, id).await?;
    let wanted = Wanted::read(&query)?;
    let limit = query.number("limit", 1, MAX_ROWS)?.unwrap_or(ROWS);
    let reader = Reader { state: &state, caller: &caller, session: id, last_seq: view.session.last_seq };
    let leases = reader.leases().await?;
    let until = wanted.until.unwrap_or(u64::MAX);
    let rows = view.session.last_seq.min(until).saturating_sub(wanted.after);
    let page = match wanted.form {
        Some(Form::Spans) => None,
        Some(Form::Bins) => Some(bins(&reader, &leases, wanted.after, until).await?),
        // A row begins at most one span: most sessions are never read for this.
        None if rows + leases.len() as u64 <= MAX_SPANS => None,
        None => Some(bins(&reader, &leases, wanted.after, until).await?).filter(|binned| binned.spans > MAX_SPANS),
    };
    match page {
        Some(Binned { page, .. }) => Ok(Json(page)),
        None => spans(&reader, &leases, wanted.after, until, limit).await.map(Json),
    }
}

/// What a request asks for.
struct Wanted {
    /// Rows after this one.
    after: u64,
    /// Up to this one; `None` for all.
    until: Option<u64>,
    /// `None` lets the number of spans decide.
    form: Option<Form>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Spans,
    Bins,
}

impl Wanted {
    fn read(query: &Query) -> Result<Self> {
        let form = match query.get("view") {
            None => None,
            Some("spans") => Some(Form::Spans),
            Some("bins") => Some(Form::Bins),
            Some(other) => {
                return Err(ApiError::new(
                    Code::InvalidQuery,
                    format!("view: expected spans or bins, found {other:?}"),
                ));
            }
        };
        let from = query.number("from_seq", 1, u64::MAX)?.unwrap_or(1);
        let until = query.number("to_seq", 1, u64::MAX)?;
        Ok(match page::cursor::<Place>(query)? {
            Some(place) => Self { after: place.after, until, form: Some(place.form) },
            None => Self { after: from - 1, until, form },
        })
    }
}

/// Where the next page begins, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    after: u64,
    form: Form,
}

impl FromStr for Place {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (form, after) = match text.strip_prefix("bins.") {
            Some(after) => (Form::Bins, after),
            None => (Form::Spans, text),
        };
        Ok(Self { after: after.parse()?, form })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Spans => write!(f, "{}", self.after),
            Form::Bins => write!(f, "bins.{}", self.after),
        }
    }
}

/// Reads a session for its timeline.
struct Reader<'a> {
    state: &'a ServerState,
    caller: &'a Caller,
    session: SessionId,
    /// Where the log ended when the request came.
    last_seq: u64,
}

impl Reader<'_> {
    async fn rows(&self, after: u64) -> Result<Vec<Event>> {
        let query = EventQuery {
            tenant: self.caller.tenant.clone(),
            session: self.session,
            after: Some(after),
            order: Order::Ascending,
            limit: tenure_store::MAX_PAGE,
        };
        Ok(self.state.store().events(query).await?)
    }

    /// All that the store keeps, which is bounded.
    async fn leases(&self) -> Result<Vec<PastLease>> {
        let mut all: Vec<PastLease> = Vec::new();
        loop {
            let after = all.last().map_or(0, |lease| lease.epoch);
            let (tenant, limit) = (self.caller.tenant.clone(), tenure_store::MAX_PAGE);
            let page = self.state.store().leases(LeaseQuery { tenant, session: self.session, after, limit }).await?;
            let is_last = page.len() < limit;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }
}

/// The spans that begin in rows after `after`, at most `limit` rows and none beyond `until`.
async fn spans(
    reader: &Reader<'_>,
    leases: &[PastLease],
    after: u64,
    until: u64,
    limit: u64,
) -> Result<Page<WireSpan>> {
    let last = after.saturating_add(limit).min(until);
    let mut spans = Spans::new(reader.session, last);
    let mut seq = after;
    loop {
        let rows = reader.rows(seq).await?;
        for row in &rows {
            spans.take(row);
            seq = row.seq;
        }
        let is_end = rows.is_empty() || seq >= reader.last_seq;
        let is_done = seq > last && (!spans.has_open() || seq - last > MAX_LOOK_AHEAD);
        if is_end || is_done {
            let has_more = seq > last && last < until;
            // A lease that begins after the last row of all belongs to the last page.
            let before = if has_more || until < u64::MAX { last } else { u64::MAX };
            let of_page = leases.iter().filter(|lease| (after..before).contains(&lease.from_seq));
            let next_page = has_more.then(|| page::next(Place { after: last, form: Form::Spans }));
            return Ok(Page { data: spans.show(of_page), next_page });
        }
    }
}

struct Binned {
    page: Page<WireSpan>,
    /// How many spans are in the bins.
    spans: u64,
}

/// The same rows in bins.
async fn bins(reader: &Reader<'_>, leases: &[PastLease], after: u64, until: u64) -> Result<Binned> {
    let last = after.saturating_add(MAX_BINNED_ROWS).min(until);
    let mut bins = Bins::new(after);
    let mut seq = after;
    loop {
        let rows = reader.rows(seq).await?;
        for row in rows.iter().take_while(|row| row.seq <= last) {
            bins.take(row);
        }
        seq = rows.last().map_or(seq, |row| row.seq);
        if rows.is_empty() || seq > last || seq >= reader.last_seq {
            let has_more = seq > last && last < until;
            let before = if has_more || until < u64::MAX { last } else { u64::MAX };
            leases.iter().filter(|lease| (after..before).contains(&lease.from_seq)).for_each(|lease| bins.lease(lease));
            let next_page = has_more.then(|| page::next(Place { after: last, form: Form::Bins }));
            let spans = if has_more { u64::MAX } else { bins.spans() };
            return Ok(Binned { page: Page { data: bins.show(), next_page }, spans });
        }
    }
}
