//! Leases that end without a commit.

use crate::rows::{self, key, number};
use crate::statements as sql;
use crate::writer::Work;
use tenure_core::SessionId;
use tenure_store::{Error, Hint, Lease};

/// Gives a lease back. One that is gone already is not an error.
pub(crate) fn release(work: &mut Work<'_>, lease: &Lease) -> Result<(), Error> {
    let params = (work.now.0, key(lease.session.bits()), number(lease.epoch), key(lease.nonce.bits()));
    if rows::run(work.connection, sql::RELEASE, params)? > 0 {
        work.hints.extend([Hint::Runnable, Hint::Session(lease.session)]);
    }
    Ok(())
}

/// Whether a claim counts although its holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// It may have been the session that ended its holder (promise P13).
    Counts,
    /// The holder lives or ended in good order.
    IsForgiven,
}

/// Takes leases back, whoever holds them.
pub(crate) fn take_back(work: &mut Work<'_>, sessions: &[SessionId], strike: Strike) -> Result<(), Error> {
    let statement = match strike {
        Strike::Counts => sql::TAKE_BACK,
        Strike::IsForgiven => sql::TAKE_BACK_UNCOUNTED,
    };
    for session in sessions {
        rows::run(work.connection, statement, (work.now.0, key(session.bits())))?;
        work.hints.push(Hint::Session(*session));
    }
    if !sessions.is_empty() {
        work.hints.push(Hint::Runnable);
    }
    Ok(())
}
