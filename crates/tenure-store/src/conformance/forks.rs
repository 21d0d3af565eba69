//! Forks share rows of a log: nothing is copied, and nothing that is shared goes away.

use super::Harness;
use super::fixture::{
    Holder, all_sessions, allow, bits, create, deliver, event_id, hold, idempotency, lease_id, log, message,
    new_session, node, session_id, tenant, view,
};
use crate::{EventQuery, Kind, MAX_COMMIT_EVENTS, NewSession, Order, Receipt, Removed, State, Store, Then};
use std::collections::BTreeMap;
use tenure_core::{
    Body, Event, EventId, InputBody, Limits, NewFork, Outcome, Session, SessionId, TenantId, Timestamp, apply, fork,
};

/// A fork of a session of the suite at an event, ready to be added.
async fn fork_of(store: &dyn Store, parent: SessionId, seq: u64) -> NewSession {
    let head = view(store, parent).await.session;
    let mut prefix = Session::new(parent, tenant(), head.agent, head.environment, head.created_at);
    for event in log(store, parent).await.iter().filter(|event| event.seq <= seq) {
        apply(&mut prefix, event).expect("a log is a log");
    }
    let new = NewFork {
        id: session_id().on_shard(parent.shard()),
        created_at: Timestamp(1_700_000_000_000),
        title: "another way".to_owned(),
        limits: Limits::default(),
        snapshot: None,
        told: None,
    };
    let (mut session, drafts) = fork(prefix, new);
    let mut events = Vec::new();
    for draft in drafts {
        let (seq, at) = (session.last_seq + 1, Timestamp(1_700_000_000_001));
        let event = Event { id: event_id(), seq, at, step: draft.step, body: draft.body };
        apply(&mut session, &event).expect("the event can follow");
        events.push(event);
    }
    NewSession { session, events, metadata: BTreeMap::new(), inputs: Vec::new(), idempotency: None }
}

async fn add_fork(store: &dyn Store, parent: SessionId, seq: u64) -> SessionId {
    let new = fork_of(store, parent, seq).await;
    store.create(new).await.expect("a fork is taken").view.session.id
}

/// A session whose log has so many rows, parked.
async fn with_rows(store: &dyn Store, rows: usize) -> SessionId {
    let id = create(store, vec![message("go")]).await;
    let node = node(store).await;
    let mut holder = hold(store, node).await;
    for row in 0..rows {
        holder.say(&format!("row {row}"));
        if row % MAX_COMMIT_EVENTS == MAX_COMMIT_EVENTS - 1 {
            holder.commit(store, Then::Keep).await.expect("the lease is held");
        }
    }
    holder.park(store).await;
    store.retire(node).await.expect("it may go");
    id
}

async fn page(store: &dyn Store, session: SessionId, after: Option<u64>, order: Order, limit: usize) -> Vec<u64> {
    let rows = store.events(EventQuery { tenant: tenant(), session, after, order, limit }).await;
    rows.expect("the store can be read").iter().map(|event| event.seq).collect()
}

/// Shared events keep id and seq; each goes on alone; a restart changes nothing.
pub async fn a_fork_shares_the_rows_up_to_where_it_left(harness: &dyn Harness) {
    let store = harness.store();
    let parent = with_rows(&*store, 8).await;
    let before = log(&*store, parent).await;
    let id = add_fork(&*store, parent, 5).await;
    let own = view(&*store, id).await;
    assert_eq!(
        (own.state, own.session.forked.map(|from| (from.session, from.seq))),
        (State::Parked, Some((parent, 5)))
    );
    drop(store);
    harness.reopen().await;
    let store = harness.store();
    let rows = log(&*store, id).await;
    assert_eq!(rows[..5], before[..5], "the shared ones");
    assert!(matches!(rows[5].body, Body::Forked { .. }), "{:?}", rows[5]);
    assert_eq!(rows.last().map(|row| row.seq), Some(own.session.last_seq));
    assert_eq!(log(&*store, parent).await, before, "the parent does not change");

    deliver(&*store, id, message("this way")).await.expect("a fork takes messages");
    let worker = node(&*store).await;
    let mut holder = hold(&*store, worker).await;
    assert_eq!(holder.lease.session, id);
    holder.say("on its own way");
    holder.park(&*store).await;
    assert_eq!(log(&*store, parent).await, before, "nor when the fork goes on");
    let rows = log(&*store, id).await;
    let seqs: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(seqs, (1..=rows.len() as u64).collect::<Vec<_>>());
}

