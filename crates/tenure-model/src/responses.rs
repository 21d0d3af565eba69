//! OpenAI Responses: `POST …/responses`.

pub(crate) mod decoder;
pub(crate) mod request;

/// The word for this dialect in the stored origin of blocks.
pub(crate) const NAME: &str = "responses";
