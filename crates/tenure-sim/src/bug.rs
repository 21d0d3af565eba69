//! Bugs that are planted on purpose, to show that the checkers see them.
//!
//! Two kinds: [`tenure_store::memory::Planted`] makes the store in memory break a promise, and the others
//! change what passes between engine and store as an engine with that bug would. Nothing of it is in a
//! product.

use tenure_store::memory::Planted;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The fence is removed: a commit is taken whoever holds the lease.
    NoFence,
    /// The commit that parks decides by an old snapshot of the inbox (hazard Z-01).
    StaleInbox,
    /// An effect starts before the commit that tells of it is durable: commits that keep the lease are
    /// acknowledged first and written later.
    EffectBeforeCommit,
    /// Timers are with the worker that parked the session, and gone when it dies.
    LostTimer,
    /// A claim is repeated under another id after its reply was lost, and heartbeats reconcile nothing
    /// (hazard Z-03).
    LostClaim,
}

impl Bug {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("no-fence", Self::NoFence),
        ("stale-inbox", Self::StaleInbox),
        ("effect-before-commit", Self::EffectBeforeCommit),
        ("lost-timer", Self::LostTimer),
        ("lost-claim", Self::LostClaim),
    ];

    /// The bug with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, bug)| *bug)
    }

    /// What the store is told, if the bug is in the store.
    pub(crate) fn in_store(self) -> Option<Planted> {
        match self {
            Self::NoFence => Some(Planted::NoFence),
            Self::StaleInbox => Some(Planted::StaleInbox),
            Self::LostTimer => Some(Planted::LostTimer),
            Self::EffectBeforeCommit | Self::LostClaim => None,
        }
    }
}