/// Pages in both directions cross from the fork's own rows to those of its ancestors.
pub async fn a_fork_of_a_fork_is_read_in_pages_both_ways(harness: &dyn Harness) {
    let store = harness.store();
    let first = with_rows(&*store, 6).await;
    let second = add_fork(&*store, first, 4).await;
    let third = add_fork(&*store, second, 5).await;
    let last = view(&*store, third).await.session.last_seq;
    let all: Vec<u64> = (1..=last).collect();
    for limit in 1..=all.len() + 1 {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        loop {
            let rows = page(&*store, third, up.last().copied(), Order::Ascending, limit).await;
            if rows.is_empty() {
                break;
            }
            up.extend(rows);
        }
        assert_eq!(up, all, "pages of {limit}");
        loop {
            let rows = page(&*store, third, down.last().copied(), Order::Descending, limit).await;
            if rows.is_empty() {
                break;
            }
            down.extend(rows);
        }
        down.reverse();
        assert_eq!(down, all, "pages of {limit} back");
    }
    // One of its own rows is left out, so that it needs none of the second session's.
    let beside = add_fork(&*store, second, 2).await;
    assert_eq!(log(&*store, beside).await[..2], log(&*store, first).await[..2]);
}

/// Rows stay while somebody shares them, whoever is removed first (hazard Z-13).
pub async fn z_13_shared_rows_stay_until_the_last_fork_is_removed(harness: &dyn Harness) {
    let store = harness.store();
    let parent = with_rows(&*store, 2_500).await;
    let kept = log(&*store, parent).await;
    let child = add_fork(&*store, parent, 900).await;
    let grandchild = add_fork(&*store, child, 901).await;
    let remove = async |id: SessionId| store.delete(&tenant(), id).await.expect("nobody works on it");
    assert_eq!(remove(parent).await, Removed { kept_up_to: 900 });
    assert!(store.session(&tenant(), parent).await.expect("it can be read").is_none());
    drop(store);
    harness.reopen().await;
    let store = harness.store();
    let remove = async |id: SessionId| store.delete(&tenant(), id).await.expect("nobody works on it");
    assert_eq!(log(&*store, child).await[..900], kept[..900]);
    assert_eq!(remove(child).await, Removed { kept_up_to: 901 });
    let rows = log(&*store, grandchild).await;
    assert_eq!(rows[..900], kept[..900]);
    assert_eq!(rows[900].seq, 901, "the row that the child had");
    assert_eq!(remove(grandchild).await, Removed::default());
    let refused = store.create(NewSession { inputs: Vec::new(), ..stale_fork(parent) }).await;
    assert_eq!(refused.expect_err("there is no parent").kind, Kind::NotFound);
}

/// A fork of a session that may be gone.
fn stale_fork(parent: SessionId) -> NewSession {
    let mut new = new_session(&tenant(), Vec::new());
    new.session.id = new.session.id.on_shard(parent.shard());
    let told = NewFork {
        id: new.session.id,
        created_at: new.session.created_at,
        title: String::new(),
        limits: Limits::default(),
        snapshot: None,
        told: None,
    };
    let prefix = Session { id: parent, ..new.session.clone() };
    let (mut session, drafts) = fork(prefix, told);
    for (seq, draft) in (1..).zip(drafts) {
        let event = Event { id: EventId::from_bits(bits()), seq, at: Timestamp(1), step: 0, body: draft.body };
        apply(&mut session, &event).expect("the event can follow");
        new.events.push(event);
    }
    new.session = session;
    new
}

