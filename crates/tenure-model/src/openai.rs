//! OpenAI Chat Completions: `POST …/chat/completions`, also the tongue of most gateways and local
//! servers, whose habits are met here too.

pub(crate) mod decoder;
pub(crate) mod request;

/// The word for this dialect in the stored origin of blocks.
pub(crate) const NAME: &str = "openai";
