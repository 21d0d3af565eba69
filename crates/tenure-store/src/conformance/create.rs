//! Sessions begin.

use super::Harness;
use super::fixture::{all_sessions, allow, create, event_id, log, message, new_session, tenant, view};
use crate::{Kind, State};
use tenure_core::Phase;

/// Without inputs there is nothing to do.
pub async fn a_session_begins_parked_with_an_empty_log(harness: &dyn Harness) {
    let store = harness.store();
    let new = new_session(&tenant(), Vec::new());
    let created = store.create(new.clone()).await.expect("it is new");
    assert!(!created.is_repeat);
    assert_eq!((created.view.state, created.view.epoch, created.view.node), (State::Parked, 0, None));
    assert_eq!(view(&*store, new.session.id).await.session, new.session);
    assert_eq!(created.view.session.phase(), Phase::Idle);
    assert!(log(&*store, new.session.id).await.is_empty());
}

/// The first message and the session are one transaction.
pub async fn a_session_with_inputs_begins_queued(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, vec![message("one"), message("two")]).await;
    let view = view(&*store, id).await;
    assert_eq!((view.state, view.inbox_len, view.queue_position), (State::Queued, 2, Some(0)));
    let bodies: Vec<_> =
        store.inbox(id).await.expect("it can be read").into_iter().map(|(_, input)| input.body).collect();
    assert_eq!(bodies, [message("one"), message("two")]);
}

/// An id names one session for ever.
pub async fn an_id_is_taken_once(harness: &dyn Harness) {
    let store = harness.store();
    let new = new_session(&tenant(), Vec::new());
    store.create(new.clone()).await.expect("it is new");
    assert_eq!(store.create(new).await.expect_err("the id is taken").kind, Kind::Conflict);
}

/// All or nothing.
pub async fn a_refused_input_refuses_the_session(harness: &dyn Harness) {
    let store = harness.store();
    let new = new_session(&tenant(), vec![message("one"), allow(event_id())]);
    assert_eq!(store.create(new.clone()).await.expect_err("it answers nothing").kind, Kind::NotFound);
    assert!(store.session(&tenant(), new.session.id).await.expect("it can be read").is_none());
    assert!(store.sessions(all_sessions()).await.expect("it can be read").is_empty());
    assert!(store.inbox(new.session.id).await.expect("it can be read").is_empty());
}
