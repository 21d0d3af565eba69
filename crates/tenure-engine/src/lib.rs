//! Claims leases, drives the core, performs effects, streams previews.
//!
//! A [`Worker`] is one node: it registers itself, sends heartbeats, claims runnable sessions and
//! advances each in a task of its own (see `advance`), until it is asked to stop or can no longer be
//! sure of its leases. It knows the store, the models and the sandboxes only through their ports.

mod admission;
mod advance;
mod chance;
mod claims;
mod clock;
mod compact_step;
mod conditions;
mod context;
mod error;
mod file_step;
mod held;
mod internal;
mod journal;
mod links;
mod locks;
mod masker;
mod meters;
mod model_step;
mod node;
mod observe;
mod options;
mod previews;
mod requests;
mod sandboxes;
mod services;
mod start;
mod timers;
mod tool_run;
mod tool_step;
mod tools;
mod trust;
mod upstreams;
mod worker;

pub use masker::EventMasker;
pub use meters::METERS;
pub use options::Options;
pub use requests::{Rebuilt, Requests};
pub use sandboxes::{Folders, Hands, Sandboxes};
pub use start::{StartError, Worker};
pub use worker::Ended;
