//! Tenants do not see each other.

use super::Harness;
use super::fixture::{
    agent, all_sessions, bits, catalog, create, delivery, environment, event_id, hold, message, node, tenant,
};
use crate::{CatalogQuery, Delivery, EventQuery, Kind, Notes, Order, SessionQuery};
use std::collections::BTreeMap;
use tenure_core::{AgentId, TenantId};

fn other() -> TenantId {
    TenantId("other".to_owned())
}

/// A foreign id is as good as none.
pub async fn sessions_of_others_are_not_found(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.say("secret");
    holder.park(&*store).await;
    let other = other();
    assert!(store.session(&other, id).await.expect("it can be read").is_none());
    let query = EventQuery { tenant: other.clone(), session: id, after: None, order: Order::Ascending, limit: 10 };
    assert!(store.events(query).await.expect("it can be read").is_empty());
    let query = SessionQuery { tenant: other.clone(), ..all_sessions() };
    assert!(store.sessions(query).await.expect("it can be read").is_empty());
    let text = id.to_string();
    assert!(store.sessions_by_tail(&other, &text[text.len() - 4..], 10).await.expect("it can be read").is_empty());
    let delivery = Delivery { tenant: other.clone(), ..delivery(id, vec![message("hello")]) };
    assert_eq!(store.deliver(delivery.clone()).await.expect_err("it is not theirs").kind, Kind::NotFound);
    let changes = BTreeMap::from([("a".to_owned(), Some("b".to_owned()))]);
    let notes = Some(Notes { id: event_id(), changes });
    let annotation = Delivery { inputs: Vec::new(), notes, ..delivery };
    assert_eq!(store.deliver(annotation).await.expect_err("it is not theirs").kind, Kind::NotFound);
    assert_eq!(store.delete(&other, id).await.expect_err("it is not theirs").kind, Kind::NotFound);
    assert!(store.session(&tenant(), id).await.expect("it can be read").is_some());
}

/// The same for agents and environments.
pub async fn definitions_of_others_are_not_found(harness: &dyn Harness) {
    let store = harness.store();
    let id = AgentId::from_bits(bits());
    store.put_agent(agent(&tenant(), id, 1), None).await.expect("it is new");
    let place = store.put_environment(environment(&tenant(), "theirs"), None).await.expect("it is new").id;
    let other = other();
    let query = || CatalogQuery { tenant: other.clone(), ..catalog() };
    assert!(store.agent(&other, id, None).await.expect("it can be read").is_none());
    assert!(store.agents(query()).await.expect("it can be read").is_empty());
    assert!(store.agent_versions(&other, id, query()).await.expect("it can be read").is_empty());
    assert_eq!(store.archive_agent(&other, id).await.expect_err("it is not theirs").kind, Kind::NotFound);
    assert!(store.environment(&other, place).await.expect("it can be read").is_none());
    assert!(store.environments(query()).await.expect("it can be read").is_empty());
    assert_eq!(store.delete_environment(&other, place).await.expect_err("it is not theirs").kind, Kind::NotFound);
    assert_eq!(store.put_agent(agent(&other, id, 2), None).await.expect_err("it is their first").kind, Kind::Conflict);
}
