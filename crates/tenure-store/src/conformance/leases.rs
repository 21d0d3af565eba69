//! Who held a session when, and how each lease ended.

use super::Harness;
use super::fixture::{Holder, claim, create, create_for, deliver, hold, message, node, tenant};
use crate::{Beat, KEPT_EPOCHS, LeaseEnd, LeaseQuery, MAX_PAGE, PastLease, Store, Then};
use tenure_core::{Body, End, SessionId, TenantId, Timestamp};

async fn leases(store: &dyn Store, session: SessionId) -> Vec<PastLease> {
    read(store, session, 0, MAX_PAGE).await
}

async fn read(store: &dyn Store, session: SessionId, after: u64, limit: usize) -> Vec<PastLease> {
    store.leases(LeaseQuery { tenant: tenant(), session, after, limit }).await.expect("the store can be read")
}

async fn ends(store: &dyn Store, session: SessionId) -> Vec<Option<LeaseEnd>> {
    leases(store, session).await.iter().map(|lease| lease.end.map(|end| end.how)).collect()
}

/// From the claim to the commit that parks, over a restart.
pub async fn a_lease_is_told_from_its_claim_to_its_end(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    assert_eq!(leases(&*store, id).await, []);
    let mut holder = hold(&*store, node).await;
    let from = store.now().await.expect("it has a clock");
    let open = PastLease { epoch: holder.lease.epoch, node, from, from_seq: 0, end: None };
    let told = leases(&*store, id).await;
    let [first] = told.as_slice() else { panic!("one lease is out: {told:?}") };
    assert!(first.from <= from && PastLease { from, ..first.clone() } == open, "{first:?}");
    holder.say("one");
    holder.say("two");
    harness.advance(30_000);
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(leases(&*store, id).await, told, "a commit that keeps it does not end it");
    holder.park(&*store).await;
    drop(store);
    harness.reopen().await;
    let store = harness.store();
    let told = leases(&*store, id).await;
    let [past] = told.as_slice() else { panic!("one lease is over: {told:?}") };
    let end = past.end.expect("it is over");
    assert!(end.at.since(past.from) >= 30_000, "{past:?}");
    assert_eq!((end.seq, end.how), (2, LeaseEnd::Parked));
    assert_eq!(PastLease { end: None, ..past.clone() }, *first);
    deliver(&*store, id, message("more")).await.expect("it is taken");
    let holder = hold(&*store, node).await;
    let told = leases(&*store, id).await;
    assert_eq!((told[1].epoch, told[1].from_seq, told[1].end), (holder.lease.epoch, 2, None));
}

/// Parked, yielded, released by its holder or with its node, lost with its node or by it, ended.
pub async fn each_lease_says_how_it_ended(harness: &dyn Harness) {
    let store = harness.store();
    let [mut living, silent, leaving] = [node(&*store).await, node(&*store).await, node(&*store).await];
    let id = create(&*store, vec![message("go")]).await;
    hold(&*store, living).await.commit(&*store, Then::Yield).await.expect("the lease is held");
    let released = hold(&*store, living).await;
    store.release(&released.lease).await.expect("it is held");
    hold(&*store, silent).await;
    store.sweep(&[(silent, 0)]).await.expect("it can be swept");
    hold(&*store, living).await;
    let beat = Beat { node: living, held: Vec::new(), claimed_before: Timestamp(i64::MAX) };
    store.heartbeat(beat).await.expect("the node lives");
    hold(&*store, leaving).await;
    store.retire(leaving).await.expect("it is there");
    living = node(&*store).await;
    let mut holder = hold(&*store, living).await;
    holder.park(&*store).await;
    deliver(&*store, id, message("more")).await.expect("it is taken");
    let mut holder = hold(&*store, living).await;
    holder.push(Body::StatusTerminated { end: End::Done });
    holder.commit(&*store, Then::Park).await.expect("the lease is held");
    let expected = [
        LeaseEnd::Yielded,
        LeaseEnd::Released,
        LeaseEnd::Lost,
        LeaseEnd::Lost,
        LeaseEnd::Released,
        LeaseEnd::Parked,
        LeaseEnd::Ended,
    ];
    assert_eq!(ends(&*store, id).await, expected.map(Some));
    let told = leases(&*store, id).await;
    assert!(told.windows(2).all(|pair| pair[0].epoch < pair[1].epoch), "{told:?}");
    assert_eq!([told[2].node, told[4].node, told[6].node], [silent, leaving, living]);
}

