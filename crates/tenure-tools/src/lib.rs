//! Built-in tools: what the model is told of them, and how they run in a sandbox.
//!
//! Each tool has one file with its description, its input and its run. A call never fails in Rust
//! terms: whatever goes wrong becomes a result that tells the model what to do.

mod clean;
mod definition;
mod files;
mod input;
mod run;
mod shell;
mod wait;

pub use clean::clean;
pub use definition::{Definition, Effect, sandbox_definitions, wait_definitions};
pub use run::{Call, SandboxProvider, ToolResult, Toolset};
pub use wait::WaitCall;
