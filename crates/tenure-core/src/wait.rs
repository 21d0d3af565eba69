//! Waits: why a session is parked, as data.

use crate::budget::Which;
use crate::failure::Class;
use crate::id::{CallbackId, ConditionId, EventId};
use crate::time::{Millis, Timestamp};
use alloc::string::String;
use alloc::vec::Vec;

/// Longest wait that can be asked for: ten years. A longer one is refused as a mistake.
pub const MAX_WAIT: Millis = 10 * 366 * 24 * 3_600 * 1_000;

/// Why a session is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What it waits for.
    pub kind: WaitKind,
    /// Since when.
    pub since: Timestamp,
    /// When it goes on by itself; `None` if only an input ends it.
    pub until: Option<Timestamp>,
    /// The calls that are open because of it.
    pub calls: Vec<EventId>,
}

/// What a session waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A point in time, asked for by the model.
    Timer,
    /// Answers of people or clients: approvals, custom tools, questions.
    Action,
    /// An outside job.
    Callback {
        /// Which callback.
        callback: CallbackId,
    },
    /// The next attempt after an upstream failure.
    Backoff {
        /// What failed.
        class: Class,
        /// Attempts so far.
        attempt: u32,
    },
    /// An upstream that refuses everybody: limits, overload, credit, key, model (promise P10).
    Condition {
        /// What failed.
        class: Class,
        /// Which `provider/model`.
        model: String,
        /// The shared condition; `None` in logs from before there were any.
        condition: Option<ConditionId>,
    },
    /// The upstream failed in a way that another attempt will not mend.
    Upstream {
        /// What failed.
        class: Class,
    },
    /// A limit of the session is reached.
    Budget {
        /// Which one.
        which: Which,
    },
    /// The same call fails again and again.
    Stuck,
    /// It cannot be advanced without harm, and is not tried again by itself.
    SetAside {
        /// Why, for people: a part of a sentence.
        reason: String,
    },
}

impl WaitKind {
    /// The word for it in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Action => "action",
            Self::Callback { .. } => "callback",
            Self::Backoff { .. } => "backoff",
            Self::Condition { .. } => "condition",
            Self::Upstream { .. } => "upstream",
            Self::Budget { .. } => "budget",
            Self::Stuck => "stuck",
            Self::SetAside { .. } => "set_aside",
        }
    }

    /// Whether a user message ends it, because the user wants to go on.
    pub fn ends_with_message(&self) -> bool {
        matches!(
            self,
            Self::Upstream { .. }
                | Self::Stuck
                | Self::SetAside { .. }
                | Self::Timer
                | Self::Callback { .. }
                | Self::Backoff { .. }
                | Self::Condition { .. }
        ) || self.is_loop()
    }

    /// Whether it is a limit against going in circles, which is over when somebody steps in.
    fn is_loop(&self) -> bool {
        matches!(self, Self::Budget { which: Which::Failures | Which::IdenticalCalls })
    }

    /// Whether it is about the model, so that it ends when another one is chosen.
    pub fn ends_with_other_models(&self) -> bool {
        matches!(
            self,
            Self::Backoff { .. }
                | Self::Condition { .. }
                | Self::Upstream { .. }
                | Self::Stuck
                | Self::Budget { which: Which::Price }
        )
    }

    /// Whether `resume` ends it.
    pub fn ends_with_resume(&self) -> bool {
        matches!(
            self,
            Self::Backoff { .. }
                | Self::Condition { .. }
                | Self::Upstream { .. }
                | Self::Stuck
                | Self::SetAside { .. }
                // Its price may be known by now; the next step looks again.
                | Self::Budget { which: Which::Price }
        ) || self.is_loop()
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// What it waited for came.
    Answered,
    /// Its time came.
    Due,
    /// Somebody ended it.
    Cleared,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_model_ends_the_waits_that_are_about_the_model_and_no_other() {
        let class = Class::Config;
        for kind in [
            WaitKind::Backoff { class, attempt: 1 },
            WaitKind::Condition { class, model: "p/m".into(), condition: None },
            WaitKind::Upstream { class },
            WaitKind::Stuck,
            WaitKind::Budget { which: Which::Price },
        ] {
            assert!(kind.ends_with_other_models(), "{kind:?}");
        }
        for kind in [
            WaitKind::Timer,
            WaitKind::Action,
            WaitKind::Callback { callback: CallbackId::from_bits(1) },
            WaitKind::Budget { which: Which::Steps },
            WaitKind::SetAside { reason: "r".into() },
        ] {
            assert!(!kind.ends_with_other_models(), "{kind:?}");
        }
    }
}
