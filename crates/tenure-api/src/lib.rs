//! Wire types of the HTTP API, the OpenAPI document and the Rust client.
//!
//! Replies are structs of their own, converted by hand from core types, so that neither can change
//! the other by accident. Requests are read field by field (`fields`): a mistake is named with its
//! place, and fields that this release does not know are ignored.

mod base64;

pub mod agent;
pub mod callback;
pub mod client;
pub mod condition;
pub mod context;
pub mod environment;
pub mod error;
pub mod event;
pub mod explain;
pub mod fields;
pub mod files;
pub mod lease;
pub mod limits;
pub mod node;
pub mod openapi;
pub mod page;
pub mod scope;
pub mod session;
pub mod time;
pub mod timeline;
pub mod webhook;
