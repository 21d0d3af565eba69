//! Routes, authentication and event streams.
//!
//! [`router`] is the whole API as one service over a [`ServerState`]; [`serve`] puts it on a
//! listener with limits for slow and silent clients. The server holds nothing of its own: the store
//! is the truth, nodes tell previews, and any server answers for any session.
//!
//! Absent on purpose: the server never advances a session by itself. It puts inputs into inboxes, reads, and
//! writes for external loops, which decide.

mod deliver;
mod error;
mod external;
mod keys;
mod layers;
mod live;
mod meters;
mod page;
mod rate;
mod repeat;
mod request;
mod router;
mod routes;
mod serve;
mod state;
mod workbench;

pub use keys::{Caller, KeyLine, Keys};
pub use meters::METERS;
pub use router::router;
pub use serve::{Limits, MAX_CONNECTIONS, STOP_WITHIN, serve, serve_within};
pub use state::{Config, FolderOf, Ids, KnownModel, ModelCheck, SeenRequest, SeenRequests, ServerState, TimeIds};
pub use workbench::has_workbench;
