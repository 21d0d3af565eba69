//! The dialect `script`: a deterministic model that plays a scenario file.
//!
//! Nothing is remembered between calls: which turn is due follows from the conversation that the
//! model is sent, so a new worker goes on where a killed one was. The same scenario is played in
//! this process ([`ScriptModel`]) or by a server that speaks the bytes of a real provider
//! ([`ScriptServer`]), where the connection can also be cut and stalled.

mod conversation;
mod library;
mod model;
mod play;
mod scenario;
mod server;
mod wire;

pub use conversation::{Conversation, Said, SaidResult};
pub use library::{BUILT_IN_SCENARIOS, Library};
pub use model::ScriptModel;
pub use play::{Play, play};
pub use scenario::{Attempt, Cut, Input, Item, Pace, Scenario, ScenarioProblem, Turn, When};
pub use server::{Responder, ScriptReply, ScriptRequest, ScriptServer, serve, serve_scenario};
pub use wire::{Piece, anthropic_stream, gemini_stream, ollama_stream, openai_stream, responses_stream};

/// The word for this dialect in the stored origin of blocks.
pub(crate) const NAME: &str = "script";
