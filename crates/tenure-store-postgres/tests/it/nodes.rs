//! Several processes on one database, played by several stores.

use crate::suite::InDatabase;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tenure_store::conformance::fixture::{Holder, claim, create, deliver, message, node, view};
use tenure_store::*;
use tenure_store_postgres::{Options, Postgres};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

async fn stores(count: usize, change: impl Fn(&mut Options)) -> Option<Vec<Arc<Postgres>>> {
    let url = crate::server::server()?.database().await;
    let mut stores = Vec::new();
    for _ in 0..count {
        let mut options = Options::parse(&url).unwrap();
        change(&mut options);
        stores.push(Postgres::open(options).await.unwrap());
    }
    Some(stores)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_lease_each_session_once() {
    const SESSIONS: usize = 60;
    for skips_locked in [true, false] {
        let Some(stores) = stores(4, |options| options.skips_locked = skips_locked).await else { return };
        for _ in 0..SESSIONS {
            create(&*stores[0], vec![message("go")]).await;
        }
        let claims = stores.iter().map(|store| async move {
            let node = node(&**store).await;
            let mut leased = Vec::new();
            while store.counts().await.unwrap().queued > 0 {
                leased.extend(claim(&**store, node, 7).await.into_iter().map(|leased| leased.session.id));
            }
            leased
        });
        let leased: Vec<_> = futures_util::future::join_all(claims).await.into_iter().flatten().collect();
        assert_eq!(leased.len(), SESSIONS, "skip locked: {skips_locked}");
        assert_eq!(leased.iter().collect::<BTreeSet<_>>().len(), SESSIONS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn z_01_no_input_is_parked_over_while_nodes_deliver_and_park() {
    const ROUNDS: usize = 40;
    let Some(stores) = stores(2, |_| {}).await else { return };
    let node = node(&*stores[0]).await;
    let id = create(&*stores[0], vec![message("first")]).await;
    for _ in 0..ROUNDS {
        let mut holder = Holder::new(claim(&*stores[0], node, 1).await.remove(0));
        holder.take_all();
        holder.say("done");
        let checkpoint = holder.checkpoint(Then::Park);
        let (committed, delivered) =
            tokio::join!(stores[0].commit(checkpoint), deliver(&*stores[1], id, message("again")));
        delivered.unwrap();
        let committed = committed.unwrap();
        let view = view(&*stores[0], id).await;
        match committed.is_held {
            // It came first: the holder sees it.
            true => {
                assert_eq!((view.state, committed.inbox.len()), (State::Leased, 1));
                stores[0].release(&holder.lease).await.unwrap();
            }
            // It came after the park: the session is queued.
            false => assert_eq!(view.state, State::Queued),
        }
        assert_eq!(view.inbox_len, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_changes_another_one_hears() {
    for notifies in [true, false] {
        let Some(stores) = stores(2, |options| options.notifies = notifies).await else { return };
        let mut heard = stores[1].hints();
        let id = create(&*stores[0], Vec::new()).await;
        let wait = async {
            loop {
                // Again and again: who begins to listen hears what comes after it.
                deliver(&*stores[0], id, message("go")).await.unwrap();
                let hint = tokio::time::timeout(Duration::from_millis(700), heard.recv()).await;
                match hint {
                    Ok(Ok(Hint::Session(heard))) if heard == id => return,
                    Ok(Ok(Hint::Anything)) if !notifies => return,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("a hint in time");
    }
}

#[tokio::test]
async fn a_closed_store_gives_no_connection() {
    let Some(harness) = InDatabase::new(|_| {}).await else { return };
    let store = harness.postgres();
    store.close().await;
    assert_eq!(store.now().await.unwrap_err().kind, Kind::Retry);
}
