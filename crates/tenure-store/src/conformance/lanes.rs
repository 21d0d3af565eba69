//! Queues of external loops: who may lease what, and how long (design 4.9, promises P5, P14, P15).

use super::Harness;
use super::fixture::{Holder, claim, create, deliver, hold, lease_id, message, new_session, node, tenant, view};
use crate::{Claim, EXTERNAL, Kind, Lane, LeaseEnd, LeaseQuery, State, Store, Then};
use tenure_core::{Body, End, InputBody, Millis, SessionId, TenantId};

const QUEUE: &str = "reviews";
const SPAN: Millis = 30_000;

async fn create_in(store: &dyn Store, tenant: &TenantId, queue: &str) -> SessionId {
    let mut new = new_session(tenant, vec![message("go")]);
    new.session.queue = Some(queue.to_owned());
    store.create(new).await.expect("a new session is taken").view.session.id
}

fn request(tenant: &TenantId, queue: &str, limit: usize) -> Claim {
    let lane = Lane::Queue { tenant: tenant.clone(), name: queue.to_owned(), span: SPAN };
    Claim { node: EXTERNAL, lane, id: lease_id(), limit }
}

async fn take(store: &dyn Store) -> Vec<Holder> {
    let leased = store.claim(request(&tenant(), QUEUE, 10)).await.expect("no node is needed");
    leased.into_iter().map(Holder::new).collect()
}

/// A worker gets none of theirs, and they get only their own queue.
pub async fn each_lane_gets_its_own(harness: &dyn Harness) {
    let store = harness.store();
    let (node, other) = (node(&*store).await, TenantId("other".to_owned()));
    let plain = create(&*store, vec![message("go")]).await;
    let first = create_in(&*store, &tenant(), QUEUE).await;
    harness.advance(10);
    let second = create_in(&*store, &tenant(), QUEUE).await;
    create_in(&*store, &tenant(), "deploys").await;
    create_in(&*store, &other, QUEUE).await;
    assert_eq!(view(&*store, second).await.queue_position, Some(1), "in its own queue");
    let mine = claim(&*store, node, 10).await;
    assert_eq!(mine.iter().map(|leased| leased.lease.session).collect::<Vec<_>>(), [plain]);
    let again = request(&tenant(), QUEUE, 10);
    let taken = store.claim(again.clone()).await.expect("no node is needed");
    assert_eq!(taken.iter().map(|leased| leased.lease.session).collect::<Vec<_>>(), [first, second]);
    assert_eq!(taken[0].session.queue.as_deref(), Some(QUEUE));
    // A lost reply is asked for again.
    let repeated = store.claim(again).await.expect("it is known");
    let leases = |leased: &[crate::Leased]| leased.iter().map(|leased| leased.lease.clone()).collect::<Vec<_>>();
    assert_eq!(leases(&repeated), leases(&taken));
    assert!(take(&*store).await.is_empty());
    assert_eq!(claim(&*store, node, 10).await.len(), 0);
}

/// The depth follows what is queued and leased, of one tenant.
pub async fn the_depth_of_a_queue_is_known(harness: &dyn Harness) {
    let store = harness.store();
    let depth = async || store.queue_depth(&tenant(), QUEUE).await.expect("the store can be read");
    assert_eq!(depth().await, crate::QueueDepth::default());
    create_in(&*store, &TenantId("other".to_owned()), QUEUE).await;
    create_in(&*store, &tenant(), QUEUE).await;
    let first = depth().await;
    harness.advance(5_000);
    create_in(&*store, &tenant(), QUEUE).await;
    let two = depth().await;
    assert_eq!((first.queued, two.queued, two.leased), (1, 2, 0));
    assert_eq!((two.oldest, two.oldest.is_some()), (first.oldest, true));
    let mut holders = take(&*store).await;
    let leased = depth().await;
    assert_eq!((leased.queued, leased.oldest, leased.leased), (0, None, 2));
    holders[0].park(&*store).await;
    assert_eq!(depth().await.leased, 1);
    assert_eq!(store.counts().await.expect("the store can be read").queued, 1, "counts are of all tenants");
}

