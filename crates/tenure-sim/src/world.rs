//! What all parts of a simulated world share: its clock, its weather and its referee.

use crate::bug::Bug;
use crate::dice::Dice;
use crate::history::History;
use crate::plan::{Class, Fault, Mishap, Outage, Plan, Trouble};
use crate::referee::Referee;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure_core::Timestamp;
use tenure_store::memory::Memory;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When the store's clock stands at the begin.
const START: Timestamp = Timestamp(1_800_000_000_000);

/// A simulated world.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) bug: Option<Bug>,
    pub(crate) memory: Arc<Memory>,
    begun: Instant,
    dice: Mutex<Dice>,
    counted: Mutex<BTreeMap<Class, u64>>,
    history: Mutex<History>,
    referee: Mutex<Referee>,
    /// A promise was broken, or everything is done: nothing goes on.
    pub(crate) over: CancellationToken,
}

impl World {
    pub(crate) fn new(plan: Plan, bug: Option<Bug>) -> Self {
        let memory = Memory::new();
        memory.set_now(START);
        if let Some(planted) = bug.and_then(Bug::in_store) {
            memory.plant(planted);
        }
        let dice = Mutex::new(Dice::of(plan.seed, 2));
        Self {
            plan,
            bug,
            memory: Arc::new(memory),
            begun: Instant::now(),
            dice,
            counted: Mutex::default(),
            history: Mutex::default(),
            referee: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// Milliseconds since the begin.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.now() >= self.plan.quiet_at
    }

    /// Waits until so many milliseconds after the begin.
    pub(crate) async fn until(&self, at: u64) {
        tokio::time::sleep_until(self.begun + Duration::from_millis(at)).await;
    }

    /// Moves the store's clock to where it stands now. The store itself lets it never go back.
    pub(crate) fn tick(&self) {
        let now = self.now();
        let jumps = self.plan.faults.iter().filter_map(|fault| match fault {
            Fault::Clock { at, by } if *at <= now => Some(*by),
            _ => None,
        });
        let jumped: i64 = jumps.sum();
        self.memory.pass_to(Timestamp(START.0.saturating_add_unsigned(now).saturating_add(jumped)));
    }

    pub(crate) fn throw<T>(&self, throw: impl FnOnce(&mut Dice) -> T) -> T {
        throw(&mut lock(&self.dice))
    }

    /// What happens to the next operation of a class.
    pub(crate) fn mishap(&self, class: Class) -> Option<Mishap> {
        if self.is_quiet() {
            return None;
        }
        let mut counted = lock(&self.counted);
        let count = counted.entry(class).or_default();
        *count += 1;
        self.plan.faults.iter().find_map(|fault| match fault {
            Fault::Operation { class: of, nth, how } if *of == class && *nth == *count => Some(*how),
            _ => None,
        })
    }

    /// Until when what a node sends is held up, if it is.
    pub(crate) fn held_until(&self, node: Option<usize>) -> Option<u64> {
        self.node_trouble(node, Trouble::Held)
    }

    pub(crate) fn is_cut_off(&self, node: Option<usize>) -> bool {
        self.node_trouble(node, Trouble::CutOff).is_some()
    }

    fn node_trouble(&self, node: Option<usize>, wanted: Trouble) -> Option<u64> {
        let now = self.now();
        self.plan.faults.iter().find_map(|fault| match fault {
            Fault::Node { node: of, at, span, how }
                if Some(*of) == node && *how == wanted && (*at..at + span).contains(&now) =>
            {
                Some(at + span)
            }
            _ => None,
        })
    }

    /// Whether the store is away.
    pub(crate) fn is_store_away(&self) -> bool {
        self.store_faults().any(|slow| slow.is_none())
    }

    /// How much longer the store takes, in milliseconds.
    pub(crate) fn slowness(&self) -> u64 {
        self.store_faults().flatten().max().unwrap_or(0)
    }

    fn store_faults(&self) -> impl Iterator<Item = Option<u64>> {
        let now = self.now();
        self.plan.faults.iter().filter_map(move |fault| match fault {
            Fault::Store { at, span, slow } if (*at..at + span).contains(&now) => Some(*slow),
            _ => None,
        })
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        let now = self.now();
        self.plan.faults.iter().find_map(|fault| match fault {
            Fault::Upstream { at, span, how } if (*at..at + span).contains(&now) => Some(*how),
            _ => None,
        })
    }

    pub(crate) fn note(&self, line: impl AsRef<str>) {
        lock(&self.history).note(format!("{:>8} {}", self.now(), line.as_ref()));
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Lets the referee see something; a broken promise ends the world.
    pub(crate) fn judge<T>(&self, see: impl FnOnce(&mut Referee) -> T) -> T {
        let mut referee = lock(&self.referee);
        let seen = see(&mut referee);
        if referee.violation.is_some() {
            self.over.cancel();
        }
        seen
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

/// Whether a process lives. What a dead one had under way never comes back to it.
#[derive(Debug, Default)]
pub(crate) struct Process {
    dead: CancellationToken,
}

impl Process {
    pub(crate) fn die(&self) {
        self.dead.cancel();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    pub(crate) async fn died(&self) {
        self.dead.cancelled().await;
    }

    /// Goes on if the process lives, and never if it is dead.
    pub(crate) async fn lives(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}
