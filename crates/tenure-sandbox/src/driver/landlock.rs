//! The landlock driver: for machines that forbid namespaces, as many containers do.

use std::sync::Arc;

use async_trait::async_trait;

use crate::incarnation::Launcher;
use crate::port::{Driver, Error, Guarantees, Incarnation, Item, Network, Spec, State};
use crate::wire::Mode;

/// First version of landlock that can refuse TCP connections.
const NET_ABI: i32 = 4;
/// First version of landlock that confines signals and abstract sockets.
const SCOPE_ABI: i32 = 6;
const FIX: &str = "use the namespace driver; doctor says what it lacks here";

/// Runs commands behind landlock rules and a system call filter, in the host's namespaces.
#[derive(Clone, Debug, Default)]
pub struct Landlock {
    launcher: Launcher,
}

impl Landlock {
    /// Makes a driver that starts this launcher.
    pub fn new(launcher: Launcher) -> Self {
        Self { launcher }
    }
}

#[async_trait]
impl Driver for Landlock {
    fn name(&self) -> &'static str {
        "landlock"
    }

    fn guarantees(&self) -> Guarantees {
        super::expected(Mode::Landlock)
    }

    async fn start(&self, spec: Spec) -> Result<Arc<dyn Incarnation>, Error> {
        super::start(self.name(), Mode::Landlock, self.launcher.clone(), spec).await
    }
}

pub(super) fn describe(list: &mut Guarantees, network: Network, abi: i32) {
    list.set(Item::Mount, State::Partial, "landlock rules: system directories readable, workspace and home writable, nothing else opens; names and sizes elsewhere can be seen", FIX);
    let signals = if abi >= SCOPE_ABI {
        "but signals and tracing reach only the sandbox"
    } else {
        "and signals reach processes of the same user outside"
    };
    list.set(Item::Pid, State::Partial, format!("commands see the host's processes, {signals}"), FIX);
    list.set(Item::Ipc, State::Missing, "shares the host's", FIX);
    list.set(Item::Uts, State::Missing, "shares the host's, without the right to change it", FIX);
    list.set(Item::User, State::Missing, "same user as the worker, without capabilities", FIX);
    list.set(
        Item::Seccomp,
        State::Enforced,
        "mounts, namespaces, tracing, keyrings and foreign socket families refused",
        "",
    );
    list.set(Item::NoNewPrivs, State::Enforced, "set, and no capability is left", "");
    list.set(
        Item::TreeKill,
        State::Partial,
        "keepers find whole trees; after a kill of worker and launcher, the next start finds what kept its environment",
        FIX,
    );
    match (network, abi >= NET_ABI) {
        (Network::Off, true) => {
            list.set(Item::Net, State::Partial, "TCP is refused; UDP and sockets of the host's services are not", FIX)
        }
        (Network::Off, false) => {
            list.set(Item::Net, State::Missing, "this kernel's landlock cannot refuse connections", FIX)
        }
        (Network::Host, _) => list.set(
            Item::Net,
            State::Missing,
            "network = \"host\": commands reach everything that this machine reaches, its own services too",
            "leave the network of the environment off",
        ),
    }
}
