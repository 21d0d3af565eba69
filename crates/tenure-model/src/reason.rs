//! The words in which providers say why an answer stopped.
//!
//! Gateways mix the words of several providers, so all of them are known in one place.

/// What such a word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The answer is complete.
    End,
    /// It wants tools.
    Calls,
    /// It was cut at the limit of output tokens.
    Cut,
    /// It was cut at the end of the context.
    ContextWindow,
    /// It met a stop sequence.
    Sequence,
    /// The model or a filter refused.
    Refused,
    /// The provider wants to be called again with the same content.
    Pause,
    /// The model wrote a call that the provider could not read (case O-017).
    BrokenCall,
    /// The provider misses something in the history that it was sent.
    BadHistory,
    /// A word that we do not know.
    Unknown,
}

/// Reads a reason in any provider's words, upper or lower case.
pub(crate) fn reason(word: &str) -> Reason {
    let word = word.to_ascii_uppercase();
    match word.as_str() {
        "STOP" | "END_TURN" | "EOS" | "EOS_TOKEN" | "COMPLETE" | "COMPLETED" => Reason::End,
        "TOOL_CALLS" | "TOOL_CALL" | "TOOL_USE" | "FUNCTION_CALL" => Reason::Calls,
        "LENGTH" | "MAX_TOKENS" | "MAX_OUTPUT_TOKENS" | "MAX_LENGTH" => Reason::Cut,
        "MODEL_CONTEXT_WINDOW_EXCEEDED" | "CONTEXT_LENGTH" | "CONTEXT_LENGTH_EXCEEDED" => Reason::ContextWindow,
        "STOP_SEQUENCE" => Reason::Sequence,
        "CONTENT_FILTER" | "REFUSAL" | "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT"
        | "SPII" | "MODEL_ARMOR" | "ESCALATION" => Reason::Refused,
        "PAUSE_TURN" | "CONTINUATION" => Reason::Pause,
        _ => kind_of(&word),
    }
}

/// A new word of a kind that is known.
fn kind_of(word: &str) -> Reason {
    let says = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
    if says(&["MALFORMED"]) || (says(&["CALL"]) && says(&["UNEXPECTED", "TOO_MANY", "INVALID"])) {
        Reason::BrokenCall
    } else if says(&["SIGNATURE"]) {
        Reason::BadHistory
    } else if says(&["SAFETY", "PROHIBITED", "FILTER", "REFUS", "BLOCKED", "IMAGE_"]) {
        Reason::Refused
    } else if says(&["MAX_", "LIMIT"]) {
        Reason::Cut
    } else {
        Reason::Unknown
    }
}
