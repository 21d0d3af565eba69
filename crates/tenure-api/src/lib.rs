//! Wire types of the HTTP API, the OpenAPI document and the Rust client.

pub mod callback;
pub mod node;
