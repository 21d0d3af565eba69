//! The rows that a model sees, kept between the steps of a session and read once (promise P7).

use crate::error::Stopped;
use crate::journal::Journal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::{Event, Session, SessionId};
use tenure_store::{EventQuery, MAX_PAGE, Order, Store};

/// Sessions whose rows a worker keeps after their lease.
const MAX_KEPT_SESSIONS: usize = 256;

/// Most rows that are kept for one session; a longer context is read again with each lease.
const MAX_KEPT_ROWS: usize = 20_000;

/// Rows of sessions that this worker advanced lately.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    kept: Mutex<BTreeMap<SessionId, Arc<Vec<Event>>>>,
}

impl Contexts {
    /// Takes out what is kept for a session, if it is a prefix of its log.
    pub(crate) fn take(&self, session: &Session) -> Context {
        let kept = self.kept.lock().expect("nobody panics while holding it").remove(&session.id);
        let rows = kept.map(Arc::unwrap_or_clone).unwrap_or_default();
        let fits = rows.first().is_some_and(|first| first.seq == session.context_from_seq)
            && rows.last().is_some_and(|last| last.seq <= session.last_seq);
        Context { rows: if fits { rows } else { Vec::new() } }
    }

    /// Keeps rows for the next lease of the session.
    pub(crate) fn keep(&self, session: &Session, context: Context) {
        if context.rows.is_empty() || context.rows.len() > MAX_KEPT_ROWS || session.has_ended() {
            return;
        }
        let mut kept = self.kept.lock().expect("nobody panics while holding it");
        if kept.len() >= MAX_KEPT_SESSIONS {
            // Any victim will do: a session that was dropped is read again.
            kept.pop_first();
        }
        kept.insert(session.id, Arc::new(context.rows));
    }
}

/// The rows that the model sees, those that are not stored yet included.
pub(crate) async fn seen<'a>(
    context: &'a mut Context,
    store: &dyn Store,
    journal: &'a Journal,
) -> Result<Vec<&'a Event>, Stopped> {
    let stored = context.rows(store, journal.session(), journal.committed_seq()).await?;
    Ok(stored.iter().chain(journal.pending()).collect())
}

/// The rows of one session from `context_from_seq` on, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Context {
    rows: Vec<Event>,
}

impl Context {
    /// Adds rows that this worker committed itself.
    pub(crate) fn extend(&mut self, rows: Vec<Event>) {
        for row in rows {
            if self.rows.last().is_some_and(|last| last.seq + 1 == row.seq) {
                self.rows.push(row);
            }
        }
    }

    /// All rows from `context_from_seq` to `until`, which is stored; reads those that are missing.
    pub(crate) async fn rows(&mut self, store: &dyn Store, session: &Session, until: u64) -> Result<&[Event], Stopped> {
        // Rows that a compaction left out.
        let left_out = self.rows.partition_point(|row| row.seq < session.context_from_seq);
        self.rows.drain(..left_out);
        let mut after = self.rows.last().map_or(session.context_from_seq - 1, |last| last.seq);
        while after < until {
            let query = EventQuery {
                tenant: session.tenant.clone(),
                session: session.id,
                after: Some(after),
                order: Order::Ascending,
                limit: MAX_PAGE,
            };
            let page = store.events(query).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            self.rows.extend(page);
        }
        Ok(&self.rows)
    }

    /// One row by its `seq`; reads the log if it is not here.
    pub(crate) async fn row(
        &mut self,
        store: &dyn Store,
        session: &Session,
        seq: u64,
    ) -> Result<Option<Event>, Stopped> {
        if seq < session.context_from_seq {
            // It was left out of the context, and is still in the log.
            let query = EventQuery {
                tenant: session.tenant.clone(),
                session: session.id,
                after: Some(seq.saturating_sub(1)),
                order: Order::Ascending,
                limit: 1,
            };
            return Ok(store.events(query).await?.pop().filter(|row| row.seq == seq));
        }
        let rows = self.rows(store, session, session.last_seq).await?;
        Ok(rows.iter().find(|row| row.seq == seq).cloned())
    }
}
