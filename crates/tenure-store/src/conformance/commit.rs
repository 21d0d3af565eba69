//! Checkpoints.

use super::Harness;
use super::fixture::{Holder, claim, create, deliver, hold, log, message, node, view};
use crate::{Checkpoint, Kind, State, Then};
use tenure_core::{Block, Body, End};

/// One transaction: rows, head and consumed inputs.
pub async fn events_head_and_inbox_change_together(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("one"), message("two")]).await;
    let mut holder = hold(&*store, node).await;
    let first = holder.waiting.remove(0);
    holder.consumed = first.0;
    holder.push_as(first.1.id, Body::UserMessage { content: vec![Block::Text("one".to_owned())] });
    holder.say("hello");
    let checkpoint = holder.checkpoint(Then::Keep);
    let committed = store.commit(checkpoint.clone()).await.expect("the lease is held");
    assert!(committed.is_held);
    assert_eq!(committed.inbox.iter().map(|(_, input)| input.body.clone()).collect::<Vec<_>>(), [message("two")]);
    assert_eq!(log(&*store, id).await, checkpoint.events);
    let view = view(&*store, id).await;
    assert_eq!((view.session, view.inbox_len, view.state), (checkpoint.session, 1, State::Leased));
}

/// The reply was lost and the holder asks again.
pub async fn z_20_a_repeated_commit_does_nothing(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.say("once");
    let checkpoint = holder.checkpoint(Then::Keep);
    store.commit(checkpoint.clone()).await.expect("the lease is held");
    let again = store.commit(checkpoint.clone()).await.expect("it is the same commit");
    assert!(again.is_held);
    assert_eq!(again.inbox.len(), 1);
    assert_eq!(log(&*store, id).await.len(), 1);
    holder.say("and park");
    let last = holder.checkpoint(Then::Park);
    assert!(store.commit(last).await.expect("the lease is held").is_held, "the message was never consumed");
    holder.consumed = 1;
    let last = holder.checkpoint(Then::Park);
    assert!(!store.commit(last.clone()).await.expect("the lease is held").is_held);
    assert!(!store.commit(last).await.expect("it is the same commit").is_held, "also after the lease ended");
    assert_eq!(log(&*store, id).await.len(), 2);
    assert_eq!(view(&*store, id).await.state, State::Parked);
}

/// A log has no gaps, and a head is that of its own session.
pub async fn a_gap_in_the_log_is_refused(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let other = create(&*store, Vec::new()).await;
    let mut holder = hold(&*store, node).await;
    holder.say("one");
    holder.say("two");
    let good = holder.checkpoint(Then::Keep);
    let gap = Checkpoint { events: good.events[1..].to_vec(), ..good.clone() };
    let mut swapped = good.clone();
    swapped.events.swap(0, 1);
    let mut foreign = good.clone();
    foreign.session = view(&*store, other).await.session;
    let behind = Checkpoint { events: good.events[..1].to_vec(), ..good.clone() };
    for bad in [gap, swapped, foreign, behind] {
        assert_eq!(store.commit(bad).await.expect_err("it breaks a rule").kind, Kind::Invalid);
    }
    assert!(log(&*store, id).await.is_empty());
    store.commit(good).await.expect("the lease is held");
}

/// A holder that lost count is told.
pub async fn inputs_that_never_came_cannot_be_consumed(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.say("one");
    holder.consumed = 2;
    assert_eq!(holder.commit(&*store, Then::Park).await.expect_err("one came").kind, Kind::Invalid);
    assert_eq!(view(&*store, id).await.inbox_len, 1);
    assert!(log(&*store, id).await.is_empty());
}

/// Many commits at once, of which some are stale: those alone fail.
pub async fn z_21_a_stale_commit_does_not_hurt_its_neighbours(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    for _ in 0..60 {
        create(&*store, vec![message("go")]).await;
    }
    let holders: Vec<Holder> = claim(&*store, node, 60).await.into_iter().map(Holder::new).collect();
    assert_eq!(holders.len(), 60);
    let tasks: Vec<_> = holders
        .into_iter()
        .enumerate()
        .map(|(place, mut holder)| {
            let store = store.clone();
            tokio::spawn(async move {
                let is_stale = place % 3 == 0;
                if is_stale {
                    store.release(&holder.lease).await.expect("it can be released");
                }
                holder.say("one");
                holder.say("two");
                let result = holder
                    .commit(&*store, Then::Keep)
                    .await
                    .map_err(|error| error.kind)
                    .map(|committed| committed.is_held);
                (is_stale, holder.lease.session, result)
            })
        })
        .collect();
    for task in tasks {
        let (is_stale, id, result) = task.await.expect("it ends");
        assert_eq!(result, if is_stale { Err(Kind::Fenced) } else { Ok(true) });
        assert_eq!(log(&*store, id).await.len(), if is_stale { 0 } else { 2 });
    }
}

/// Whatever the holder wanted next: an ended session is held by nobody.
pub async fn the_last_event_ends_the_session(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    deliver(&*store, id, message("too late")).await.expect("it is taken");
    holder.push(Body::StatusTerminated { end: End::Failed { reason: "no such model".to_owned() } });
    let committed = holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert!(!committed.is_held && committed.inbox.is_empty());
    let seen = view(&*store, id).await;
    assert_eq!((seen.state, seen.node, seen.archived_at, seen.inbox_len), (State::Ended, None, None, 0));
    assert!(store.inbox(id).await.expect("it can be read").is_empty());
    assert!(claim(&*store, node, 10).await.is_empty());
    assert_eq!(store.due(10).await.expect("it can be asked").woken, 0);
}

/// The end in good order is the archive.
pub async fn an_archived_session_says_when(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.push(Body::StatusTerminated { end: End::Done });
    let committed = holder.commit(&*store, Then::Park).await.expect("the lease is held");
    assert_eq!(view(&*store, id).await.archived_at, Some(committed.now));
}

/// Others first.
pub async fn a_yield_goes_to_the_end_of_the_queue(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let first = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let second = create(&*store, vec![message("go")]).await;
    harness.advance(10);
    holder.say("enough for now");
    let committed = holder.commit(&*store, Then::Yield).await.expect("the lease is held");
    assert!(!committed.is_held);
    let order: Vec<_> = claim(&*store, node, 10).await.iter().map(|leased| leased.session.id).collect();
    assert_eq!(order, [second, first]);
}
