//! Requests that are repeated (hazards Z-17, Z-18).

use super::Harness;
use super::fixture::{
    agent, all_sessions, allow, bits, create, deliver, delivery, environment, event_id, hold, idempotency, message,
    new_session, node, tenant, view,
};
use crate::{Delivery, Idempotency, Kind, NewSession, Receipt, Remembered, Then};
use tenure_core::{AgentId, Body, Decision, InputBody, TenantId};

/// One session, however often it is asked for.
pub async fn a_repeated_create_gives_the_first_session(harness: &dyn Harness) {
    let request =
        || NewSession { idempotency: Some(idempotency("a", 1)), ..new_session(&tenant(), vec![message("go")]) };
    let first = harness.store().create(request()).await.expect("it is new");
    harness.reopen().await;
    let store = harness.store();
    let (one, two) = tokio::join!(store.create(request()), store.create(request()));
    for again in [one.expect("it is known"), two.expect("it is known")] {
        assert!(again.is_repeat && !first.is_repeat);
        assert_eq!(again.view.session, first.view.session);
    }
    assert_eq!(store.sessions(all_sessions()).await.expect("it can be read").len(), 1);
    assert_eq!(view(&*store, first.view.session.id).await.inbox_len, 1);
}

/// The same receipts, also after the inputs were consumed.
pub async fn a_repeated_delivery_gives_the_first_receipts(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let call = holder.ask();
    holder.park(&*store).await;
    let with_key =
        |key: &str, inputs: Vec<InputBody>| Delivery { idempotency: Some(idempotency(key, 1)), ..delivery(id, inputs) };
    let request = || with_key("a", vec![message("one"), allow(call)]);
    let repeated = || with_key("b", vec![allow(call)]);
    let first = store.deliver(request()).await.expect("it is taken");
    let second = store.deliver(repeated()).await.expect("it is taken");
    assert_eq!(second.receipts, [first.receipts[1].clone()]);
    let again = store.deliver(request()).await.expect("it is known");
    assert!(again.is_repeat && !first.is_repeat);
    assert_eq!(again.receipts, first.receipts);
    assert_eq!(store.inbox(id).await.expect("it can be read").len(), 2);
    let mut holder = hold(&*store, node).await;
    let inputs = holder.take_all();
    holder.push_as(inputs[1].id, Body::UserToolConfirmation { tool_use_id: call, decision: Decision::Allow });
    holder.park(&*store).await;
    let later = store.deliver(request()).await.expect("it is known");
    assert_eq!(later.receipts, first.receipts);
    assert!(store.inbox(id).await.expect("it can be read").is_empty(), "nothing is delivered twice");
    let later = store.deliver(repeated()).await.expect("it is known");
    assert!(later.is_repeat);
    match later.receipts.as_slice() {
        [Receipt::Logged(event)] => assert_eq!(event.id, inputs[1].id),
        [Receipt::Queued(input)] => assert_eq!(input.id, inputs[1].id),
        other => panic!("the first answer counts: {other:?}"),
    }
}

/// A key stands for one request.
pub async fn another_body_with_the_same_key_is_refused(harness: &dyn Harness) {
    let store = harness.store();
    let with_body =
        |body| NewSession { idempotency: Some(idempotency("a", body)), ..new_session(&tenant(), Vec::new()) };
    store.create(with_body(1)).await.expect("it is new");
    assert_eq!(store.create(with_body(2)).await.expect_err("it differs").kind, Kind::IdempotencyMismatch);
    assert_eq!(store.sessions(all_sessions()).await.expect("it can be read").len(), 1);
}

