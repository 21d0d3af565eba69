//! Nodes come and go.

use super::Harness;
use super::fixture::{claim, create, hold, message, node, view};
use crate::{Kind, NewNode, State};

/// A restart is a new node.
pub async fn z_04_an_id_is_used_once_and_death_is_final(harness: &dyn Harness) {
    let store = harness.store();
    let id = node(&*store).await;
    let again = || NewNode { id, address: "127.0.0.1:2".to_owned(), label: "again".to_owned() };
    assert_eq!(store.register(again()).await.expect_err("it lives").kind, Kind::Conflict);
    store.sweep(&[(id, 0)]).await.expect("it can be swept");
    assert_eq!(store.register(again()).await.expect_err("dead is final").kind, Kind::Conflict);
    assert!(store.nodes().await.expect("it can be read")[0].is_dead);
}

/// Whatever it still held runs elsewhere, uncounted.
pub async fn a_retired_node_leaves_nothing_behind(harness: &dyn Harness) {
    let store = harness.store();
    let first = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    hold(&*store, first).await;
    store.retire(first).await.expect("it is registered");
    assert_eq!(view(&*store, id).await.state, State::Queued);
    assert!(store.nodes().await.expect("it can be read")[0].is_dead);
    let second = node(&*store).await;
    assert_eq!(claim(&*store, second, 1).await[0].claims, 1);
    let unknown = tenure_core::NodeId::from_bits(1);
    assert_eq!(store.retire(unknown).await.expect_err("it is unknown").kind, Kind::NotFound);
}
