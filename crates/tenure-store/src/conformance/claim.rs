//! Leases are given.

use super::Harness;
use super::fixture::{Holder, claim, create, create_for, deliver, hold, lease_id, message, node, view};
use crate::{Claim, Kind, Lane, SUSPECT_AFTER, State, Then};
use std::collections::BTreeSet;
use tenure_core::{Body, Estimate, NodeId, Sent, TenantId, Usage};

/// Nobody is passed over.
pub async fn the_oldest_is_leased_first(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(create(&*store, vec![message("go")]).await);
        harness.advance(10);
    }
    let leased = claim(&*store, node, 3).await;
    assert_eq!(leased.iter().map(|leased| leased.session.id).collect::<Vec<_>>(), ids[..3]);
    let rest = claim(&*store, node, 100).await;
    assert_eq!(rest.iter().map(|leased| leased.session.id).collect::<Vec<_>>(), ids[3..]);
    assert!(claim(&*store, node, 100).await.is_empty());
}

/// One holder at a time.
pub async fn a_leased_session_is_not_leased_again(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let holder = hold(&*store, node).await;
    deliver(&*store, id, message("more")).await.expect("it is taken");
    assert!(claim(&*store, node, 10).await.is_empty());
    let view = view(&*store, id).await;
    assert_eq!((view.state, view.node, view.epoch), (State::Leased, Some(node), holder.lease.epoch));
}

/// The same claim again gives the same leases; another one gives none of them.
pub async fn z_03_a_lost_reply_is_asked_for_again(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    for _ in 0..3 {
        create(&*store, vec![message("go")]).await;
    }
    let request = Claim { node, lane: Lane::Workers, id: lease_id(), limit: 2 };
    let leases = async |request: &Claim| {
        let leased = store.claim(request.clone()).await.expect("the node lives");
        leased.into_iter().map(|leased| leased.lease).collect::<Vec<_>>()
    };
    let first = leases(&request).await;
    let again = leases(&request).await;
    assert_eq!(first.len(), 2);
    assert_eq!(first, again);
    let nonces: BTreeSet<_> = first.iter().map(|lease| lease.nonce).collect();
    assert_eq!(nonces.len(), 2, "each lease has a nonce of its own");
    assert_eq!(claim(&*store, node, 10).await.len(), 1, "the third is free");
}

/// A claim is worth nothing once its node is dead, or was never there.
pub async fn z_04_a_dead_or_unknown_node_gets_no_lease(harness: &dyn Harness) {
    let store = harness.store();
    let dead = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    store.sweep(&[(dead, 0)]).await.expect("it can be swept");
    for node in [dead, NodeId::from_bits(1)] {
        let refused = store.claim(Claim { node, lane: Lane::Workers, id: lease_id(), limit: 1 }).await;
        assert_eq!(refused.expect_err("it is not alive").kind, Kind::Fenced);
    }
    assert_eq!(view(&*store, id).await.state, State::Queued);
}

/// Lost holders add up until a step is over; what leads to an effect, and what is said about a lost
/// one, is no progress.
pub async fn p_13_claims_are_counted_until_progress(harness: &dyn Harness) {
    let store = harness.store();
    create(&*store, vec![message("go")]).await;
    for expected in 1..=5 {
        let node = node(&*store).await;
        let leased = claim(&*store, node, 1).await.remove(0);
        assert_eq!(leased.claims, expected);
        let mut holder = Holder::new(leased);
        holder.push(Body::StatusRunning);
        let sent = Sent::default();
        let start = Body::SpanStart { model: "script/x".to_owned(), attempt: 1, instead_of: None, sent };
        let span = holder.push(start);
        holder.commit(&*store, Then::Keep).await.expect("the lease is held");
        let usage = Usage::default();
        holder.push(Body::SpanEnd {
            span,
            model: String::new(),
            is_error: true,
            usage,
            cost_usd_micros: None,
            assumed: Estimate::default(),
        });
        holder.commit(&*store, Then::Keep).await.expect("the lease is held");
        store.sweep(&[(node, 0)]).await.expect("it can be swept");
    }
    let first = node(&*store).await;
    let mut holder = hold(&*store, first).await;
    holder.say("progress");
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    store.sweep(&[(first, 0)]).await.expect("it can be swept");
    let second = node(&*store).await;
    assert_eq!(claim(&*store, second, 1).await[0].claims, 2, "the first was lost at the step after it");
}

