//! The files of a session: paths that cannot leave its workspace, and snapshots that outlive it.
//!
//! An agent owns the content of its workspace, links included, and is hostile by assumption. Every
//! operation starts from a file descriptor of the folder and resolves paths *beneath* it in the
//! kernel (`openat2`), so no link that the agent made, at whatever moment, leads outside
//! (promise P18). Names are bytes. All functions block; callers use a thread that may.

mod archive;
mod error;
mod pack;
mod path;
mod remove;
mod workspace;

pub mod place;
pub mod snapshots;

pub use archive::{ImportLimits, Imported};
pub use error::{Error, Kind};
pub use pack::{IGNORE_FILE, LeftOut, MAX_LEFT_OUT, PackLimits, Packed, Progress, pack};
pub use workspace::{Entry, EntryKind, MAX_LIST, MAX_READ, OpenFile, Workspace};
