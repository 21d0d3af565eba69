//! A seeded world of faults around the real engine.
//!
//! ```text
//! seed ─▶ plan ─▶ world:  clients ─▶ ┐
//!                 workers (the real  ├─▶ a network with faults ─▶ store in memory
//!                 engine and core) ─▶┘            │
//!                    │                         referee, who sees what really happened
//!                    └─▶ a played provider and played hands
//! ```
//! Everything runs on one thread, on the paused clock of its runtime, which jumps from timer to timer, and
//! takes its chance from the seed: the same seed gives the same history, line for line. What is real: the
//! core, the engine with all its decisions, the store in memory with its transactions. What is played: the
//! network to the store, the provider, the sandbox, the deaths of processes.
//!
//! After a while the faults stop, and then every session must come to rest. A seed that breaks a promise is
//! tried again with fewer faults, and printed with the command that replays it.
//!
//! Absent on purpose: a second engine. A process that is stopped and goes on later is played by requests that
//! arrive late, because its tasks share a thread with all others.

mod bug;
mod client;
mod dice;
mod history;
mod plan;
mod provider;
mod referee;
mod run;
mod store;
mod world;

pub use bug::Bug;
pub use plan::{Class, Fault, Mishap, Outage, Plan, Trouble};
pub use referee::Violation;
pub use run::{Report, run, shrink};
