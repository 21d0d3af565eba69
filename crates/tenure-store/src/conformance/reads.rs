//! Reads, and the client's notes.

use super::Harness;
use super::fixture::{
    Holder, all_sessions, claim, create, create_for, delivery, event_id, hold, idempotency, log, message, new_session,
    node, tenant, view,
};
use crate::{Counts, Delivery, EventQuery, Kind, NewSession, Notes, Order, SessionQuery, State, Store, Then};
use std::collections::BTreeMap;
use tenure_core::{AgentId, Body, End, InputBody, Phase, SessionId, TenantId, Timestamp, WaitKind};

/// Pages join without a gap or a repeat.
pub async fn a_log_is_read_in_pages_both_ways(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    for number in 0..25 {
        holder.say(&number.to_string());
    }
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    let whole = log(&*store, id).await;
    assert_eq!(whole.len(), 25);
    for order in [Order::Ascending, Order::Descending] {
        let mut read = Vec::new();
        loop {
            let after = read.last().map(|event: &tenure_core::Event| event.seq);
            let query = EventQuery { tenant: tenant(), session: id, after, order, limit: 10 };
            let page = store.events(query).await.expect("it can be read");
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        if order == Order::Descending {
            read.reverse();
        }
        assert_eq!(read, whole);
    }
    let unknown = SessionId::from_bits(1);
    let query = EventQuery { tenant: tenant(), session: unknown, after: None, order: Order::Ascending, limit: 10 };
    assert!(store.events(query).await.expect("it can be read").is_empty());
}

async fn ids(store: &dyn Store, query: SessionQuery) -> Vec<SessionId> {
    store.sessions(query).await.expect("it can be read").into_iter().map(|view| view.session.id).collect()
}

/// By creation.
pub async fn sessions_are_listed_in_pages_both_ways(harness: &dyn Harness) {
    let store = harness.store();
    let mut created = Vec::new();
    for _ in 0..7 {
        created.push(create(&*store, Vec::new()).await);
    }
    for order in [Order::Ascending, Order::Descending] {
        let mut read = Vec::new();
        loop {
            let page =
                ids(&*store, SessionQuery { order, after: read.last().copied(), limit: 3, ..all_sessions() }).await;
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        if order == Order::Descending {
            read.reverse();
        }
        assert_eq!(read, created);
    }
}

/// Queued and working come from the store, the other phases from the head.
pub async fn sessions_are_found_by_phase(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let idle = create(&*store, Vec::new()).await;
    let waiting = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.wait(WaitKind::Timer, Some(Timestamp(i64::MAX)));
    holder.park(&*store).await;
    let ended = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.push(Body::StatusTerminated { end: End::Failed { reason: String::new() } });
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    let working = create(&*store, vec![message("go")]).await;
    hold(&*store, node).await;
    let queued = create(&*store, vec![message("go")]).await;
    let by = async |phases: &[Phase]| ids(&*store, SessionQuery { phases: phases.to_vec(), ..all_sessions() }).await;
    assert_eq!(by(&[Phase::Idle]).await, [idle]);
    assert_eq!(by(&[Phase::Waiting]).await, [waiting]);
    assert_eq!(by(&[Phase::Failed]).await, [ended]);
    assert_eq!(by(&[Phase::Working]).await, [working]);
    assert_eq!(by(&[Phase::Queued]).await, [queued]);
    assert_eq!(by(&[Phase::Queued, Phase::Idle, Phase::Failed]).await, [idle, ended, queued]);
    assert_eq!(by(&[Phase::NeedsYou]).await, []);
    let newest = SessionQuery { phases: vec![Phase::Idle], order: Order::Descending, ..all_sessions() };
    assert_eq!(ids(&*store, newest).await, [idle]);
}

/// From, inclusive, and before, exclusive.
pub async fn sessions_are_found_by_agent_and_time(harness: &dyn Harness) {
    let store = harness.store();
    let mut made = Vec::new();
    for (agent, at) in [(1, 100), (2, 200), (1, 300)] {
        let mut new: NewSession = new_session(&tenant(), Vec::new());
        new.session.agent.id = AgentId::from_bits(agent);
        new.session.created_at = Timestamp(at);
        made.push(new.session.id);
        store.create(new).await.expect("it is new");
    }
    let agent = Some(AgentId::from_bits(1));
    assert_eq!(ids(&*store, SessionQuery { agent, ..all_sessions() }).await, [made[0], made[2]]);
    let (created_from, created_before) = (Some(Timestamp(200)), Some(Timestamp(300)));
    assert_eq!(ids(&*store, SessionQuery { created_from, created_before, ..all_sessions() }).await, [made[1]]);
}

/// As people type them.
pub async fn sessions_are_found_by_their_tail(harness: &dyn Harness) {
    let store = harness.store();
    let mut made = Vec::new();
    for _ in 0..20 {
        made.push(create(&*store, Vec::new()).await);
    }
    for id in &made {
        let text = id.to_string();
        for length in [8, 20, text.len()] {
            let tail = &text[text.len() - length..];
            assert_eq!(store.sessions_by_tail(&tenant(), tail, 2).await.expect("it can be read"), [*id], "{tail}");
        }
    }
    let all = store.sessions_by_tail(&tenant(), "", 3).await.expect("it can be read");
    assert_eq!(all, [made[19], made[18], made[17]], "newest first");
    for nonsense in ["uuuu", "not an id", "%", "_"] {
        assert_eq!(store.sessions_by_tail(&tenant(), nonsense, 3).await.expect("it can be read"), [], "{nonsense}");
    }
}

/// Each session is counted in one state.
pub async fn counts_follow_every_state(harness: &dyn Harness) {
    let store = harness.store();
    let counts = async || {
        let counts = store.counts().await.expect("it can be read");
        (counts.queued, counts.leased, counts.parked, counts.ended)
    };
    assert_eq!(store.counts().await.expect("it can be read"), Counts::default());
    let node = node(&*store).await;
    let parked = create(&*store, Vec::new()).await;
    for _ in 0..3 {
        create(&*store, vec![message("go")]).await;
    }
    assert_eq!(counts().await, (3, 0, 1, 0));
    let mut leased = claim(&*store, node, 2).await;
    let mut holder = Holder::new(leased.remove(0));
    holder.push(Body::StatusTerminated { end: End::Done });
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    let ended = holder.lease.session;
    assert_eq!(counts().await, (1, 1, 1, 1));
    store.delete(&tenant(), parked).await.expect("it is parked");
    store.delete(&tenant(), ended).await.expect("it has ended");
    assert_eq!(counts().await, (1, 1, 0, 0));
}

/// A board shows how many sessions are in which phase, and nothing of others.
pub async fn phases_are_counted_by_tenant(harness: &dyn Harness) {
    let store = harness.store();
    let phases = async || {
        let phases = store.phases(&tenant()).await.expect("it can be read");
        phases.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(phases().await, []);
    let node = node(&*store).await;
    create(&*store, Vec::new()).await;
    for _ in 0..3 {
        create(&*store, vec![message("go")]).await;
    }
    let words =
        |list: &[(&str, u64)]| list.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect::<Vec<_>>();
    assert_eq!(phases().await, words(&[("idle", 1), ("queued", 3)]));
    let mut leased = claim(&*store, node, 2).await;
    let mut holder = Holder::new(leased.remove(0));
    holder.push(Body::StatusTerminated { end: End::Done });
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(phases().await, words(&[("done", 1), ("idle", 1), ("queued", 1), ("working", 1)]));
    let other = store.phases(&TenantId("somebody-else".into())).await.expect("it can be read");
    assert_eq!(other.values().sum::<u64>(), 0);
}

/// Whoever watches a queue wants to know how old it is, whichever tenant waits.
pub async fn counts_say_since_when_the_oldest_waits(harness: &dyn Harness) {
    let store = harness.store();
    let since = async || store.counts().await.expect("it can be read").queued_since;
    let node = node(&*store).await;
    let mut queued_at = Vec::new();
    for tenant in ["c", "a", "b"].map(|name| TenantId(name.to_owned())) {
        let id = create_for(&*store, &tenant, vec![message("go")]).await;
        let view = store.session(&tenant, id).await.expect("it can be read").expect("it exists");
        queued_at.push(view.state_since);
        harness.advance(10);
    }
    assert_eq!(since().await, Some(queued_at[0]));
    let mut leased = Vec::new();
    for _ in 0..3 {
        leased.extend(claim(&*store, node, 1).await);
        let left = (0..3).filter(|place| leased.iter().all(|leased| leased.queued_at != queued_at[*place]));
        assert_eq!(since().await, left.map(|place| queued_at[place]).min());
    }
    assert_eq!(since().await, None);
}

/// For those who wait.
pub async fn the_place_in_the_queue_is_known(harness: &dyn Harness) {
    let store = harness.store();
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(create(&*store, vec![message("go")]).await);
        harness.advance(10);
    }
    for (place, id) in (0..).zip(made) {
        assert_eq!(view(&*store, id).await.queue_position, Some(place));
    }
}

/// Keys that are not named stay.
pub async fn notes_change_key_by_key(harness: &dyn Harness) {
    let store = harness.store();
    let notes = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let new = NewSession { metadata: notes(&[("a", "1"), ("b", "2")]), ..new_session(&tenant(), Vec::new()) };
    let id = store.create(new).await.expect("it is new").view.session.id;
    let changes = BTreeMap::from([("a".to_owned(), None), ("c".to_owned(), Some("3\0".to_owned()))]);
    let change = || Some(Notes { id: event_id(), changes: changes.clone() });
    let after = notes(&[("b", "2"), ("c", "3\0")]);
    let first = Delivery { notes: change(), idempotency: Some(idempotency("a", 1)), ..delivery(id, Vec::new()) };
    store.deliver(first.clone()).await.expect("it exists");
    assert_eq!(view(&*store, id).await.metadata, after, "at once");
    // What changes nothing is not told.
    store.deliver(Delivery { notes: change(), ..delivery(id, Vec::new()) }).await.expect("it exists");
    let back = BTreeMap::from([("c".to_owned(), Some("4".to_owned()))]);
    let back = Notes { id: event_id(), changes: back };
    store.deliver(Delivery { notes: Some(back), ..delivery(id, vec![message("go")]) }).await.expect("it exists");
    assert!(store.deliver(first).await.expect("it is known").is_repeat);
    let newest = notes(&[("b", "2"), ("c", "4")]);
    assert_eq!(view(&*store, id).await.metadata, newest, "a repeated request does not take back what came later");
    let inbox: Vec<_> =
        store.inbox(id).await.expect("it can be read").into_iter().map(|(_, input)| input.body).collect();
    assert_eq!(inbox, [InputBody::Metadata(after), message("go"), InputBody::Metadata(newest)]);
    assert_eq!(view(&*store, id).await.state, State::Queued, "a worker is to tell of it");
}

/// The log of a session that has ended is closed, its notes are not.
pub async fn notes_of_an_ended_session_change_silently(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.push(Body::StatusTerminated { end: End::Done });
    holder.commit(&*store, Then::Park).await.expect("the lease is held");
    let changes = BTreeMap::from([("a".to_owned(), Some("1".to_owned()))]);
    let notes = Some(Notes { id: event_id(), changes });
    store.deliver(Delivery { notes, ..delivery(id, Vec::new()) }).await.expect("it exists");
    let view = view(&*store, id).await;
    assert_eq!((view.metadata["a"].as_str(), view.state, view.inbox_len), ("1", State::Ended, 0));
}

/// With all that belongs to it; one that is being worked on is refused.
pub async fn a_deleted_session_is_gone(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    for _ in 0..3 {
        for _ in 0..500 {
            holder.say("something");
        }
        holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    }
    assert_eq!(store.delete(&tenant(), id).await.expect_err("it is leased").kind, Kind::Conflict);
    assert_eq!(view(&*store, id).await.state, State::Leased);
    holder.park(&*store).await;
    store.delete(&tenant(), id).await.expect("it is parked");
    assert!(store.session(&tenant(), id).await.expect("it can be read").is_none());
    assert!(log(&*store, id).await.is_empty());
    assert!(store.inbox(id).await.expect("it can be read").is_empty());
    assert_eq!(store.delete(&tenant(), id).await.expect_err("it is gone").kind, Kind::NotFound);
}
