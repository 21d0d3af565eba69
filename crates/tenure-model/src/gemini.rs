//! Gemini: `POST …/models/MODEL:streamGenerateContent?alt=sse`.

pub(crate) mod decoder;
pub(crate) mod request;

/// The word for this dialect in the stored origin of blocks.
pub(crate) const NAME: &str = "gemini";
