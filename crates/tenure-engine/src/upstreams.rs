//! What this node knows of its upstreams between two looks at the store: open conditions, failures in
//! a row (the circuits), and what headers said about limits.
//!
//! The store is authoritative for conditions. A circuit is only a count: when it trips, it opens a
//! condition, and that is what stops this node and all others, and what is probed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tenure_core::condition::{Condition, Stage};
use tenure_core::{ConditionId, Millis, Timestamp};
use tokio::sync::Notify;

/// Failures in a row, of all sessions of this node, after which an upstream counts as down.
const TRIPS_AFTER: u32 = 5;

/// Failures further apart than this are not in a row.
const IN_A_ROW: Millis = 10 * 60 * 1_000;

/// Most upstreams that are remembered; beyond it the counts begin anew.
const MAX_UPSTREAMS: usize = 4_096;

/// A credential and one of its models.
pub(crate) type Upstream = (String, String);

#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    conditions: Mutex<Vec<Condition>>,
    circuits: Mutex<BTreeMap<Upstream, Circuit>>,
    slots: Mutex<BTreeMap<Upstream, Slots>>,
    /// Something was reported here: look at once.
    pub(crate) changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Circuit {
    failures: u32,
    failed_at: Timestamp,
    cools_until: Timestamp,
}

/// When the next call may be sent, while little is left of a limit.
#[derive(Clone, Copy, Debug)]
struct Slots {
    next: Timestamp,
    between: Millis,
    /// What the headers said is old by then.
    until: Timestamp,
}

impl Upstreams {
    /// Takes over what the store knows.
    pub(crate) fn learn(&self, conditions: impl Iterator<Item = Condition>) {
        *lock(&self.conditions) = conditions.filter(|condition| condition.stage != Stage::Over).collect();
    }

    /// Takes over one condition that the store just changed.
    pub(crate) fn put(&self, condition: Condition) {
        let mut conditions = lock(&self.conditions);
        conditions.retain(|known| known.id != condition.id);
        conditions.push(condition);
        drop(conditions);
        self.changed.notify_one();
    }

    /// Whether this condition is known here.
    pub(crate) fn knows(&self, id: ConditionId) -> bool {
        lock(&self.conditions).iter().any(|condition| condition.id == id)
    }

    /// What is known to stand in the way of a call.
    pub(crate) fn covering(&self, credential: &str, model: &str) -> Vec<Condition> {
        let conditions = lock(&self.conditions);
        conditions.iter().filter(|condition| condition.key.covers(credential, model)).cloned().collect()
    }

    /// Counts a failed attempt. Returns whether the upstream counts as down now.
    pub(crate) fn failed(&self, upstream: &Upstream, cool_down: Millis, now: Timestamp) -> bool {
        let mut circuits = lock(&self.circuits);
        if circuits.len() >= MAX_UPSTREAMS {
            circuits.clear();
        }
        let circuit = circuits.entry(upstream.clone()).or_default();
        if now.since(circuit.failed_at) > IN_A_ROW {
            circuit.failures = 0;
        }
        circuit.failures = circuit.failures.saturating_add(1);
        circuit.failed_at = now;
        circuit.cools_until = circuit.cools_until.max(now.after(cool_down));
        let trips = circuit.failures >= TRIPS_AFTER;
        if trips {
            circuit.failures = 0;
        }
        trips
    }

    /// An answer came.
    pub(crate) fn answered(&self, upstream: &Upstream) {
        lock(&self.circuits).remove(upstream);
    }

    /// Whether a call failed so lately that another model is asked first, if there is one.
    pub(crate) fn is_cooling(&self, upstream: &Upstream, now: Timestamp) -> bool {
        lock(&self.circuits).get(upstream).is_some_and(|circuit| circuit.cools_until > now)
    }

    /// Spreads the next calls; until `until`, when what is known about the limit is old.
    pub(crate) fn spread(&self, upstream: &Upstream, between: Option<(Millis, Timestamp)>, now: Timestamp) {
        let mut slots = lock(&self.slots);
        match between {
            None => {
                slots.remove(upstream);
            }
            Some((between, until)) => {
                if slots.len() >= MAX_UPSTREAMS {
                    slots.clear();
                }
                let slot = slots.entry(upstream.clone()).or_insert(Slots { next: now, between, until });
                slot.between = between;
                slot.until = until;
            }
        }
    }

    /// How long the next call has to wait for its slot, which is taken with that.
    pub(crate) fn next_slot(&self, upstream: &Upstream, now: Timestamp) -> Duration {
        let mut slots = lock(&self.slots);
        let Some(slot) = slots.get_mut(upstream) else { return Duration::ZERO };
        if slot.until <= now {
            slots.remove(upstream);
            return Duration::ZERO;
        }
        let at = slot.next.max(now);
        slot.next = at.after(slot.between);
        Duration::from_millis(at.since(now))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> Upstream {
        ("p".to_owned(), "p/m".to_owned())
    }

    #[test]
    fn a_circuit_trips_after_failures_in_a_row_and_an_answer_begins_anew() {
        let upstreams = Upstreams::default();
        let fail = |at| upstreams.failed(&upstream(), 100, Timestamp(at));
        assert!((1..TRIPS_AFTER).all(|at| !fail(at.into())));
        upstreams.answered(&upstream());
        assert!((1..TRIPS_AFTER).all(|at| !fail(at.into())));
        assert!(fail(10), "the fifth in a row");
        assert!(!fail(11), "counted anew");
        let late = 11 + i64::try_from(IN_A_ROW).expect("it fits") + 1;
        assert!((0..i64::from(TRIPS_AFTER) - 1).all(|more| !fail(late + more)), "not in a row with the earlier ones");
    }

    #[test]
    fn an_upstream_cools_down_after_a_failure() {
        let upstreams = Upstreams::default();
        upstreams.failed(&upstream(), 100, Timestamp(0));
        assert!(upstreams.is_cooling(&upstream(), Timestamp(99)));
        assert!(!upstreams.is_cooling(&upstream(), Timestamp(100)));
    }

    #[test]
    fn calls_take_slots_one_after_the_other() {
        let upstreams = Upstreams::default();
        assert_eq!(upstreams.next_slot(&upstream(), Timestamp(0)), Duration::ZERO);
        upstreams.spread(&upstream(), Some((100, Timestamp(1_000))), Timestamp(0));
        let waits = [0, 0, 50].map(|now| upstreams.next_slot(&upstream(), Timestamp(now)).as_millis());
        assert_eq!(waits, [0, 100, 150]);
        assert_eq!(upstreams.next_slot(&upstream(), Timestamp(1_000)), Duration::ZERO, "what was known is old");
    }
}
