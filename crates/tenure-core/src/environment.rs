//! Environments: templates for sandboxes.

use crate::id::{EnvironmentId, TenantId};
use crate::time::Timestamp;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// A template for sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Its id.
    pub id: EnvironmentId,
    /// Who owns it.
    pub tenant: TenantId,
    /// For people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// Which driver runs it.
    pub driver: DriverName,
    /// What its commands may reach.
    pub network: Network,
    /// Caps; `None` in a field takes the driver's default.
    pub limits: SandboxLimits,
    /// Free notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
}

/// Drivers that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverName {
    /// Linux namespaces.
    #[default]
    Namespace,
    /// Landlock and seccomp only, where namespaces are forbidden.
    Landlock,
    /// No isolation.
    Process,
}

/// What commands may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    Off,
    /// Everything that the host can reach.
    Host,
}

/// Caps of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Memory of all its processes together, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Size of the workspace, in bytes.
    pub disk_bytes: Option<u64>,
}