/// Its time decides, by the store's clock; renewing and committing under a lost lease change nothing.
pub async fn a_lease_that_is_not_renewed_is_taken_back(harness: &dyn Harness) {
    let store = harness.store();
    let id = create_in(&*store, &tenant(), QUEUE).await;
    let mut old = take(&*store).await.remove(0);
    harness.advance(SPAN - 1_000);
    assert_eq!(store.sweep(&[]).await.expect("it can be swept"), []);
    let renewed = store.renew(&old.lease, SPAN).await.expect("it is held");
    let now = store.now().await.expect("it has a clock");
    let left = renewed.until.since(now);
    assert!(left > SPAN - 1_000 && left <= SPAN && !renewed.is_urgent, "{left}");
    harness.advance(SPAN - 1_000);
    assert_eq!(store.sweep(&[]).await.expect("it can be swept"), [], "it was renewed");
    harness.advance(2_000);
    assert_eq!(store.sweep(&[]).await.expect("it can be swept"), [id]);
    assert_eq!(view(&*store, id).await.state, State::Queued);
    assert_eq!(store.renew(&old.lease, SPAN).await.expect_err("it is gone").kind, Kind::Fenced);
    old.say("late");
    assert_eq!(old.commit(&*store, Then::Keep).await.expect_err("it is gone").kind, Kind::Fenced);
    let leased = store.claim(request(&tenant(), QUEUE, 1)).await.expect("no node is needed").remove(0);
    assert_eq!(leased.claims, 2, "its loss counts (promise P13)");
    let query = LeaseQuery { tenant: tenant(), session: id, after: 0, limit: 10 };
    let told = store.leases(query).await.expect("the store can be read");
    assert_eq!((told[0].node, told[0].end.map(|end| end.how)), (EXTERNAL, Some(LeaseEnd::Lost)));
}

/// A living worker's sweep, a restart and a death of others leave them alone.
pub async fn only_time_ends_the_lease_of_a_loop(harness: &dyn Harness) {
    let store = harness.store();
    let id = create_in(&*store, &tenant(), QUEUE).await;
    let mut holder = take(&*store).await.remove(0);
    let silent = node(&*store).await;
    store.sweep(&[(silent, 0)]).await.expect("it can be swept");
    drop(store);
    harness.reopen().await;
    let store = harness.store();
    assert_eq!(store.sweep(&[]).await.expect("it can be swept"), []);
    holder.say("still here");
    holder.commit(&*store, Then::Yield).await.expect("the lease is held");
    assert_eq!(view(&*store, id).await.state, State::Queued);
    assert_eq!(take(&*store).await.len(), 1, "it stands in its queue again");
}

/// A cancel is for the workers, whether the session is parked, queued or leased (promise P15).
pub async fn something_urgent_goes_to_the_workers(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    // Parked.
    let id = create_in(&*store, &tenant(), QUEUE).await;
    take(&*store).await.remove(0).park(&*store).await;
    deliver(&*store, id, InputBody::Interrupt).await.expect("it is taken");
    assert!(take(&*store).await.is_empty());
    let mut holder = hold(&*store, node).await;
    assert_eq!(holder.lease.session, id);
    holder.park(&*store).await;
    // Back in its queue afterwards.
    deliver(&*store, id, message("more")).await.expect("it is taken");
    assert_eq!(claim(&*store, node, 1).await.len(), 0);
    let holder = take(&*store).await.remove(0);
    // Leased: the loop learns of it when it renews, and the workers get it when it lets go.
    deliver(&*store, id, InputBody::Cancel).await.expect("it is taken");
    assert!(store.renew(&holder.lease, SPAN).await.expect("it is held").is_urgent);
    store.release(&holder.lease).await.expect("it is held");
    assert!(take(&*store).await.is_empty());
    let mut holder = hold(&*store, node).await;
    holder.take_all();
    holder.push(Body::StatusTerminated { end: End::Done });
    holder.commit(&*store, Then::Park).await.expect("the lease is held");
    assert_eq!(view(&*store, id).await.state, State::Ended);
}

/// A yield before the urgent input was consumed leaves it to the workers.
pub async fn a_yield_does_not_take_something_urgent_along(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create_in(&*store, &tenant(), QUEUE).await;
    let mut holder = take(&*store).await.remove(0);
    holder.take_all();
    deliver(&*store, id, InputBody::Interrupt).await.expect("it is taken");
    holder.say("one");
    holder.commit(&*store, Then::Yield).await.expect("the lease is held");
    assert!(take(&*store).await.is_empty());
    let mut holder = hold(&*store, node).await;
    holder.take_all();
    holder.commit(&*store, Then::Yield).await.expect("the lease is held");
    assert_eq!(claim(&*store, node, 1).await.len(), 0);
    assert_eq!(take(&*store).await.len(), 1);
}