/// Whoever lets go by itself was not ended by the session.
pub async fn p_13_yielding_and_parking_are_not_counted(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    for then in [Then::Yield, Then::Yield, Then::Park, Then::Yield] {
        let leased = claim(&*store, node, 1).await.remove(0);
        assert_eq!(leased.claims, 1, "{then:?}");
        let mut holder = Holder::new(leased);
        holder.take_all();
        holder.commit(&*store, then).await.expect("the lease is held");
        if then == Then::Park {
            deliver(&*store, id, message("more")).await.expect("it is taken");
        }
    }
}

/// The third try at the same step is made without another suspect beside it.
pub async fn z_34_a_node_gets_one_suspect_at_a_time(harness: &dyn Harness) {
    let store = harness.store();
    for _ in 0..3 {
        create(&*store, vec![message("go")]).await;
    }
    for _ in 0..SUSPECT_AFTER {
        let dead = node(&*store).await;
        assert_eq!(claim(&*store, dead, 10).await.len(), 3, "no suspects yet");
        store.sweep(&[(dead, 0)]).await.expect("it can be swept");
    }
    let fresh = create(&*store, vec![message("go")]).await;
    let [first, second] = [node(&*store).await, node(&*store).await];
    let mut batch = claim(&*store, first, 10).await;
    assert_eq!(batch.len(), 2, "one suspect and the innocent");
    assert!(batch.iter().any(|leased| leased.session.id == fresh));
    assert!(claim(&*store, first, 10).await.is_empty(), "it holds a suspect");
    assert_eq!(claim(&*store, second, 10).await.len(), 1, "another node does not");
    let suspect = batch.iter().position(|leased| leased.claims > SUSPECT_AFTER).expect("there is one");
    let mut holder = Holder::new(batch.remove(suspect));
    holder.say("it was innocent");
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(claim(&*store, first, 10).await.len(), 1, "it is none any more");
}

/// A tenant with a long queue does not starve one with a short one.
pub async fn p_16_tenants_take_turns(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let [many, few] = ["many", "few"].map(|name| TenantId(name.to_owned()));
    for _ in 0..20 {
        create_for(&*store, &many, vec![message("go")]).await;
    }
    harness.advance(1_000);
    create_for(&*store, &few, vec![message("go")]).await;
    create_for(&*store, &few, vec![message("go")]).await;
    let batch = claim(&*store, node, 4).await;
    assert_eq!(batch.iter().filter(|leased| leased.lease.tenant == few).count(), 2);
    create_for(&*store, &few, vec![message("go")]).await;
    let mut singles = claim(&*store, node, 1).await;
    singles.extend(claim(&*store, node, 1).await);
    assert!(singles.iter().any(|leased| leased.lease.tenant == few), "also one by one");
}

/// What the holder needs to start comes with the lease.
pub async fn a_claim_brings_head_and_inbox(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("one"), message("two")]).await;
    let leased = claim(&*store, node, 1).await.remove(0);
    let view = view(&*store, id).await;
    assert_eq!(leased.session, view.session);
    assert_eq!(leased.inbox, store.inbox(id).await.expect("it can be read"));
    assert_eq!(leased.lease.node, node);
    assert!(leased.queued_at <= leased.now);
}

/// The traces of a session are linked: each lease knows the claim that gave the one before it.
pub async fn a_claim_names_the_one_before(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("one")]).await;
    let lease = async || {
        let request = Claim { node, lane: Lane::Workers, id: lease_id(), limit: 1 };
        (request.id, store.claim(request).await.expect("the node lives").remove(0))
    };
    let (first, leased) = lease().await;
    assert_eq!(leased.previous, None);
    Holder::new(leased).park(&*store).await;
    deliver(&*store, id, message("two")).await.expect("it is taken");
    let (second, leased) = lease().await;
    assert_eq!(leased.previous, Some(first), "after it parked");
    store.release(&leased.lease).await.expect("it is held");
    let (third, leased) = lease().await;
    assert_eq!(leased.previous, Some(second), "after it was released");
    store.retire(node).await.expect("it lives");
    assert_eq!(leased.session.id, id);
    let heir = super::fixture::node(&*store).await;
    let request = Claim { node: heir, lane: Lane::Workers, id: lease_id(), limit: 1 };
    let leased = store.claim(request).await.expect("the node lives").remove(0);
    assert_eq!(leased.previous, Some(third), "after its node is gone");
}