/// Neither a repeated commit nor a holder whose lease is gone tells of an end again.
pub async fn an_end_is_told_once(harness: &dyn Harness) {
    let store = harness.store();
    let [lost, living] = [node(&*store).await, node(&*store).await];
    let id = create(&*store, vec![message("go")]).await;
    let mut stale = hold(&*store, lost).await;
    store.sweep(&[(lost, 0)]).await.expect("it can be swept");
    let mut holder = hold(&*store, living).await;
    store.release(&stale.lease).await.expect("nothing happens");
    stale.say("late");
    stale.commit(&*store, Then::Park).await.expect_err("the lease is gone");
    holder.take_all();
    let checkpoint = holder.checkpoint(Then::Park);
    for _ in 0..2 {
        store.commit(checkpoint.clone()).await.expect("the first one counts");
    }
    store.release(&holder.lease).await.expect("nothing happens");
    assert_eq!(ends(&*store, id).await, [Some(LeaseEnd::Lost), Some(LeaseEnd::Parked)]);
}

/// A page goes on after an epoch, and shows nothing of others.
pub async fn leases_are_read_in_pages(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let other = TenantId("other".to_owned());
    let foreign = create_for(&*store, &other, vec![message("go")]).await;
    let theirs = Holder::new(claim(&*store, node, 1).await.pop().expect("it is queued"));
    store.release(&theirs.lease).await.expect("it is held");
    assert_eq!(claim(&*store, node, 1).await.len(), 1);
    let id = create(&*store, vec![message("go")]).await;
    for _ in 0..3 {
        hold(&*store, node).await.commit(&*store, Then::Yield).await.expect("the lease is held");
    }
    let open = hold(&*store, node).await.lease.epoch;
    let all = leases(&*store, id).await;
    assert_eq!((all.len(), all[3].epoch, all[3].end), (4, open, None));
    assert_eq!(read(&*store, id, 0, 2).await, all[..2]);
    assert_eq!(read(&*store, id, all[1].epoch, 2).await, all[2..]);
    assert_eq!(read(&*store, id, all[2].epoch, 1).await, all[3..]);
    assert_eq!(read(&*store, id, open, 10).await, []);
    assert_eq!(leases(&*store, foreign).await, [], "it belongs to somebody else");
}

/// A session that is taken up again and again keeps what is new.
pub async fn old_leases_are_forgotten(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    // Each uses up two epochs.
    for _ in 0..=KEPT_EPOCHS / 2 {
        let holder = Holder::new(claim(&*store, node, 1).await.pop().expect("it is queued again"));
        store.release(&holder.lease).await.expect("it is held");
    }
    let mut all = leases(&*store, id).await;
    if let Some(last) = all.last() {
        all.extend(read(&*store, id, last.epoch, MAX_PAGE).await);
    }
    let newest = all.last().expect("some are kept").epoch;
    assert_eq!((newest, all[0].epoch), (KEPT_EPOCHS + 1, 3), "those of the last epochs are kept");
    assert_eq!(all.len() as u64, KEPT_EPOCHS / 2);
}

/// With its session.
pub async fn the_leases_of_a_deleted_session_are_gone(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    hold(&*store, node).await.park(&*store).await;
    store.delete(&tenant(), id).await.expect("nobody holds it");
    assert_eq!(leases(&*store, id).await, []);
}
