//! Sessions that wait for a time.

use super::Harness;
use super::fixture::{create, hold, message, node, view};
use crate::State;
use tenure_core::{Body, Timestamp, Update, WaitKind};

const DAY: u64 = 24 * 3_600 * 1_000;

/// 30 and 400 days, and for ever; with restarts in between.
pub async fn o_042_timers_fire_once_and_not_early_over_restarts(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let start = store.now().await.expect("the clock can be read");
    let mut ids = Vec::new();
    for until in [start.after(30 * DAY), start.after(400 * DAY), Timestamp(i64::MAX)] {
        ids.push(create(&*store, vec![message("go")]).await);
        let mut holder = hold(&*store, node).await;
        holder.wait(WaitKind::Timer, Some(until));
        holder.park(&*store).await;
    }
    let due = store.due(10).await.expect("it can be asked");
    assert_eq!((due.woken, due.next), (0, Some(start.after(30 * DAY))));
    for (days, woken) in [(29, 0), (1, 1), (1, 0), (368, 0), (1, 1), (1, 0)] {
        harness.advance(days * DAY);
        // A real clock ticks meanwhile; a minute is far from a day.
        harness.advance(60_000);
        harness.reopen().await;
        let store = harness.store();
        assert_eq!(store.due(10).await.expect("it can be asked").woken, woken, "after {days} more days");
        assert_eq!(store.due(10).await.expect("it can be asked").woken, 0, "once");
    }
    let store = harness.store();
    let mut states = Vec::new();
    for id in ids {
        states.push(view(&*store, id).await.state);
    }
    assert_eq!(states, [State::Queued, State::Queued, State::Parked]);
}

/// A short look wakes who waited longest.
pub async fn due_takes_the_earliest_first(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let start = store.now().await.expect("the clock can be read");
    let mut ids = Vec::new();
    for hours in [3, 1, 2] {
        ids.push(create(&*store, vec![message("go")]).await);
        let mut holder = hold(&*store, node).await;
        holder.wait(WaitKind::Timer, Some(start.after(hours * 3_600_000)));
        holder.park(&*store).await;
    }
    harness.advance(DAY);
    let due = store.due(2).await.expect("it can be asked");
    assert_eq!((due.woken, due.next), (2, Some(start.after(3 * 3_600_000))));
    let queued: Vec<State> = [view(&*store, ids[0]).await, view(&*store, ids[1]).await, view(&*store, ids[2]).await]
        .map(|view| view.state)
        .to_vec();
    assert_eq!(queued, [State::Parked, State::Queued, State::Queued]);
    let due = store.due(2).await.expect("it can be asked");
    assert_eq!((due.woken, due.next), (1, None));
}

/// A held session stays held.
pub async fn a_paused_session_has_no_timer(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let start = store.now().await.expect("the clock can be read");
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.wait(WaitKind::Timer, Some(start.after(1_000)));
    holder.push(Body::Updated { update: Update::Paused });
    holder.park(&*store).await;
    harness.advance(DAY);
    let due = store.due(10).await.expect("it can be asked");
    assert_eq!((due.woken, due.next), (0, None));
    assert_eq!(view(&*store, id).await.state, State::Parked);
}

/// Also over restarts.
pub async fn z_24_time_does_not_go_back(harness: &dyn Harness) {
    let mut newest = Timestamp(0);
    for _ in 0..3 {
        let store = harness.store();
        let created = view(&*store, create(&*store, Vec::new()).await).await.updated_at;
        let now = store.now().await.expect("the clock can be read");
        assert!(created >= newest && now >= created);
        newest = now;
        harness.advance(5_000);
        harness.reopen().await;
    }
}
