//! The head of a session: all that is needed to say what it does next, and never any text of it.

use crate::agent::{AgentRef, ModelChoice};
use crate::budget::Budget;
use crate::call::Call;
use crate::event::{End, Sent, Stop};
use crate::fork::ForkedFrom;
use crate::id::{CallbackId, ConditionId, EnvironmentId, EventId, SessionId, SnapshotId, TenantId};
use crate::size::Learnt;
use crate::time::Timestamp;
use crate::wait::{Wait, WaitKind};
use alloc::string::String;
use alloc::vec::Vec;

/// Most callbacks that a session may have open at a time.
pub const MAX_OPEN_CALLBACKS: usize = 64;

/// The head of a session: a fold of its log (see [`crate::apply`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Who owns it.
    pub tenant: TenantId,
    /// Which version of which agent works on it.
    pub agent: AgentRef,
    /// The queue of the external loop that advances it; `None` for the built-in one.
    pub queue: Option<String>,
    /// Models that it uses instead of its agent's.
    pub models: ModelChoice,
    /// The template of its sandbox.
    pub environment: EnvironmentId,
    /// For people.
    pub title: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// `seq` of the newest event; 0 for an empty log.
    pub last_seq: u64,
    /// The first event that the model sees.
    pub context_from_seq: u64,
    /// Number of the newest step.
    pub last_step: u64,
    /// Where in the loop it is.
    pub position: Position,
    /// What clients were last told of its status.
    pub status: Status,
    /// Calls without a result, in the order of the model.
    pub calls: Vec<Call>,
    /// Why it is parked.
    pub wait: Option<Wait>,
    /// Whether an operator holds it.
    pub is_paused: bool,
    /// Limits and use.
    pub budget: Budget,
    /// Failures of the model call that is due.
    pub retry: Retry,
    /// The newest call, to notice repetition.
    pub repeats: Repeats,
    /// Callbacks that are not used up.
    pub callbacks: Vec<Callback>,
    /// What the model call that is open sends.
    pub sent: Option<Sent>,
    /// What earlier model calls taught about sizes.
    pub learnt: Learnt,
    /// Whether its context has to become smaller.
    pub compaction: Compaction,
    /// Its files.
    pub files: Files,
    /// Of which session it is a fork.
    pub forked: Option<ForkedFrom>,
}

/// What is known of the files of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The newest snapshot.
    pub snapshot: Option<SnapshotId>,
    /// Where the log tells of it; what came later it has not seen.
    pub snapshot_seq: u64,
    /// The epoch of the newest lease that had a sandbox: whoever has files of an earlier one has old files.
    pub epoch: u64,
    /// Tools may have changed files since the newest snapshot.
    pub is_dirty: bool,
}

/// Whether the context of a session has to become smaller, and what was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Why it must, if the provider refused a request.
    pub due: Option<TooLarge>,
    /// Compactions that were begun since the newest whole answer.
    pub tries: u32,
    /// Estimated tokens of the context that a compaction did not make smaller; 0 for none.
    pub futile_tokens: u64,
}

/// Why a context has to become smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// It has too many tokens.
    Tokens,
    /// Its request has too many bytes.
    Bytes,
}

/// Where in the loop a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// No turn is open.
    Idle,
    /// A model call is due.
    Model,
    /// A model call was begun; its span is open.
    Calling {
        /// The id of the span's start.
        span: EventId,
        /// Which attempt it is, counted from 1.
        attempt: u32,
    },
    /// Calls are open.
    Tools,
    /// It has ended for good.
    Ended(End),
}

/// The status that clients know, with the reason of the newest idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing runs.
    Idle(Stop),
    /// A turn is open.
    Running,
    /// It backs off.
    Rescheduling,
    /// It has ended.
    Terminated,
}

impl Status {
    /// The word for it in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle(_) => "idle",
            Self::Running => "running",
            Self::Rescheduling => "rescheduling",
            Self::Terminated => "terminated",
        }
    }
}

