//! Transactions, and how often they are tried.

use crate::link::Link;
use crate::trouble::Trouble;
use std::time::Duration;
use tenure_core::{SessionId, Timestamp};
use tenure_store::{Error, Hint};

/// Most tries of one operation.
const MAX_TRIES: u32 = 8;

/// Longest wait before the second try; it doubles.
const AGAIN: Duration = Duration::from_millis(5);

/// Begins a transaction. It never waits for a lock or idles for ever: a holder that hangs must not stop
/// the others. Local to the transaction, so that a pooler may stand between.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'; \
                     SET LOCAL idle_in_transaction_session_timeout = '30s'";

/// A transaction under way.
#[derive(Debug)]
pub(crate) struct Tx {
    pub(crate) link: Link,
    /// The store's clock when it began.
    pub(crate) now: Timestamp,
    /// What others are told once it is committed.
    pub(crate) hints: Vec<Hint>,
    /// Whether an earlier try may have been committed although its reply was lost (hazard Z-20).
    pub(crate) may_repeat: bool,
}

impl Tx {
    pub(crate) async fn begin(link: Link, now: Timestamp, may_repeat: bool) -> Result<Self, Trouble> {
        link.soil();
        link.plain(BEGIN).await.map_err(not_begun)?;
        Ok(Self { link, now, hints: Vec::new(), may_repeat })
    }

    /// Says that a session changed.
    pub(crate) fn changed(&mut self, session: SessionId) {
        self.hints.push(Hint::Session(session));
    }

    pub(crate) async fn commit(self) -> Result<Vec<Hint>, Trouble> {
        self.link.plain("COMMIT").await?;
        self.link.clean();
        Ok(self.hints)
    }

    pub(crate) async fn roll_back(self) {
        if self.link.plain("ROLLBACK").await.is_ok() {
            self.link.clean();
        }
    }
}

/// What breaks before anything was written changed nothing.
fn not_begun(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Lost(error) => Trouble::Again(error),
        other => other,
    }
}

/// Counts the tries of one operation.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    count: u32,
    /// Whether one of them may have been committed.
    pub(crate) may_repeat: bool,
}

impl Tries {
    /// Waits for the next try, or gives up. `at_commit` says that nobody knows what became of a lost one.
    pub(crate) async fn after(&mut self, trouble: Trouble, at_commit: bool) -> Result<(), Error> {
        self.count += 1;
        let error = match trouble {
            Trouble::Refused(error) => return Err(error),
            Trouble::Again(error) => error,
            Trouble::Lost(error) => {
                self.may_repeat |= at_commit;
                error
            }
        };
        if self.count >= MAX_TRIES {
            return Err(error);
        }
        // Full jitter: those who met must not meet again.
        let most = AGAIN * 2_u32.pow(self.count.min(8));
        tokio::time::sleep(most.mul_f64(rand::random_range(0.0..=1.0))).await;
        Ok(())
    }
}

/// Runs an operation in a transaction, again if that is safe, and tells others what it changed.
///
/// The body is an expression that borrows the transaction; it is evaluated for each try.
macro_rules! transact {
    ($store:expr, $tx:ident => $body:expr) => {{
        let mut tries = $crate::transact::Tries::default();
        loop {
            let begun = $store.begin(tries.may_repeat).await;
            let mut $tx = match begun {
                Ok(tx) => tx,
                Err(trouble) => {
                    tries.after(trouble, false).await?;
                    continue;
                }
            };
            match $body {
                Ok(value) => match $tx.commit().await {
                    Ok(hints) => {
                        $store.tell(hints);
                        break Ok::<_, tenure_store::Error>(value);
                    }
                    Err(trouble) => tries.after(trouble, true).await?,
                },
                Err(trouble) => {
                    let trouble: $crate::trouble::Trouble = trouble;
                    $tx.roll_back().await;
                    tries.after(trouble, false).await?;
                }
            }
        }
    }};
}
pub(crate) use transact;

/// Runs a read, again if its connection breaks.
macro_rules! read {
    ($store:expr, $link:ident => $body:expr) => {{
        let mut tries = $crate::transact::Tries::default();
        loop {
            let trouble = match $store.link().await {
                Ok($link) => match $body {
                    Ok(value) => break Ok::<_, tenure_store::Error>(value),
                    Err(trouble) => trouble,
                },
                Err(trouble) => trouble,
            };
            tries.after(trouble, false).await?;
        }
    }};
}
pub(crate) use read;
