//! Sandbox drivers behind one port.
//!
//! A [`Driver`] starts an [`Incarnation`]: processes, a working directory and an environment around
//! a workspace folder that outlives them. There are three: [`Namespace`] (the default),
//! [`Landlock`] (where namespaces are forbidden) and [`Process`] (no isolation, only by name).
//! [`Guarantees`] says for each what is enforced here and what is not; [`probe`] says why.
//!
//! The binary that uses this crate must call [`main_if_requested`] as the first line of `main`:
//! it is its own launcher. `docs/guides/sandbox.md` describes what commands see.

mod cgroup;
mod driver;
mod guest;
mod hint;
mod incarnation;
mod port;
mod probe;
mod record;
mod spool;
mod sys;
mod takeover;
mod usage;
mod wire;

pub use driver::landlock::Landlock;
pub use driver::namespace::Namespace;
pub use driver::process::Process as ProcessDriver;
pub use guest::{LAUNCHER_ARGUMENT, main_if_requested};
pub use incarnation::Launcher;
pub use port::*;
pub use probe::{Choice, Finding, Verdict, probe, strongest, try_driver};
pub use takeover::end_left;