/// The same key of another tenant, principal or route is another key.
pub async fn z_18_a_key_means_nothing_to_others(harness: &dyn Harness) {
    let store = harness.store();
    let other = TenantId("other".to_owned());
    let with =
        |tenant: &TenantId, key: Idempotency| NewSession { idempotency: Some(key), ..new_session(tenant, Vec::new()) };
    let first = store.create(with(&tenant(), idempotency("a", 1))).await.expect("it is new");
    let foreign = store.create(with(&other, idempotency("a", 2))).await.expect("it is new to them");
    let scope = "POST /v1/sessions by key-2".to_owned();
    let principal =
        store.create(with(&tenant(), Idempotency { scope, ..idempotency("a", 3) })).await.expect("it is new to them");
    assert!(!foreign.is_repeat && !principal.is_repeat);
    assert_ne!(first.view.session.id, foreign.view.session.id);
}

/// Agents and environments too.
pub async fn repeated_definitions_give_the_first(harness: &dyn Harness) {
    let store = harness.store();
    let key = || Some(idempotency("a", 1));
    let first = store.put_agent(agent(&tenant(), AgentId::from_bits(bits()), 1), key()).await.expect("it is new");
    let again = store.put_agent(agent(&tenant(), AgentId::from_bits(bits()), 1), key()).await.expect("it is known");
    assert_eq!(first, again);
    let key = || Some(idempotency("b", 1));
    let first = store.put_environment(environment(&tenant(), "one"), key()).await.expect("it is new");
    let again = store.put_environment(environment(&tenant(), "two"), key()).await.expect("it is known");
    assert_eq!(first, again);
}

/// What failed may be tried again with the same key.
pub async fn a_refused_request_leaves_no_key(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, Vec::new()).await;
    let with_key = |inputs| Delivery { idempotency: Some(idempotency("a", 1)), ..delivery(id, inputs) };
    store.deliver(with_key(vec![allow(event_id())])).await.expect_err("it answers nothing");
    let taken = store.deliver(with_key(vec![message("go")])).await.expect("it is taken");
    assert!(!taken.is_repeat);
    deliver(&*store, id, message("more")).await.expect("it is taken");
    let node = node(&*store).await;
    let mut holder = hold(&*store, node).await;
    assert_eq!(holder.take_all().len(), 2);
    holder.commit(&*store, Then::Park).await.expect("the lease is held");
}

/// Whoever repeats a request is answered before anything that may have changed is looked at.
pub async fn a_key_is_known_before_its_request_is_repeated(harness: &dyn Harness) {
    let store = harness.store();
    let key = |name: &str| idempotency(name, 1);
    assert_eq!(store.remembered(&tenant(), &key("session")).await.expect("it can be read"), None);
    let new = NewSession { idempotency: Some(key("session")), ..new_session(&tenant(), Vec::new()) };
    let session = store.create(new).await.expect("it is new").view.session.id;
    let delivery = Delivery { idempotency: Some(key("inputs")), ..delivery(session, vec![message("go")]) };
    store.deliver(delivery).await.expect("it is taken");
    let agent = agent(&tenant(), AgentId::from_bits(bits()), 1);
    store.put_agent(agent.clone(), Some(key("agent"))).await.expect("it is new");
    store.archive_agent(&tenant(), agent.id).await.expect("it is there");
    let environment = environment(&tenant(), "one");
    store.put_environment(environment.clone(), Some(key("environment"))).await.expect("it is new");
    harness.reopen().await;
    let store = harness.store();
    let known = [
        ("session", Remembered::Session(session)),
        ("inputs", Remembered::Inputs),
        ("agent", Remembered::Agent(agent.id, 1)),
        ("environment", Remembered::Environment(environment.id)),
    ];
    for (name, remembered) in known {
        assert_eq!(store.remembered(&tenant(), &key(name)).await.expect("it can be read"), Some(remembered));
        let error = store.remembered(&tenant(), &idempotency(name, 2)).await.expect_err("the body differs");
        assert_eq!(error.kind, Kind::IdempotencyMismatch);
        let others = TenantId("other".to_owned());
        assert_eq!(store.remembered(&others, &key(name)).await.expect("it can be read"), None);
    }
}
