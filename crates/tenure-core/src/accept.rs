//! Whether an input is taken into the inbox: decided under the lock of the head, by every store alike.

use crate::call::{CallKind, CallState};
use crate::id::EventId;
use crate::input::{Input, InputBody};
use crate::session::{Position, Session};
use crate::time::Timestamp;
use core::fmt;

/// Most inputs that may wait in one inbox (hazard Z-54).
pub const MAX_INBOX: usize = 1_000;

/// Room beyond [`MAX_INBOX`] that is kept for answers and controls.
pub const MAX_INBOX_ANSWERS: usize = 256;

/// What becomes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It goes to the end of the inbox.
    Append,
    /// It repeats an input that is queued already: that one is the answer, this one is dropped.
    Repeats(EventId),
    /// It answers a call that is closed: the answer is in the log already, or the timeout won.
    Answered,
    /// It asks for what is so already.
    Nothing,
}

/// Why an input is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The session has ended.
    Ended,
    /// The inbox is full.
    Full,
    /// The call exists, but is not answered in this way.
    NotAnswerable,
    /// There is no such callback, or it has expired.
    UnknownCallback,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the session has ended",
            Self::Full => "the inbox of the session is full",
            Self::NotAnswerable => "the call does not wait for this kind of answer",
            Self::UnknownCallback => "the callback does not exist or has expired",
        })
    }
}

impl core::error::Error for Refused {}

/// Decides about one input, given the head and the inputs that wait already.
///
/// An answer to a call that is not open gives [`Accepted::Answered`]; the store then looks up the
/// event that closed it, and refuses the id if there is none.
///
/// # Errors
/// When the input can never be taken.
pub fn accept(session: &Session, queued: &[Input], input: &InputBody, now: Timestamp) -> Result<Accepted, Refused> {
    if let Position::Ended(_) = session.position {
        return match input {
            InputBody::Cancel | InputBody::Archive => Ok(Accepted::Nothing),
            input if input.answers().is_some() => Ok(Accepted::Answered),
            _ => Err(Refused::Ended),
        };
    }
    if queued.iter().any(|other| matches!(other.body, InputBody::Cancel | InputBody::Archive)) {
        return match input {
            InputBody::Cancel | InputBody::Archive => Ok(Accepted::Nothing),
            _ => Err(Refused::Ended),
        };
    }
    let room = match input {
        InputBody::Message { .. } | InputBody::System { .. } => MAX_INBOX,
        _ => MAX_INBOX + MAX_INBOX_ANSWERS,
    };
    if queued.len() >= room && !matches!(input, InputBody::Cancel | InputBody::Archive) {
        return Err(Refused::Full);
    }
    match input {
        InputBody::Confirmation { tool_use_id, .. } => {
            answer(session, queued, *tool_use_id, |kind| !kind.is_answered_outside())
        }
        InputBody::CustomResult { tool_use_id, .. } => {
            answer(session, queued, *tool_use_id, CallKind::is_answered_outside)
        }
        InputBody::Callback { callback, .. } => {
            let is_queued =
                |other: &&Input| matches!(other.body, InputBody::Callback { callback: id, .. } if id == *callback);
            if let Some(earlier) = queued.iter().find(is_queued) {
                return Ok(Accepted::Repeats(earlier.id));
            }
            match session.callback(*callback) {
                Some(open) if open.received_seq.is_some() => Ok(Accepted::Nothing),
                Some(open) if open.expires_at > now => Ok(Accepted::Append),
                Some(_) | None => Err(Refused::UnknownCallback),
            }
        }
        InputBody::Message { .. }
        | InputBody::System { .. }
        | InputBody::Interrupt
        | InputBody::Pause
        | InputBody::Resume
        | InputBody::Cancel
        | InputBody::Archive
        | InputBody::Limits(_)
        | InputBody::Title(_)
        | InputBody::Metadata(_)
        | InputBody::Models(_) => Ok(Accepted::Append),
    }
}

fn answer(
    session: &Session,
    queued: &[Input],
    call: EventId,
    fits: impl Fn(CallKind) -> bool,
) -> Result<Accepted, Refused> {
    if let Some(earlier) = queued.iter().find(|other| other.body.answers() == Some(call)) {
        return Ok(Accepted::Repeats(earlier.id));
    }
    match session.call(call) {
        Some(open) if !fits(open.kind) => Err(Refused::NotAnswerable),
        Some(open) if matches!(open.state, CallState::NeedsAnswer { .. }) => Ok(Accepted::Append),
        // Allowed already, and about to run or running.
        Some(_) | None => Ok(Accepted::Answered),
    }
}