/// Failed attempts of one model call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// Failed attempts so far.
    pub failures: u32,
    /// Empty answers among them, and answers whose tool call the provider could not read.
    pub empty: u32,
    /// Whether the history was already sent once without the provider's own blocks.
    pub is_repaired: bool,
}

/// How often the newest call was repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Digest of name and input of the newest call.
    pub digest: u64,
    /// How often in a row it was made.
    pub calls: u32,
    /// How often in a row it failed in the same way.
    pub failures: u32,
}

/// A callback that is not used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callback {
    /// Its id.
    pub id: CallbackId,
    /// Until when an answer is taken.
    pub expires_at: Timestamp,
    /// `seq` of the answer, if it came before anybody waited for it.
    pub received_seq: Option<u64>,
}

/// What a session does, in one word for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the words are explained in the glossary")]
pub enum Phase {
    Queued,
    Working,
    Waiting,
    NeedsYou,
    BackingOff,
    Paused,
    Idle,
    Done,
    Failed,
    Cancelled,
}

impl Phase {
    /// The word for it in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::NeedsYou => "needs_you",
            Self::BackingOff => "backing_off",
            Self::Paused => "paused",
            Self::Idle => "idle",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Session {
    /// A new session: idle, with an empty log.
    pub fn new(
        id: SessionId,
        tenant: TenantId,
        agent: AgentRef,
        environment: EnvironmentId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            tenant,
            agent,
            queue: None,
            models: ModelChoice::default(),
            environment,
            title: String::new(),
            created_at,
            last_seq: 0,
            context_from_seq: 1,
            last_step: 0,
            position: Position::Idle,
            status: Status::Idle(Stop::EndTurn),
            calls: Vec::new(),
            wait: None,
            is_paused: false,
            budget: Budget::default(),
            retry: Retry::default(),
            repeats: Repeats::default(),
            callbacks: Vec::new(),
            sent: None,
            learnt: Learnt::default(),
            compaction: Compaction::default(),
            files: Files::default(),
            forked: None,
        }
    }

    /// What it does, given only the head: a session that could run is `Queued` here, and the store
    /// says `Working` for those that are leased.
    pub fn phase(&self) -> Phase {
        if let Position::Ended(end) = &self.position {
            return match end {
                End::Done => Phase::Done,
                End::Failed { .. } => Phase::Failed,
                End::Cancelled { .. } => Phase::Cancelled,
            };
        }
        if self.is_paused {
            return Phase::Paused;
        }
        match &self.wait {
            Some(wait) => match wait.kind {
                WaitKind::Timer | WaitKind::Callback { .. } => Phase::Waiting,
                WaitKind::Backoff { .. } | WaitKind::Condition { .. } => Phase::BackingOff,
                WaitKind::Action
                | WaitKind::Upstream { .. }
                | WaitKind::Budget { .. }
                | WaitKind::Stuck
                | WaitKind::SetAside { .. } => Phase::NeedsYou,
            },
            None if self.position == Position::Idle => Phase::Idle,
            None => Phase::Queued,
        }
    }

    /// When it goes on by itself if nothing comes; `None` if only an input wakes it.
    pub fn wakes_at(&self) -> Option<Timestamp> {
        if self.is_paused {
            return None;
        }
        self.wait.as_ref().and_then(|wait| wait.until)
    }

    /// The shared condition that it waits for.
    pub fn waits_on(&self) -> Option<ConditionId> {
        match self.wait.as_ref().map(|wait| &wait.kind) {
            Some(WaitKind::Condition { condition, .. }) if !self.is_paused => *condition,
            _ => None,
        }
    }

    /// Whether it has ended for good.
    pub fn has_ended(&self) -> bool {
        matches!(self.position, Position::Ended(_))
    }

    /// The open call with this id.
    pub fn call(&self, id: EventId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == id)
    }

    /// The callback with this id, if it is not used up.
    pub fn callback(&self, id: CallbackId) -> Option<&Callback> {
        self.callbacks.iter().find(|callback| callback.id == id)
    }
}
