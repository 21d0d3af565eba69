//! The same seed gives the same history.

use tenure_sim::{Plan, run};

/// Seeds that are run twice.
const SEEDS: u64 = 25;

#[test]
fn the_same_seed_gives_the_same_history_line_for_line() {
    let mut lines = 0;
    for seed in 1..=SEEDS {
        let (one, other) = (run(&Plan::of(seed), None), run(&Plan::of(seed), None));
        let differs = one.history.iter().zip(&other.history).position(|(one, other)| one != other);
        if let Some(place) = differs {
            let until = place + 1;
            panic!(
                "seed {seed} differs: {:#?}\n{}",
                &one.history[place.saturating_sub(5)..until],
                other.history[place]
            );
        }
        assert_eq!(one.digest, other.digest, "seed {seed}");
        assert_eq!(one.violation, other.violation, "seed {seed}");
        lines += one.history.len();
    }
    assert!(lines > 1_000, "something happened: {lines}");
}

#[test]
fn another_seed_gives_another_history() {
    assert_ne!(run(&Plan::of(1), None).digest, run(&Plan::of(2), None).digest);
}
