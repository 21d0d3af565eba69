//! A full disk (case O-033, hazard Z-53), played with the store's own quota.

use tempfile::TempDir;
use tenure_store::conformance::fixture::{create, hold, log, message, new_session, node, tenant, view};
use tenure_store::conformance::run;
use tenure_store::{Kind, State, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

/// Room for the empty store and some hundred rows.
const QUOTA: u64 = 2 * 1024 * 1024;

#[test]
fn o_033_a_full_disk_tears_nothing_and_work_goes_on_when_space_returns() {
    run(async {
        let folder = TempDir::new().unwrap();
        let small = Options { max_bytes: Some(QUOTA), ..Options::new(folder.path()) };
        let store = Sqlite::open(small).unwrap();
        let node = node(&*store).await;
        let id = create(&*store, vec![message("go")]).await;
        let mut holder = hold(&*store, node).await;
        let text = "12 KB of an approved task ".repeat(480);
        let mut committed = 0;
        let refused = loop {
            holder.say(&text);
            let checkpoint = holder.checkpoint(Then::Keep);
            match store.commit(checkpoint.clone()).await {
                Ok(_) => committed += 1,
                Err(error) => {
                    assert_eq!(error.kind, Kind::NoSpace, "{}", error.message);
                    break checkpoint;
                }
            }
        };
        assert!(committed > 10, "{committed}");
        assert_eq!(log(&*store, id).await.len(), committed, "the refused one is rolled back as a whole");
        assert_eq!(view(&*store, id).await.session.last_seq, committed as u64);
        let fresh = store.create(new_session(&tenant(), Vec::new())).await;
        assert_eq!(fresh.unwrap_err().kind, Kind::NoSpace, "nothing new is taken");
        store.close().await;
        let store = Sqlite::open(Options::new(folder.path())).unwrap();
        assert_eq!(log(&*store, id).await.len(), committed);
        store.commit(refused).await.expect("space is back, and the lease is still held");
        assert_eq!(log(&*store, id).await.len(), committed + 1);
        create(&*store, vec![message("go")]).await;
    });
}

#[test]
fn z_53_the_reserve_lets_running_work_be_saved_when_nothing_new_is_taken() {
    run(async {
        let folder = TempDir::new().unwrap();
        let store = Sqlite::open(Options { max_bytes: Some(QUOTA), ..Options::new(folder.path()) }).unwrap();
        let node = node(&*store).await;
        let id = create(&*store, vec![message("go")]).await;
        let mut holder = hold(&*store, node).await;
        let text = "filler ".repeat(2_000);
        while store
            .create(new_session(&tenant(), vec![message(&text)]))
            .await
            .map_err(|error| assert_eq!(error.kind, Kind::NoSpace))
            .is_ok()
        {}
        holder.take_all();
        holder.say("saved in the reserve");
        let committed = holder.commit(&*store, Then::Park).await.expect("saving still works");
        assert!(!committed.is_held);
        assert_eq!(view(&*store, id).await.state, State::Parked);
    });
}
