//! Keys of callers. Only digests are kept, so that neither memory nor a log shows a key.

use crate::error::{ApiError, Result};
use aws_lc_rs::digest;
use std::collections::{BTreeMap, BTreeSet};
use tenure_api::error::Code;
use tenure_api::scope::Scope;
use tenure_core::TenantId;

/// Shortest key in a file of keys: what is shorter can be guessed.
const MIN_KEY_LEN: usize = 16;

/// Longest name of a tenant or a key.
const MAX_NAME_LEN: usize = 64;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose rows it sees.
    pub tenant: TenantId,
    /// The name of its key.
    pub key_name: String,
    /// What it may do.
    pub scope: Scope,
}

impl Caller {
    /// Refuses a caller that may not do something.
    pub(crate) fn needs(&self, scope: Scope, what: &str) -> Result<()> {
        if self.scope >= scope {
            return Ok(());
        }
        let message = format!("{what} needs the scope {scope}; the key {:?} has {}", self.key_name, self.scope);
        let details = serde_json::json!({"needed": scope.name(), "given": self.scope.name()});
        Err(ApiError::new(Code::ScopeRequired, message).with_details(details))
    }
}

/// The keys that are valid.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    by_digest: BTreeMap<[u8; 32], Caller>,
}

/// Why a file of keys is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct KeyLine {
    /// Which line, counted from 1.
    pub line: usize,
    /// What is wrong with it; never the key.
    pub what: String,
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

    /// Adds the keys of a file: lines of `TENANT NAME KEY [SCOPE]`, where the scope is `read`,
    /// `client` (if it is left out) or `person`; empty lines and those that begin with # are skipped.
    ///
    /// # Errors
    /// The first line that is wrong. A key that is listed twice is wrong too: it would not be clear
    /// who calls.
    pub fn add_lines(&mut self, text: &str) -> Result<(), KeyLine> {
        let mut names = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| KeyLine { line: number, what };
            let words: Vec<&str> = line.split_whitespace().collect();
            let (tenant, name, key, scope) = match words[..] {
                [tenant, name, key] => (tenant, name, key, Scope::Client),
                [tenant, name, key, scope] => {
                    (tenant, name, key, scope.parse::<Scope>().map_err(|error| wrong(error.to_string()))?)
                }
                _ => return Err(wrong("a line is TENANT NAME KEY [read|client|person]".to_owned())),
            };
            if tenant.len().max(name.len()) > MAX_NAME_LEN {
                return Err(wrong(format!("names have at most {MAX_NAME_LEN} bytes")));
            }
            if key.len() < MIN_KEY_LEN {
                return Err(wrong(format!("the key {name:?} is shorter than {MIN_KEY_LEN} bytes")));
            }
            if self.find(key).is_some() {
                return Err(wrong(format!("the key {name:?} is listed twice")));
            }
            // Names stand for callers where requests are repeated (hazard Z-18).
            if !names.insert((tenant, name)) {
                return Err(wrong(format!("the tenant {tenant:?} has two keys with the name {name:?}")));
            }
            self.add(key, Caller { tenant: TenantId(tenant.to_owned()), key_name: name.to_owned(), scope });
        }
        Ok(())
    }

    /// The keys that stand in a file, so that they can be masked; lines that are wrong have none.
    pub fn listed(text: &str) -> impl Iterator<Item = &str> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_whitespace().nth(2))
    }

    /// All tenants that have a key.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let tenants: BTreeSet<&TenantId> = self.by_digest.values().map(|caller| &caller.tenant).collect();
        tenants.into_iter().cloned().collect()
    }

    /// Who has the key with this digest, in hexadecimal digits.
    pub(crate) fn by_digest(&self, hex: &str) -> Option<&Caller> {
        self.by_digest.iter().find(|(digest, _)| is_hex_of(digest.as_slice(), hex)).map(|(_, caller)| caller)
    }

    /// The digest of a caller's key.
    pub(crate) fn digest_of(&self, caller: &Caller) -> Option<[u8; 32]> {
        self.by_digest.iter().find(|(_, other)| *other == caller).map(|(digest, _)| *digest)
    }

    /// Who has this key. Looks up a digest, so its time says nothing about other keys.
    pub fn find(&self, key: &str) -> Option<&Caller> {
        self.by_digest.get(&sha256(key.as_bytes()))
    }
}

fn is_hex_of(bytes: &[u8], hex: &str) -> bool {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits == hex
}

/// The digest of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_names_tenants_and_scopes() {
        let mut keys = Keys::new();
        let text = "# ours\n\nacme ci 0123456789abcdef\nacme ops 0123456789abcdeg person\r\nother board 0123456789abcdeh read\n";
        keys.add_lines(text).expect("well formed");
        let found = |key: &str| keys.find(key).map(|caller| (caller.tenant.0.as_str(), caller.scope));
        assert_eq!(found("0123456789abcdef"), Some(("acme", Scope::Client)));
        assert_eq!(found("0123456789abcdeg"), Some(("acme", Scope::Person)));
        assert_eq!(found("0123456789abcdeh"), Some(("other", Scope::Read)));
        assert_eq!(found("0123456789abcdei"), None);
        let listed: Vec<&str> = Keys::listed(text).collect();
        assert_eq!(listed, ["0123456789abcdef", "0123456789abcdeg", "0123456789abcdeh"]);
    }

    #[test]
    fn a_wrong_line_is_named_and_its_key_is_not_shown() {
        for (line, what) in [
            ("acme ci", "TENANT NAME KEY"),
            ("acme ci 0123456789abcdef admin", "\"admin\" is none of the scopes"),
            ("acme ci short-one", "shorter than 16"),
            ("acme ci 0123456789abcdef person too", "TENANT NAME KEY"),
            ("acme first 0123456789abcdef\nacme second 0123456789abcdef", "listed twice"),
            ("acme ci 0123456789abcdef\nacme ci 0123456789abcdeg", "two keys with the name"),
        ] {
            let error = Keys::new().add_lines(line).expect_err("wrong").to_string();
            assert!(error.starts_with("line ") && error.contains(what), "{error}");
            assert!(!error.contains("0123456789abcdef") && !error.contains("short-one"), "{error}");
        }
    }
}
