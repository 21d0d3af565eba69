//! Keys of callers. Only digests are kept, so that neither memory nor a log shows a key.

use aws_lc_rs::digest;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::TenantId;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose rows it sees.
    pub tenant: TenantId,
    /// The name of its key.
    pub key_name: String,
}

/// The keys that are valid.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    by_digest: BTreeMap<[u8; 32], Caller>,
}

impl Keys {
    /// No keys: nobody may call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key.
    pub fn add(&mut self, key: &str, caller: Caller) {
        self.by_digest.insert(sha256(key.as_bytes()), caller);
    }

    /// All tenants that have a key.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let tenants: BTreeSet<&TenantId> = self.by_digest.values().map(|caller| &caller.tenant).collect();
        tenants.into_iter().cloned().collect()
    }

    /// Who has this key. Looks up a digest, so its time says nothing about other keys.
    pub fn find(&self, key: &str) -> Option<&Caller> {
        self.by_digest.get(&sha256(key.as_bytes()))
    }
}

/// The digest of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 gives 32 bytes")
}
