//! Forks share rows: whose rows the log of a session is made of (design 7.10). Nothing is copied.

use crate::{Error, EventQuery, Kind, Order};
use tenure_core::{ForkedFrom, SessionId};

/// Most sessions whose rows one log is made of, beside its own: a fork of a fork of a fork needs one for
/// each of them that has rows in it.
pub const MAX_LINEAGE: usize = 1_000;

/// Some rows of a log are those of another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Whose rows they are.
    pub session: SessionId,
    /// The last of them; they begin after those of the ancestor before it.
    pub up_to: u64,
}

/// A range of rows of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose rows.
    pub session: SessionId,
    /// After this one.
    pub after: u64,
    /// Up to this one, included.
    pub up_to: u64,
}

/// The ancestors of a fork of `parent` at `seq`, given those of the parent, in the order of their rows.
///
/// # Errors
/// [`Kind::Invalid`] if there are more than [`MAX_LINEAGE`].
pub fn of_fork(parent: SessionId, of_parent: &[Ancestor], seq: u64) -> Result<Vec<Ancestor>, Error> {
    let mut last = 0;
    let mut lineage = Vec::new();
    for ancestor in of_parent.iter().chain([&Ancestor { session: parent, up_to: u64::MAX }]) {
        if last < seq {
            lineage.push(Ancestor { session: ancestor.session, up_to: ancestor.up_to.min(seq) });
        }
        last = ancestor.up_to;
    }
    if lineage.len() > MAX_LINEAGE {
        let message = format!("session {parent} is a fork of too many others ({MAX_LINEAGE}): fork an earlier one");
        return Err(Error::new(Kind::Invalid, message));
    }
    Ok(lineage)
}

/// A fork at an event that its parent does not have.
pub fn beyond(forked: ForkedFrom) -> Error {
    Error::new(Kind::Invalid, format!("session {} has no event {}", forked.session, forked.seq))
}

/// Where the rows are that a query asks for, in its order.
pub fn parts(query: &EventQuery, lineage: &[Ancestor]) -> Vec<Part> {
    let (after, up_to) = range(query);
    let own = Ancestor { session: query.session, up_to: u64::MAX };
    let mut last = 0;
    let mut parts = Vec::new();
    for ancestor in lineage.iter().chain([&own]) {
        let part = Part { session: ancestor.session, after: last.max(after), up_to: ancestor.up_to.min(up_to) };
        last = ancestor.up_to;
        if part.after < part.up_to {
            parts.push(part);
        }
    }
    if query.order == Order::Descending {
        parts.reverse();
    }
    parts
}

/// Whether the rows of the session itself answer a query, so that nobody has to ask for its lineage: the
/// `seq` of those that were found, in the order of the query. The first row of a fork is its own, and
/// follows those that it shares.
pub fn is_answered(query: &EventQuery, found: &[u64]) -> bool {
    let (after, up_to) = range(query);
    match query.order {
        Order::Ascending => found.first().is_none_or(|first| *first == after + 1),
        Order::Descending => up_to == 0 || found.len() >= query.limit || found.last() == Some(&1),
    }
}

/// After which row, and up to which.
fn range(query: &EventQuery) -> (u64, u64) {
    match query.order {
        Order::Ascending => (query.after.unwrap_or(0), u64::MAX),
        Order::Descending => (0, query.after.map_or(u64::MAX, |before| before.saturating_sub(1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::TenantId;

    fn session(number: u128) -> SessionId {
        SessionId::from_bits(number)
    }

    fn query(after: Option<u64>, order: Order) -> EventQuery {
        EventQuery { tenant: TenantId("t".into()), session: session(3), after, order, limit: 10 }
    }

    #[test]
    fn a_fork_of_a_fork_has_the_rows_of_each_up_to_where_it_left() {
        let first = of_fork(session(1), &[], 10).unwrap();
        assert_eq!(first, [Ancestor { session: session(1), up_to: 10 }]);
        let deeper = of_fork(session(2), &first, 15).unwrap();
        assert_eq!(deeper[1], Ancestor { session: session(2), up_to: 15 });
        assert_eq!(of_fork(session(2), &first, 10).unwrap(), first, "no row of its own");
        assert_eq!(of_fork(session(2), &first, 4).unwrap(), [Ancestor { session: session(1), up_to: 4 }]);
        assert_eq!(of_fork(session(1), &[], 0).unwrap(), []);
    }

    #[test]
    fn a_query_is_cut_into_the_parts_that_have_its_rows() {
        let lineage = [Ancestor { session: session(1), up_to: 10 }, Ancestor { session: session(2), up_to: 15 }];
        let shown = |parts: Vec<Part>| -> Vec<(u128, u64, u64)> {
            parts.into_iter().map(|part| (part.session.bits(), part.after, part.up_to)).collect()
        };
        let ascending = |after| shown(parts(&query(Some(after), Order::Ascending), &lineage));
        assert_eq!(ascending(0), [(1, 0, 10), (2, 10, 15), (3, 15, u64::MAX)]);
        assert_eq!(ascending(9), [(1, 9, 10), (2, 10, 15), (3, 15, u64::MAX)]);
        assert_eq!(ascending(10), [(2, 10, 15), (3, 15, u64::MAX)]);
        assert_eq!(ascending(99), [(3, 99, u64::MAX)]);
        let descending = |before| shown(parts(&query(before, Order::Descending), &lineage));
        assert_eq!(descending(None), [(3, 15, u64::MAX), (2, 10, 15), (1, 0, 10)]);
        assert_eq!(descending(Some(16)), [(2, 10, 15), (1, 0, 10)]);
        assert_eq!(descending(Some(11)), [(1, 0, 10)]);
        assert_eq!(descending(Some(1)), []);
    }

    #[test]
    fn own_rows_that_leave_no_gap_are_the_whole_answer() {
        let up = query(Some(4), Order::Ascending);
        assert!(is_answered(&up, &[5, 6]) && is_answered(&up, &[]) && !is_answered(&up, &[9]));
        let down = query(None, Order::Descending);
        assert!(is_answered(&down, &[2, 1]) && !is_answered(&down, &[12, 11]) && !is_answered(&down, &[]));
        assert!(is_answered(&query(Some(1), Order::Descending), &[]));
    }

    #[test]
    fn a_lineage_is_bounded() {
        let long: Vec<Ancestor> =
            (1..=MAX_LINEAGE as u64).map(|up_to| Ancestor { session: session(u128::from(up_to)), up_to }).collect();
        assert_eq!(of_fork(session(9), &long, 1).unwrap().len(), 1);
        let error = of_fork(session(9), &long, u64::MAX).expect_err("one too many");
        assert_eq!(error.kind, Kind::Invalid);
    }
}
