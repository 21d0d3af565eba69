//! Heartbeats: who lives, and who holds what.

use super::Harness;
use super::fixture::{Holder, bits, claim, create, deliver, hold, message, node, session_id, view};
use crate::{Beat, Kind, State, Store};
use tenure_core::{InputBody, NodeId, SessionId, Timestamp};

async fn beat(
    store: &dyn Store,
    node: NodeId,
    held: Vec<(SessionId, u64)>,
    claimed_before: Timestamp,
) -> crate::BeatReply {
    store.heartbeat(Beat { node, held, claimed_before }).await.expect("the node lives")
}

/// A counter, so that no clock is compared (hazard Z-24).
pub async fn a_heartbeat_counts(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    for expected in 1..=3 {
        harness.advance(10);
        beat(&*store, node, Vec::new(), Timestamp(0)).await;
        let nodes = store.nodes().await.expect("it can be read");
        assert_eq!((nodes[0].id, nodes[0].beats, nodes[0].is_dead), (node, expected, false));
    }
}

/// The reply to a claim was lost and never asked for: the next heartbeats find it, but leave claims alone that are under way.
pub async fn z_03_leases_that_nobody_holds_are_queued_again(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let leased = claim(&*store, node, 1).await.remove(0);
    beat(&*store, node, Vec::new(), leased.now).await;
    assert_eq!(view(&*store, id).await.state, State::Leased, "its claim may be under way");
    beat(&*store, node, vec![(id, leased.lease.epoch)], leased.now.after(1)).await;
    assert_eq!(view(&*store, id).await.state, State::Leased, "it is held");
    beat(&*store, node, Vec::new(), leased.now.after(1)).await;
    let seen = view(&*store, id).await;
    assert_eq!(seen.state, State::Queued);
    assert!(seen.epoch > leased.lease.epoch);
    let again = claim(&*store, node, 1).await;
    assert_eq!(again[0].claims, 1, "the node lives: the session did not end it");
    let mut late = Holder::new(leased);
    late.say("too late");
    assert_eq!(late.commit(&*store, crate::Then::Keep).await.expect_err("it is gone").kind, Kind::Fenced);
}

/// What a node holds and does not own is to be dropped.
pub async fn lost_leases_are_reported(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let holder = hold(&*store, node).await;
    let stranger = session_id();
    let held = vec![(id, holder.lease.epoch), (stranger, 1)];
    assert_eq!(beat(&*store, node, held, Timestamp(0)).await.lost, [stranger]);
    let old = vec![(id, holder.lease.epoch - 1)];
    assert_eq!(beat(&*store, node, old, Timestamp(0)).await.lost, [id], "an older epoch is another lease");
    store.release(&holder.lease).await.expect("it can be released");
    assert_eq!(beat(&*store, node, vec![(id, holder.lease.epoch)], Timestamp(0)).await.lost, [id]);
}

/// Also a worker that listens to nothing hears of an interrupt (hazard Z-30).
pub async fn urgent_inputs_reach_the_holder(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let holder = hold(&*store, node).await;
    let held = vec![(id, holder.lease.epoch)];
    assert_eq!(beat(&*store, node, held.clone(), Timestamp(0)).await.urgent, []);
    deliver(&*store, id, InputBody::Cancel).await.expect("it is taken");
    assert_eq!(beat(&*store, node, held, Timestamp(0)).await.urgent, [id]);
}

/// Dead is final, and unknown is not alive.
pub async fn a_dead_node_is_told(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    store.sweep(&[(node, 0)]).await.expect("it can be swept");
    let request = |node| Beat { node, held: Vec::new(), claimed_before: Timestamp(0) };
    assert_eq!(store.heartbeat(request(node)).await.expect_err("it is dead").kind, Kind::Fenced);
    let unknown = NodeId::from_bits(bits());
    assert_eq!(store.heartbeat(request(unknown)).await.expect_err("it is unknown").kind, Kind::NotFound);
}
