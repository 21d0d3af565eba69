//! New ids and random numbers: everything of a worker that is left to chance comes from here, so that
//! the simulator can give it the same chance twice.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;
use tenure_core::{CallbackId, ConditionId, EventId, LeaseId, NodeId, SnapshotId};
use uuid::Uuid;

/// Where a worker takes ids and random numbers from.
#[derive(Debug)]
pub(crate) enum Chance {
    /// Version 7 UUIDs, so that they sort by time and cannot be guessed; randomness of the system.
    System,
    /// The same ones for the same seed; for the simulator only.
    Seeded(Mutex<Seeded>),
}

/// A counted sequence.
#[derive(Debug)]
pub(crate) struct Seeded {
    state: u64,
    ids: u64,
}

impl Seeded {
    /// The next number of the sequence (splitmix64).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Chance {
    /// The same chance for the same seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded(Mutex::new(Seeded { state: seed, ids: 0 }))
    }

    /// An id for a new event.
    pub(crate) fn event(&self) -> EventId {
        EventId::from_bits(self.id())
    }

    /// An id for a claim or a commit.
    pub(crate) fn lease(&self) -> LeaseId {
        LeaseId::from_bits(self.id())
    }

    /// An id for a condition that opens.
    pub(crate) fn condition(&self) -> ConditionId {
        ConditionId::from_bits(self.id())
    }

    /// An id for a snapshot.
    pub(crate) fn snapshot(&self) -> SnapshotId {
        SnapshotId::from_bits(self.id())
    }

    /// An id for this start of this process.
    pub(crate) fn node(&self) -> NodeId {
        NodeId::from_bits(self.id())
    }

    /// An id for a callback; all of it random, because it is half of a secret.
    pub(crate) fn callback(&self) -> CallbackId {
        let (high, low) = (self.number(), self.number());
        CallbackId::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// A random number.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::System => rand::random(),
            Self::Seeded(seeded) => seeded.lock().expect("nobody panics while holding it").next(),
        }
    }

    /// A part of `span`, drawn evenly between two fractions of it.
    pub(crate) fn part_of(&self, span: Duration, fractions: RangeInclusive<f64>) -> Duration {
        // The cast keeps the 53 bits that a double holds.
        let drawn = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        span.mul_f64(fractions.start() + (fractions.end() - fractions.start()) * drawn)
    }

    fn id(&self) -> u128 {
        match self {
            Self::System => Uuid::now_v7().as_u128(),
            Self::Seeded(seeded) => {
                let mut seeded = seeded.lock().expect("nobody panics while holding it");
                seeded.ids += 1;
                u128::from(seeded.ids) << 80 | u128::from(seeded.next())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_chance_and_another_one_another() {
        let draw = |seed| {
            let chance = Chance::seeded(seed);
            (chance.event(), chance.lease(), chance.callback(), chance.number())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let chance = Chance::seeded(1);
        assert!(chance.event() < chance.event(), "they sort by time, as those of the system do");
    }

    #[test]
    fn a_part_of_a_span_is_between_its_fractions() {
        for chance in [Chance::System, Chance::seeded(7)] {
            for _ in 0..1_000 {
                let part = chance.part_of(Duration::from_secs(100), 0.5..=1.0);
                assert!((50..=100).contains(&part.as_secs()), "{part:?}");
            }
        }
    }
}
