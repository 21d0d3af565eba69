//! Model dialects: requests out, streamed answers in.
//!
//! [`Providers`] turns `provider/name` into a [`Model`]. A model is called with a
//! [`tenure_core::Prompt`] and gives previews while it streams, and in the end a whole
//! [`tenure_core::Answer`] or a classified [`tenure_core::failure::Failure`]: there is no third
//! outcome, and half an answer is never one (promise P2).
//!
//! One folder per dialect, with the same files in each: `request` writes what a provider is sent,
//! `decoder` reads what it streams. Decoders take bytes and give events, without I/O or clocks.
//! `script` plays a scenario file instead, in this process or as a server that speaks the bytes of
//! the other dialects.
//!
//! Absent on purpose: retries. A call is one attempt; the core decides about the next one.

mod anthropic;
mod attachment;
mod client;
mod config;
mod decoder;
mod dialect;
mod gemini;
mod lines;
mod model;
mod ollama;
mod openai;
mod providers;
mod reason;
mod responses;
mod sse;
mod text;
mod verbatim;

pub mod script;

pub use config::{DialectName, PriceConfig, ProviderConfig, Timeouts, TimeoutsConfig};
pub use decoder::{Decoder, MAX_ANSWER_BLOCKS, MAX_ANSWER_BYTES};
pub use dialect::{HttpRequest, decoder, request};
pub use model::{BlockPreview, CallContext, ConfigProblem, Model, Models, Resolved, StreamEvent, Written};
pub use providers::{DEFAULT_MAX_OUTPUT_TOKENS, Providers};
pub use sse::{MAX_EVENT_BYTES, SseEvent, SseReader, TooLarge};