/// An open call is answered in the fork, an answered one was answered for it too; the parent's stays open.
pub async fn z_10_open_calls_stay_with_the_parent(harness: &dyn Harness) {
    let store = harness.store();
    let parent = create(&*store, vec![message("go")]).await;
    let worker = node(&*store).await;
    let mut holder: Holder = hold(&*store, worker).await;
    let answered = holder.ask();
    holder.push(Body::AgentToolResult { tool_use_id: answered, content: Vec::new(), outcome: Outcome::Done });
    let open = holder.ask();
    holder.park(&*store).await;
    let id = add_fork(&*store, parent, view(&*store, parent).await.session.last_seq).await;
    let head = view(&*store, id).await.session;
    assert!(head.calls.is_empty() && head.wait.is_none(), "{head:?}");
    let rows = log(&*store, id).await;
    let result = rows.iter().find(|row| row.body.answers() == Some(open)).expect("it has a result");
    assert!(matches!(result.body, Body::AgentToolResult { outcome: Outcome::NotRun, .. }), "{result:?}");
    for (call, seq) in [(open, result.seq), (answered, 2)] {
        let delivered = deliver(&*store, id, allow(call)).await.expect("a late answer is no fault");
        let [Receipt::Logged(event)] = delivered.receipts.as_slice() else { panic!("{delivered:?}") };
        assert_eq!(event.seq, seq);
    }
    let delivered = deliver(&*store, parent, allow(open)).await.expect("the parent waits for it");
    assert!(matches!(delivered.receipts.as_slice(), [Receipt::Queued(_)]), "{delivered:?}");
    assert_eq!(view(&*store, id).await.state, State::Parked, "the fork hears nothing of it");
}

/// Only what is there can be forked, by whom it belongs to, and once for a key.
pub async fn a_fork_is_checked_and_made_once(harness: &dyn Harness) {
    let store = harness.store();
    let parent = with_rows(&*store, 3).await;
    let mut beyond = fork_of(&*store, parent, 3).await;
    beyond.session.forked = beyond.session.forked.map(|from| tenure_core::ForkedFrom { seq: 4, ..from });
    beyond.session.last_seq += 1;
    beyond.events.iter_mut().for_each(|event| event.seq += 1);
    assert_eq!(store.create(beyond).await.expect_err("the parent has no such event").kind, Kind::Invalid);
    let mut gap = fork_of(&*store, parent, 3).await;
    gap.events.remove(0);
    assert_eq!(store.create(gap).await.expect_err("rows are missing").kind, Kind::Invalid);
    let mut far = fork_of(&*store, parent, 3).await;
    far.session.id = far.session.id.on_shard(tenure_core::Shard(parent.shard().0.wrapping_add(1)));
    assert_eq!(store.create(far).await.expect_err("it is on another shard").kind, Kind::Invalid);
    let mut foreign = fork_of(&*store, parent, 3).await;
    foreign.session.tenant = TenantId("other".to_owned());
    assert_eq!(store.create(foreign).await.expect_err("it belongs to somebody else").kind, Kind::NotFound);
    let mut unfounded = new_session(&tenant(), Vec::new());
    unfounded.events = fork_of(&*store, parent, 3).await.events;
    assert_eq!(store.create(unfounded).await.expect_err("it is no fork").kind, Kind::Invalid);
    assert_eq!(store.sessions(all_sessions()).await.expect("it can be read").len(), 1, "nothing was added");

    let key = Some(idempotency(&lease_id().to_string(), 1));
    let new = NewSession { inputs: vec![(event_id(), message("on"))], ..fork_of(&*store, parent, 3).await };
    let first = store.create(NewSession { idempotency: key.clone(), ..new }).await.expect("a fork is taken");
    let again = fork_of(&*store, parent, 3).await;
    let again = store.create(NewSession { idempotency: key, ..again }).await.expect("a repeat is no fault");
    assert_eq!((again.view.session.id, again.is_repeat), (first.view.session.id, true));
    assert_eq!(first.view.state, State::Queued, "its message makes it runnable");
    let worker = node(&*store).await;
    let mut holder = hold(&*store, worker).await;
    assert!(matches!(holder.take_all().as_slice(), [input] if matches!(input.body, InputBody::Message { .. })));
    holder.commit(&*store, Then::Park).await.expect("the lease is held");
}
