//! What a key may do (hazard Z-06).

use std::fmt;
use std::str::FromStr;

/// What a key may do; each scope may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Looks: lists, streams, files.
    Read,
    /// Does what a program does: makes agents and sessions, sends messages, answers its own tools.
    Client,
    /// Also does what only a person may: answers approvals, writes files, weakens the isolation of
    /// an environment.
    Person,
}

impl Scope {
    /// All scopes, from the least to the most.
    pub const ALL: [Self; 3] = [Self::Read, Self::Client, Self::Person];

    /// The word in a file of keys and in the OpenAPI document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Client => "client",
            Self::Person => "person",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of the scopes read, client, person")]
pub struct NoScope(String);

impl FromStr for Scope {
    type Err = NoScope;

    fn from_str(text: &str) -> Result<Self, NoScope> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| NoScope(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_survives_its_word_and_a_higher_one_holds_the_lower_ones() {
        for scope in Scope::ALL {
            assert_eq!(scope.name().parse(), Ok(scope));
        }
        assert!(Scope::Person > Scope::Client && Scope::Client > Scope::Read);
        assert!("Person".parse::<Scope>().is_err() && "".parse::<Scope>().is_err());
    }
}
