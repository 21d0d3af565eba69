//! Pages of lists.

use crate::error::{ApiError, Result};
use crate::request::Query;
use std::fmt::Display;
use std::str::FromStr;
use tenure_api::error::Code;
use tenure_api::page::Page;

/// Rows of a page unless the request says otherwise.
pub(crate) const PAGE: u64 = 100;

/// Most rows of a page.
pub(crate) const MAX_PAGE: u64 = 1_000;

/// What a cursor begins with, so that nobody mistakes it for a number to count with.
const PREFIX: &str = "page_";

/// The rows that a request asks for.
pub(crate) fn limit(query: &Query) -> Result<usize> {
    let limit = query.number("limit", 1, MAX_PAGE)?.unwrap_or(PAGE);
    Ok(usize::try_from(limit).expect("not above the largest page"))
}

/// The position of a cursor.
pub(crate) fn cursor<T: FromStr>(query: &Query) -> Result<Option<T>> {
    let Some(page) = query.get("page").filter(|page| !page.is_empty()) else {
        return Ok(None);
    };
    let position = page.strip_prefix(PREFIX).and_then(|position| position.parse().ok());
    position.map(Some).ok_or_else(|| ApiError::new(Code::InvalidCursor, "page: this is no cursor of this list"))
}

/// A cursor for the rows after a position.
pub(crate) fn next<T: Display>(position: T) -> String {
    format!("{PREFIX}{position}")
}

/// What a list leaves out although the store cannot filter by it.
pub(crate) struct Sieve<'a, R> {
    /// Whether nothing is left out, so that no row more than the page is read.
    pub(crate) is_open: bool,
    /// Most rows that one page looks through; the next page goes on there.
    pub(crate) max_scan: usize,
    /// Whether a row is shown.
    pub(crate) takes: &'a (dyn Fn(&R) -> bool + Sync),
}

/// A page of rows, read from `after` on until it is full; `read` gives rows after a position.
pub(crate) async fn walk<R, P: Clone + Display, F: Future<Output = Result<Vec<R>>>>(
    limit: usize,
    mut after: Option<P>,
    sieve: Sieve<'_, R>,
    position: impl Fn(&R) -> P,
    read: impl Fn(Option<P>, usize) -> F,
) -> Result<Page<R>> {
    let (mut data, mut scanned) = (Vec::new(), 0);
    loop {
        let wanted = if sieve.is_open { limit + 1 - data.len() } else { tenure_store::MAX_PAGE };
        let wanted = wanted.min(tenure_store::MAX_PAGE);
        let rows = read(after.clone(), wanted).await?;
        let is_last = rows.len() < wanted;
        for row in rows {
            if data.len() == limit {
                return Ok(Page { next_page: after.map(next), data });
            }
            after = Some(position(&row));
            scanned += 1;
            if (sieve.takes)(&row) {
                data.push(row);
            }
        }
        if is_last {
            return Ok(Page { data, next_page: None });
        }
        if scanned >= sieve.max_scan {
            return Ok(Page { next_page: after.map(next), data });
        }
    }
}

/// A page of rows that were read with one more than `limit`; `position` is that of the last row shown.
pub(crate) fn page<R, W, P: Display>(
    mut rows: Vec<R>,
    limit: usize,
    position: impl Fn(&R) -> P,
    show: impl Fn(&R) -> W,
) -> Page<W> {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next_page = rows.last().filter(|_| has_more).map(|last| next(position(last)));
    Page { data: rows.iter().map(show).collect(), next_page }
}
