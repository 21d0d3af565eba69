//! Parking, and the inputs that come at that moment (promise P6).

use super::Harness;
use super::fixture::{Holder, claim, create, deliver, hold, message, node, view};
use crate::{State, Then};
use tokio::task::yield_now;

/// Schedules that are tried.
const SCHEDULES: u64 = 1_000;

/// Nothing waits, nothing runs.
pub async fn a_session_parks_on_an_empty_inbox(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.say("done");
    holder.park(&*store).await;
    let view = view(&*store, id).await;
    assert_eq!((view.state, view.node, view.queue_position), (State::Parked, None, None));
    assert!(claim(&*store, node, 10).await.is_empty());
}

/// A message that came after the last look and before the end of the turn.
pub async fn o_029_z_01_a_message_before_the_park_keeps_the_lease(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.take_all();
    holder.say("the final answer");
    deliver(&*store, id, message("one more thing")).await.expect("it is taken");
    let committed = holder.commit(&*store, Then::Park).await.expect("the lease is held");
    assert!(committed.is_held, "it does not park over a message");
    assert_eq!(holder.take_all().len(), 1);
    holder.say("and this");
    holder.park(&*store).await;
}

/// Deliver against park, in many schedules: each message is consumed once, and none is slept over.
pub async fn o_052_no_wake_up_is_lost_between_check_and_park(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, Vec::new()).await;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    deliver(&*store, id, message("first")).await.expect("it is taken");
    let (mut sent, mut consumed) = (1, 0);
    for _ in 0..SCHEDULES {
        let mut holder =
            Holder::new(claim(&*store, node, 1).await.pop().expect("a message waits, so that it is runnable"));
        consumed += holder.take_all().len();
        holder.say("answer");
        let (before, after) = (next() % 4, next() % 4);
        let sender = store.clone();
        let delivering = tokio::spawn(async move {
            for _ in 0..before {
                yield_now().await;
            }
            deliver(&*sender, id, message("again")).await
        });
        for _ in 0..after {
            yield_now().await;
        }
        let mut is_held = holder.commit(&*store, Then::Park).await.expect("the lease is held").is_held;
        delivering.await.expect("it ends").expect("it is taken");
        sent += 1;
        if is_held {
            // The message was there: the holder goes on with it, and then waits for another.
            consumed += holder.take_all().len();
            holder.say("answer");
            is_held = holder.commit(&*store, Then::Park).await.expect("the lease is held").is_held;
            assert!(!is_held, "nothing else was sent");
            assert_eq!(view(&*store, id).await.state, State::Parked);
            deliver(&*store, id, message("next round")).await.expect("it is taken");
            sent += 1;
        }
        assert_eq!(view(&*store, id).await.state, State::Queued, "an input that waits makes it runnable");
    }
    let mut holder = hold(&*store, node).await;
    consumed += holder.take_all().len();
    assert_eq!(consumed, sent);
}
