//! Words for enums without data: one table each, read and written from the same place.

use crate::agent::{CompactionMode, Effect, Permission, SnapshotPolicy, UnknownOutcome};
use crate::budget::Which;
use crate::call::CallKind;
use crate::condition::Stage;
use crate::environment::{DriverName, Network};
use crate::event::{Consistency, MediaKind, Outcome, SnapshotReason};
use crate::failure::Class;
use crate::session::TooLarge;
use crate::wait::Resolution;
use alloc::string::String;

/// An enum that is stored as one word.
pub(super) trait Word: Sized {
    /// The stored word.
    fn word(self) -> &'static str;
    /// The value of a stored word.
    fn of_word(word: &str) -> Result<Self, String>;
}

macro_rules! words {
    ($($type:ident { $($variant:ident = $word:literal),* $(,)? })*) => {
        $(impl Word for $type {
            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            fn of_word(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(alloc::format!("{word:?} is not a {}", stringify!($type))),
                }
            }
        })*
    };
}

words! {
    Effect { Pure = "pure", Idempotent = "idempotent", FilesOnly = "files_only", Once = "once" }
    Permission { Allow = "allow", Ask = "ask", Deny = "deny" }
    UnknownOutcome { TellModel = "tell_model", AskPerson = "ask_person" }
    CompactionMode { Auto = "auto", Off = "off" }
    TooLarge { Tokens = "tokens", Bytes = "bytes" }
    Which {
        Steps = "steps", Tokens = "tokens", Cost = "cost", Wall = "wall", Failures = "failures",
        IdenticalCalls = "identical_calls", Price = "price",
    }
    CallKind {
        Sandbox = "sandbox", Custom = "custom", AskUser = "ask_user", Sleep = "sleep",
        CreateCallback = "create_callback", WaitForCallback = "wait_for_callback",
    }
    DriverName { Namespace = "namespace", Landlock = "landlock", Process = "process" }
    Network { Off = "off", Host = "host" }
    MediaKind { Image = "image", Document = "document", SearchResult = "search_result" }
    Outcome {
        Done = "done", Failed = "failed", Unknown = "unknown", Denied = "denied", NotRun = "not_run",
        Interrupted = "interrupted",
    }
    Class {
        RateLimit = "rate_limit", Quota = "quota", Transient = "transient", Credential = "credential",
        Config = "config", Overflow = "overflow", TooBig = "too_big", BadHistory = "bad_history",
        Request = "request", Incomplete = "incomplete", Empty = "empty", Refused = "refused",
        Malformed = "malformed",
    }
    Stage { Open = "open", Releasing = "releasing", Over = "over" }
    SnapshotPolicy { Manual = "manual", Turn = "turn", Wait = "wait", Lease = "lease", Step = "step" }
    SnapshotReason { Step = "step", Lease = "lease", Wait = "wait", Turn = "turn", Manual = "manual" }
    Consistency { Frozen = "frozen", Fuzzy = "fuzzy", Torn = "torn" }
    Resolution { Answered = "answered", Due = "due", Cleared = "cleared" }
}
