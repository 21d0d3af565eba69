//! Agents and environments.

use super::Harness;
use super::fixture::{agent, bits, catalog, create_for, environment, hold, message, new_session, node, tenant};
use crate::{CatalogQuery, Kind, Then};
use tenure_core::{AgentId, Body, End, EnvironmentId, TenantId};

/// The newest plus one, and old ones stay.
pub async fn versions_of_an_agent_follow_each_other(harness: &dyn Harness) {
    let store = harness.store();
    let id = AgentId::from_bits(bits());
    let version = |version| agent(&tenant(), id, version);
    assert_eq!(store.put_agent(version(2), None).await.expect_err("it begins at 1").kind, Kind::Conflict);
    for number in 1..=3 {
        assert_eq!(store.put_agent(version(number), None).await.expect("it follows"), version(number));
    }
    assert_eq!(store.put_agent(version(3), None).await.expect_err("it is there").kind, Kind::Conflict);
    assert_eq!(store.agent(&tenant(), id, None).await.expect("it can be read"), Some(version(3)));
    assert_eq!(store.agent(&tenant(), id, Some(1)).await.expect("it can be read"), Some(version(1)));
    assert_eq!(store.agent(&tenant(), id, Some(4)).await.expect("it can be read"), None);
    let versions = store.agent_versions(&tenant(), id, CatalogQuery { below: Some(3), limit: 5, ..catalog() }).await;
    assert_eq!(versions.expect("it can be read"), [version(2), version(1)]);
    let other = AgentId::from_bits(bits());
    store.put_agent(agent(&tenant(), other, 1), None).await.expect("it is new");
    let listed = store.agents(catalog()).await.expect("it can be read");
    assert_eq!(listed, [agent(&tenant(), other, 1), version(3)]);
    let second =
        store.agents(CatalogQuery { below: Some(other.bits()), limit: 1, ..catalog() }).await.expect("it can be read");
    assert_eq!(second, [version(3)]);
}

/// It stays readable.
pub async fn an_archived_agent_leaves_the_list(harness: &dyn Harness) {
    let store = harness.store();
    let id = AgentId::from_bits(bits());
    for number in 1..=2 {
        store.put_agent(agent(&tenant(), id, number), None).await.expect("it follows");
    }
    let archived = store.archive_agent(&tenant(), id).await.expect("it exists");
    assert!(archived.archived_at.is_some() && archived.version == 2);
    harness.advance(1_000);
    assert_eq!(store.archive_agent(&tenant(), id).await.expect("it exists"), archived, "once");
    assert!(store.agents(catalog()).await.expect("it can be read").is_empty());
    let all = store.agents(CatalogQuery { with_archived: true, ..catalog() }).await.expect("it can be read");
    assert_eq!(all, [archived]);
    assert_eq!(store.put_agent(agent(&tenant(), id, 3), None).await.expect_err("it is archived").kind, Kind::Conflict);
    let unknown = AgentId::from_bits(bits());
    assert_eq!(store.archive_agent(&tenant(), unknown).await.expect_err("there is none").kind, Kind::NotFound);
}

/// One that a living session uses stays.
pub async fn environments_are_replaced_and_removed(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let mut first = environment(&tenant(), "one");
    first.id = EnvironmentId::from_bits(9);
    let second = environment(&tenant(), "two");
    store.put_environment(first.clone(), None).await.expect("it is new");
    store.put_environment(second.clone(), None).await.expect("it is new");
    first.name = "uno".to_owned();
    store.put_environment(first.clone(), None).await.expect("it is replaced");
    assert_eq!(store.environment(&tenant(), first.id).await.expect("it can be read"), Some(first.clone()));
    assert_eq!(store.environments(catalog()).await.expect("it can be read"), [second.clone(), first.clone()]);
    // A session of somebody else does not count.
    create_for(&*store, &TenantId("other".to_owned()), Vec::new()).await;
    store.create(new_session(&tenant(), vec![message("go")])).await.expect("it is new");
    assert_eq!(store.delete_environment(&tenant(), first.id).await.expect_err("it is used").kind, Kind::Conflict);
    let mut holder = hold(&*store, node).await;
    holder.push(Body::StatusTerminated { end: End::Done });
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    store.delete_environment(&tenant(), first.id).await.expect("nobody uses it");
    assert_eq!(store.environments(catalog()).await.expect("it can be read"), [second]);
    assert_eq!(store.delete_environment(&tenant(), first.id).await.expect_err("it is gone").kind, Kind::NotFound);
}
