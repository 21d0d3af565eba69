//! Snapshots: what a folder was at a moment, stored once, whole, and checked when it comes back.
//!
//! ```text
//! records/<id>        a snapshot: written last, so it is whole or absent; names the packs it needs
//! packs/xx/<id>       many objects in one file: chunks of content, folders, lists of chunks
//! format              the version, and which key is in use
//! lock                shared by who publishes or restores, held alone by who collects
//! ```
//! Objects are named by a keyed hash of their content, so the same content is stored once, whichever
//! session it came from. A folder is stored as a list of its entries, or as what changed since an
//! earlier form of it: the cost of a snapshot follows the change. A reference says where an object
//! is, so no index is needed to read one, and the record alone says which packs are needed: that is
//! all a collection has to know. The reasons are in
//! `docs/decisions/2026-11-30-snapshots-are-trees-in-packs.md`.

mod backend;
mod codec;
mod collect;
mod node;
mod open;
mod packs;
mod read;
mod record;
mod restore;
mod scan;
mod seal;
mod store;
mod stores;
mod take;

pub use backend::{Backend, FolderBackend, Lock, Stored};
pub use collect::{Checked, Collected, GRACE};
pub use read::{Change, ChangeKind, MAX_CHANGES, StoredFile};
pub use record::{Consistency, Id, MAX_NAMED, Reason, Record};
pub use restore::{RestoreLimits, Restored, remove_drafts};
pub use scan::Cache;
pub use seal::KEY_BYTES;
pub use store::Snapshots;
pub use stores::Stores;
pub use take::{Adopted, Plan, Taken};
