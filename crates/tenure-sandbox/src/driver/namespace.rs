//! The namespace driver: the default on Linux.

use std::sync::Arc;

use async_trait::async_trait;

use crate::incarnation::Launcher;
use crate::port::{Driver, Error, Guarantees, Incarnation, Item, Network, Spec, State};
use crate::wire::Mode;

/// Runs commands in own mount, pid, net, ipc, uts and user namespaces behind a system call filter.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    launcher: Launcher,
}

impl Namespace {
    /// Makes a driver that starts this launcher.
    pub fn new(launcher: Launcher) -> Self {
        Self { launcher }
    }
}

#[async_trait]
impl Driver for Namespace {
    fn name(&self) -> &'static str {
        "namespace"
    }

    fn guarantees(&self) -> Guarantees {
        super::expected(Mode::Namespace)
    }

    async fn start(&self, spec: Spec) -> Result<Arc<dyn Incarnation>, Error> {
        super::start(self.name(), Mode::Namespace, self.launcher.clone(), spec).await
    }
}

pub(super) fn describe(list: &mut Guarantees, network: Network) {
    let user = if super::has_outside_ids() {
        "one user, mapped to an id outside that owns the workspace and nothing else"
    } else {
        "one user, mapped to the user that runs the worker"
    };
    for (item, why) in [
        (Item::Mount, "own root; system directories read-only; nothing else of the host"),
        (Item::Pid, "own process table"),
        (Item::Ipc, "own namespace"),
        (Item::Uts, "own host name"),
        (Item::User, user),
        (Item::Seccomp, "mounts, namespaces, tracing, keyrings and foreign socket families refused"),
        (Item::NoNewPrivs, "set, and no capability is left"),
        (Item::TreeKill, "keepers find whole trees; the kernel ends the pid namespace"),
    ] {
        list.set(item, State::Enforced, why, "");
    }
    match network {
        Network::Off => list.set(Item::Net, State::Enforced, "own namespace with loopback only", ""),
        Network::Host => list.set(
            Item::Net,
            State::Missing,
            "network = \"host\": commands reach everything that this machine reaches, its own services too",
            "leave the network of the environment off",
        ),
    }
}
