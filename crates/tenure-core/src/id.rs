//! Identifiers: a prefix, `_`, and 128 bits in lower-case base 32 that sort by time of creation.
//!
//! The bits are a version 7 UUID; the engine and the server make them, the core only carries them.
//! The lowest byte of a session id is its shard (hazard Z-17): whoever knows the id knows where the
//! session lives, without a look-up.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Digits of the text form: Crockford's base 32, which leaves out i, l, o and u.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of the part after the prefix: 26 digits of five bits hold 128 bits.
const TEXT_LEN: usize = 26;

/// Number of virtual shards; fixed for ever, because it is part of every session id.
pub const SHARDS: u16 = 256;

/// A virtual shard: every key of a distributed store starts with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u8);

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdError {
    /// The prefix that was expected, such as `sesn`.
    pub expected: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an id of the form {}_ and {TEXT_LEN} letters or digits", self.expected)
    }
}

impl core::error::Error for IdError {}

fn digits(value: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for place in (0..TEXT_LEN).rev() {
        let digit = (value >> (place * 5)) & 31;
        let index = usize::try_from(digit).expect("five bits fit");
        fmt::Write::write_char(f, char::from(DIGITS[index]))?;
    }
    Ok(())
}

fn value(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != TEXT_LEN {
        return None;
    }
    bytes.iter().enumerate().try_fold(0u128, |sum, (place, byte)| {
        let digit = DIGITS.iter().position(|digit| digit == byte)?;
        // 26 digits hold 130 bits: the first one may only use its lowest three.
        if place == 0 && digit > 7 {
            return None;
        }
        Some(sum << 5 | digit as u128)
    })
}

macro_rules! id {
    ($name:ident, $prefix:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The text before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id of 128 bits, usually those of a version 7 UUID.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits)
            }

            /// The 128 bits of the id.
            pub const fn bits(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!($prefix, "_"))?;
                digits(self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "_")).and_then(value).map(Self).ok_or(IdError { expected: $prefix })
            }
        }
    };
}

id!(SessionId, "sesn", "One agent run.");
id!(EventId, "sevt", "One entry of a session's log; the id of a tool call is the id of its event.");
id!(AgentId, "agent", "A versioned definition of an agent.");
id!(EnvironmentId, "env", "A template for sandboxes.");
id!(LeaseId, "lease", "One lease; its bits are the random nonce that every write of its holder names (hazard Z-05).");
id!(NodeId, "node", "One incarnation of a process that holds leases; a restart is a new node (hazard Z-04).");
id!(ConditionId, "cond", "A shared fact about an upstream that many sessions wait on.");
id!(SnapshotId, "snap", "What the files of a session were at a moment.");
id!(CallbackId, "call", "A callback that an outside job can answer.");

impl SessionId {
    /// The shard on which the session lives.
    pub const fn shard(self) -> Shard {
        Shard(self.0 as u8)
    }

    /// The same id moved to `shard`; used once, when the id is made.
    pub const fn on_shard(self, shard: Shard) -> Self {
        Self(self.0 & !0xff | shard.0 as u128)
    }
}

/// Who owns a row; taken from the API key, never from a request body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub String);

impl TenantId {
    /// The tenant of a server with a single key.
    pub fn default_tenant() -> Self {
        Self(String::from("default"))
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_id_survives_its_text_form() {
        for bits in [0, 1, u128::MAX, 0x0193_7aa1_0000_7000_8000_0000_0000_00ff] {
            let id = SessionId::from_bits(bits);
            assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
        }
    }

    #[test]
    fn text_order_is_the_order_of_the_bits() {
        let [early, late] = [1u128 << 100, 1 << 101].map(|bits| SessionId::from_bits(bits).to_string());
        assert!(early < late);
    }

    #[test]
    fn foreign_prefixes_lengths_and_letters_are_refused() {
        for text in [
            "",
            "sesn_",
            "sesn_123",
            "sevt_00000000000000000000000000",
            "sesn_0000000000000000000000000u",
            "sesn_80000000000000000000000000",
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_shard_is_part_of_the_id() {
        let id = SessionId::from_bits(u128::MAX).on_shard(Shard(7));
        assert_eq!(id.shard(), Shard(7));
    }
}
