//! The operations of the port, one file for each group; each function runs inside one transaction
//! of the writer, or reads.

pub(crate) mod catalog;
pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod conditions;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deliver;
pub(crate) mod idempotency;
pub(crate) mod leases;
pub(crate) mod lineage;
pub(crate) mod nodes;
pub(crate) mod sessions;
pub(crate) mod timers;
