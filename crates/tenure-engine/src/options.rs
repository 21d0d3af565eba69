//! How a worker behaves.

use std::path::PathBuf;
use std::time::Duration;
use tenure_telemetry::Telemetry;

/// Settings of a worker; the defaults are those of the configuration file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sessions that it advances at the same time.
    pub slots: usize,
    /// After this long a lease yields at the next step boundary if others wait.
    pub quantum: Duration,
    /// Waits up to this long stay in the lease instead of parking.
    pub short_wait: Duration,
    /// How long a step may go on after the worker was asked to stop.
    pub grace: Duration,
    /// How often the node says that it lives.
    pub heartbeat: Duration,
    /// A node that was silent for so long is dead.
    pub dead_after: Duration,
    /// A sandbox that was idle for so long is ended; its files stay.
    pub sandbox_idle: Duration,
    /// The data folder of this machine.
    pub data: PathBuf,
    /// Base of callback links, without a slash at the end.
    pub public_url: String,
    /// Key of the installation, for callback tokens.
    pub installation_key: [u8; 32],
    /// Shared by the nodes of this installation.
    pub node_key: String,
    /// Where this node listens for other nodes; port 0 picks one.
    pub internal_listen: std::net::SocketAddr,
    /// Where it counts and traces.
    pub telemetry: Telemetry,
}

impl Options {
    /// Margin by which a node stops trusting its leases before others may take them (design 7.6).
    pub(crate) fn fence_after(&self) -> Duration {
        let margin = (self.heartbeat / 2 + Duration::from_secs(1)).min(self.dead_after / 3);
        self.dead_after - margin
    }
}
