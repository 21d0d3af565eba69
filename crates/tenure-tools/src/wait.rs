//! Calls that wait; the engine turns them into waits.

use crate::input::Fields;
use tenure_core::CallbackId;

/// Longest label of a callback.
const MAX_LABEL: usize = 200;

/// A call that waits, or that prepares a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "times are in milliseconds; the names say the rest")]
pub enum WaitCall {
    Sleep { millis: u64 },
    CreateCallback { label: String, expires_millis: Option<u64> },
    WaitForCallback { callback: CallbackId, timeout_millis: Option<u64> },
}

impl WaitCall {
    /// Reads a call.
    ///
    /// # Errors
    /// What the model is told: which field is wrong, and how to mend it.
    pub fn parse(name: &str, input: &str) -> Result<Self, String> {
        match name {
            "sleep" => {
                let fields = Fields::parse("sleep", &["seconds"], input)?;
                let seconds = fields.number("seconds")?.ok_or("seconds: is missing; give it as a number.")?;
                Ok(Self::Sleep { millis: millis(seconds) })
            }
            "create_callback" => {
                let fields = Fields::parse("create_callback", &["label", "expires_seconds"], input)?;
                let label: String = fields.maybe_text("label")?.unwrap_or_default().chars().take(MAX_LABEL).collect();
                let expires = fields.number("expires_seconds")?;
                if let Some(seconds) = expires.filter(|seconds| *seconds <= 0.0) {
                    return Err(format!(
                        "expires_seconds: must be more than 0, not {seconds}; leave it out for the usual time."
                    ));
                }
                Ok(Self::CreateCallback { label, expires_millis: expires.map(millis) })
            }
            "wait_for_callback" => {
                let fields = Fields::parse("wait_for_callback", &["callback_id", "timeout_seconds"], input)?;
                let text = fields.text("callback_id")?;
                let callback = text.parse().map_err(|_| {
                    format!("callback_id: {text:?} is not an id; give the callback_id of a create_callback result.")
                })?;
                Ok(Self::WaitForCallback { callback, timeout_millis: fields.number("timeout_seconds")?.map(millis) })
            }
            other => {
                Err(format!("{other} is no tool that waits; those are sleep, create_callback, wait_for_callback."))
            }
        }
    }
}

/// Milliseconds of seconds; a negative time is over already (case O-042).
fn millis(seconds: f64) -> u64 {
    // The cast saturates at both ends.
    (seconds * 1_000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_042_negative_sleeps_are_over_and_absurd_ones_do_not_overflow() {
        let sleep = |seconds: &str| WaitCall::parse("sleep", &format!(r#"{{"seconds":{seconds}}}"#));
        assert_eq!(sleep("-5"), Ok(WaitCall::Sleep { millis: 0 }));
        assert_eq!(sleep("34560000"), Ok(WaitCall::Sleep { millis: 34_560_000_000 }));
        assert_eq!(sleep("1e300"), Ok(WaitCall::Sleep { millis: u64::MAX }));
        assert!(sleep("\"soon\"").is_err_and(|message| message.contains("seconds")));
    }
}
