//! Live streams: the log is the truth, hints make it fast, previews come from the nodes.

mod cursor;
mod fleet;
mod follow;
mod hub;
mod loops;

pub(crate) use cursor::{Cursor, PreviewPlace};
pub(crate) use fleet::Fleet;
pub(crate) use follow::{Follow, Wanted};
pub(crate) use hub::PreviewHub;
pub(crate) use loops::{LoopPreviews, OWN_NODE};
