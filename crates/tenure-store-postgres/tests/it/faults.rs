//! Connections that break in the middle of a COMMIT: done or not, each write counts once.

use crate::proxy::Proxy;
use crate::server::server;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_store::conformance::fixture::{
    Holder, claim, create, deliver, event_id, lease_id, log, message, new_session, node, tenant, view,
};
use tenure_store::*;
use tenure_store_postgres::{Options, Postgres};

struct House {
    proxy: Proxy,
    store: Arc<Postgres>,
}

async fn house() -> Option<House> {
    let server = server()?;
    let database = server.database().await;
    let proxy = Proxy::start(server).await;
    let name = database.rsplit('/').next().unwrap();
    let mut options = Options::parse(&format!("postgres://tenure@127.0.0.1:{}/{name}", proxy.port)).unwrap();
    options.notifies = false;
    Some(House { proxy, store: Postgres::open(options).await.unwrap() })
}

/// Breaks each of the next writes once, before and after it is done.
async fn broken(house: &House, kind: &str) {
    match kind {
        "request" => house.proxy.lose_requests(1),
        "reply" => house.proxy.lose_replies(1),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn z_20_a_commit_whose_reply_is_lost_is_applied_once() {
    for kind in ["request", "reply"] {
        let Some(house) = house().await else { return };
        let store = &*house.store;
        let node = node(store).await;
        let id = create(store, vec![message("go")]).await;
        let mut holder = Holder::new(claim(store, node, 1).await.remove(0));
        holder.take_all();
        holder.say("one");
        broken(&house, kind).await;
        let committed = holder.commit(store, Then::Keep).await.unwrap();
        assert!(committed.is_held && house.proxy.is_done(), "{kind}");
        holder.say("two");
        broken(&house, kind).await;
        let committed = holder.commit(store, Then::Park).await.unwrap();
        assert!(!committed.is_held && house.proxy.is_done(), "{kind}");
        assert_eq!(log(store, id).await.len(), 2, "{kind}");
        assert_eq!(view(store, id).await.state, State::Parked, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn z_20_an_input_whose_acknowledgement_is_lost_arrives_once() {
    for kind in ["request", "reply"] {
        let Some(house) = house().await else { return };
        let store = &*house.store;
        let id = create(store, Vec::new()).await;
        broken(&house, kind).await;
        deliver(store, id, message("once")).await.unwrap();
        assert!(house.proxy.is_done(), "{kind}");
        assert_eq!(store.inbox(id).await.unwrap().len(), 1, "{kind}");
        assert_eq!(view(store, id).await.inbox_len, 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn z_03_a_claim_whose_reply_is_lost_gives_its_leases() {
    for kind in ["request", "reply"] {
        let Some(house) = house().await else { return };
        let store = &*house.store;
        let node = node(store).await;
        for _ in 0..3 {
            create(store, vec![message("go")]).await;
        }
        broken(&house, kind).await;
        let leased = store.claim(Claim { node, lane: Lane::Workers, id: lease_id(), limit: 2 }).await.unwrap();
        assert!(house.proxy.is_done(), "{kind}");
        assert_eq!(leased.len(), 2, "{kind}");
        assert_eq!(store.counts().await.unwrap().leased, 2, "{kind}");
        assert!(leased.iter().all(|leased| leased.claims == 1), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_while_the_connection_breaks_is_made_once() {
    for kind in ["request", "reply"] {
        let Some(house) = house().await else { return };
        let store = &*house.store;
        broken(&house, kind).await;
        let new = new_session(&tenant(), vec![message("go")]);
        let id = new.session.id;
        let created = store.create(new).await.unwrap();
        assert!(!created.is_repeat && house.proxy.is_done(), "{kind}");
        assert_eq!(store.inbox(id).await.unwrap().len(), 1, "{kind}");
        broken(&house, kind).await;
        let owner = node(store).await;
        assert!(house.proxy.is_done(), "{kind}");
        let leased = claim(store, owner, 1).await.remove(0);
        broken(&house, kind).await;
        store.release(&leased.lease).await.unwrap();
        assert!(house.proxy.is_done(), "{kind}");
        assert_eq!(view(store, id).await.state, State::Queued, "{kind}");
        broken(&house, kind).await;
        let changes = BTreeMap::from([("a".to_owned(), Some("b".to_owned()))]);
        let notes = Some(Notes { id: event_id(), changes });
        let notes = Delivery { tenant: tenant(), session: id, inputs: Vec::new(), notes, idempotency: None };
        store.deliver(notes).await.unwrap();
        assert!(house.proxy.is_done(), "{kind}");
        assert_eq!(store.inbox(id).await.unwrap().len(), 2, "{kind}");
        broken(&house, kind).await;
        store.delete(&tenant(), id).await.unwrap();
        assert!(house.proxy.is_done(), "{kind}");
        assert_eq!(store.counts().await.unwrap(), Counts::default(), "{kind}");
    }
}
