//! Seeded randomness: the same throws for the same seed, on every machine.

/// A sequence of throws (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Other dice for a part of the same world, so that one part throws the same whatever others do.
    pub(crate) fn of(seed: u64, part: u64) -> Self {
        let mut dice = Self::new(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `from` to `to`, both included.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    /// True so many times out of a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        // No list here is empty or longer than memory.
        of[self.between(0, of.len() as u64 - 1) as usize]
    }
}
