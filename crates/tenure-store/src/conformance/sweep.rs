//! Sessions of dead nodes run again.

use super::Harness;
use super::fixture::{claim, create, hold, message, node, view};
use crate::{Beat, State};
use tenure_core::Timestamp;

/// The node is dead for ever, its sessions are not.
pub async fn a_silent_node_dies_and_its_sessions_are_queued(harness: &dyn Harness) {
    let store = harness.store();
    let [silent, living] = [node(&*store).await, node(&*store).await];
    let first = create(&*store, vec![message("go")]).await;
    hold(&*store, silent).await;
    let second = create(&*store, vec![message("go")]).await;
    hold(&*store, living).await;
    assert_eq!(store.sweep(&[(silent, 0)]).await.expect("it can be swept"), [first]);
    assert_eq!(view(&*store, first).await.state, State::Queued);
    assert_eq!(view(&*store, second).await.state, State::Leased);
    let nodes = store.nodes().await.expect("it can be read");
    let dead: Vec<_> = nodes.iter().map(|node| (node.id, node.is_dead, node.leases)).collect();
    assert_eq!(dead, [(silent, true, 0), (living, false, 1)]);
    assert_eq!(store.sweep(&[]).await.expect("it can be swept"), []);
}

/// Judged by its counter, in the sweeping transaction.
pub async fn z_24_a_node_that_beat_meanwhile_lives(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let holder = hold(&*store, node).await;
    let held = vec![(id, holder.lease.epoch)];
    store.heartbeat(Beat { node, held, claimed_before: Timestamp(0) }).await.expect("the node lives");
    harness.advance(3_600_000);
    assert_eq!(store.sweep(&[(node, 0)]).await.expect("it can be swept"), []);
    assert_eq!(view(&*store, id).await.state, State::Leased);
}

/// A step that kills its worker is counted, unlike a deploy (promise P13).
pub async fn a_death_counts_against_the_session(harness: &dyn Harness) {
    let store = harness.store();
    create(&*store, vec![message("go")]).await;
    for expected in 1..=3 {
        let node = node(&*store).await;
        assert_eq!(claim(&*store, node, 1).await[0].claims, expected);
        store.sweep(&[(node, 0)]).await.expect("it can be swept");
    }
}
