//! The process driver: no isolation. It must be asked for by name.

use std::sync::Arc;

use async_trait::async_trait;

use crate::incarnation::Launcher;
use crate::port::{Driver, Error, Guarantees, Incarnation, Item, Spec, State};
use crate::wire::Mode;

const WHY: &str = "the process driver isolates nothing";
const FIX: &str = "use the namespace or the landlock driver";

/// Runs commands as plain processes of the worker's user.
#[derive(Clone, Debug, Default)]
pub struct Process {
    launcher: Launcher,
}

impl Process {
    /// Makes a driver that starts this launcher.
    pub fn new(launcher: Launcher) -> Self {
        Self { launcher }
    }
}

#[async_trait]
impl Driver for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn guarantees(&self) -> Guarantees {
        super::expected(Mode::Process)
    }

    async fn start(&self, spec: Spec) -> Result<Arc<dyn Incarnation>, Error> {
        super::start(self.name(), Mode::Process, self.launcher.clone(), spec).await
    }
}

pub(super) fn describe(list: &mut Guarantees) {
    for item in [Item::Mount, Item::Pid, Item::Net, Item::Ipc, Item::Uts, Item::User, Item::Seccomp, Item::NoNewPrivs] {
        list.set(item, State::Missing, WHY, FIX);
    }
    list.set(
        Item::TreeKill,
        State::Partial,
        "keepers find whole trees; after a kill of worker and launcher, the next start finds what kept its environment",
        FIX,
    );
}
