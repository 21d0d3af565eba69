//! Each planted bug is found within a thousand seeds.

use tenure_sim::{Bug, Plan, run, shrink};

/// Seeds within which a bug must be found.
const WITHIN: u64 = 1_000;

fn found(bug: Bug) {
    let broken = (1..=WITHIN).find_map(|seed| Some((seed, run(&Plan::of(seed), Some(bug)).violation?)));
    let (seed, violation) = broken.expect("the bug is found");
    println!("{bug:?}: found at seed {seed}: {}: {}", violation.promise, violation.what);
    let plan = Plan::of(seed);
    let fewer = shrink(&plan, Some(bug), violation.promise);
    println!("{} of {} faults are enough", fewer.faults.len(), plan.faults.len());
    assert!(fewer.faults.len() <= plan.faults.len());
    assert_eq!(run(&fewer, Some(bug)).violation.map(|again| again.promise), Some(violation.promise));
}

#[test]
fn a_store_without_a_fence_is_found() {
    found(Bug::NoFence);
}

#[test]
fn z_01_a_park_that_decides_by_an_old_snapshot_of_the_inbox_is_found() {
    found(Bug::StaleInbox);
}

#[test]
fn an_effect_before_its_commit_is_found() {
    found(Bug::EffectBeforeCommit);
}

#[test]
fn a_timer_that_is_gone_with_its_worker_is_found() {
    found(Bug::LostTimer);
}

#[test]
fn z_03_a_claim_that_is_repeated_under_another_id_is_found() {
    found(Bug::LostClaim);
}
