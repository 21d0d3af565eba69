//! The store port: everything durable goes through these operations, each one transaction.
//!
//! ```text
//!            deliver, due, sweep                    claim
//!   Parked ───────────────────────▶ Queued ─────────────────────▶ Leased
//!     ▲                                ▲                           │ │ │
//!     │             yield, release, sweep, expiry                  │ │ │
//!     │                                └───────────────────────────┘ │ │
//!     └───────── commit that parks, if the inbox is empty ───────────┘ │
//!   Ended ◀───────── commit of the last event ─────────────────────────┘
//! ```
//!
//! Who is authoritative: the store. Its clock decides what is due; its epoch and the lease's nonce
//! decide who may write (promise P5). Adapters hold no logic of sessions: what an input means, and
//! whether it is taken, they ask `tenure-core`.

mod condition;
mod error;
mod lane;
mod lease_log;
mod port;

pub mod conformance;
pub mod lineage;
pub mod memory;

pub use condition::{Admit, ConditionView, Conditions, Released};
pub use error::{Error, Kind};
pub use lane::{EXTERNAL, Lane, QueueDepth, Renewed};
pub use lease_log::{KEPT_EPOCHS, LeaseEnd, LeaseQuery, PastEnd, PastLease};
pub use port::*;
