//! Old holders change nothing (promise P5).

use super::Harness;
use super::fixture::{Holder, claim, create, hold, lease_id, log, message, node, view};
use crate::{Kind, Lease, State, Then};

/// A worker was paused, swept, replaced, and wakes up.
pub async fn z_02_a_zombie_changes_nothing(harness: &dyn Harness) {
    let store = harness.store();
    let zombie = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut old = hold(&*store, zombie).await;
    old.say("from the grave");
    store.sweep(&[(zombie, 0)]).await.expect("it can be swept");
    let before = view(&*store, id).await;
    assert_eq!(before.state, State::Queued);
    assert!(before.epoch > old.lease.epoch, "the loss of a lease raises the epoch");
    assert_eq!(old.clone().commit(&*store, Then::Keep).await.expect_err("it is gone").kind, Kind::Fenced);
    let living = node(&*store).await;
    let mut new = hold(&*store, living).await;
    assert_eq!(old.clone().commit(&*store, Then::Park).await.expect_err("it is gone").kind, Kind::Fenced);
    store.release(&old.lease).await.expect("releasing what is gone is no error");
    assert_eq!(view(&*store, id).await.state, State::Leased);
    new.say("from the living");
    new.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(old.commit(&*store, Then::Keep).await.expect_err("it is gone").kind, Kind::Fenced);
    assert_eq!(log(&*store, id).await.len(), 1);
}

/// After a restore the same epoch is given twice; the nonce tells the holders apart.
pub async fn z_05_the_nonce_is_part_of_the_fence(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let holder = hold(&*store, node).await;
    let mut twin = holder.clone();
    twin.lease = Lease { nonce: lease_id(), ..holder.lease.clone() };
    twin.say("from another history");
    assert_eq!(twin.commit(&*store, Then::Keep).await.expect_err("it is not the holder").kind, Kind::Fenced);
    store.release(&twin.lease).await.expect("releasing what is gone is no error");
    assert_eq!(view(&*store, id).await.state, State::Leased);
    let mut early = holder.clone();
    early.lease = Lease { epoch: holder.lease.epoch + 1, ..holder.lease.clone() };
    assert_eq!(early.commit(&*store, Then::Keep).await.expect_err("it is not the holder").kind, Kind::Fenced);
}

/// A deploy is not a failure (promise P13).
pub async fn release_takes_the_claim_back(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    for _ in 0..5 {
        let leased = claim(&*store, node, 1).await.remove(0);
        assert_eq!(leased.claims, 1);
        store.release(&leased.lease).await.expect("it can be released");
        assert_eq!(view(&*store, id).await.state, State::Queued);
    }
}

/// Repeating it is safe.
pub async fn a_second_release_does_nothing(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = Holder::new(claim(&*store, node, 1).await.remove(0));
    store.release(&holder.lease).await.expect("it can be released");
    let once = view(&*store, id).await;
    store.release(&holder.lease).await.expect("it is gone");
    let twice = view(&*store, id).await;
    assert_eq!((once.epoch, once.state), (twice.epoch, twice.state));
    holder.say("too late");
    assert_eq!(holder.commit(&*store, Then::Keep).await.expect_err("it is gone").kind, Kind::Fenced);
}
