//! A copy of a store that is in use.

use tempfile::TempDir;
use tenure_store::conformance::fixture::{create, hold, log, message, node};
use tenure_store::conformance::run;
use tenure_store::{Kind, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

#[test]
fn a_backup_opens_as_a_store_of_one_moment_with_its_payloads() {
    run(async {
        let folder = TempDir::new().unwrap();
        let store = Sqlite::open(Options::new(folder.path().join("data"))).unwrap();
        let node = node(&*store).await;
        let id = create(&*store, vec![message(&"x".repeat(100_000))]).await;
        let mut holder = hold(&*store, node).await;
        holder.say("before");
        holder.say(&"y".repeat(100_000));
        holder.commit(&*store, Then::Keep).await.unwrap();
        let before = log(&*store, id).await;
        let to = folder.path().join("copy");
        store.backup(&to).await.unwrap();
        holder.say("after");
        holder.commit(&*store, Then::Keep).await.unwrap();
        assert_eq!(store.backup(&to).await.unwrap_err().kind, Kind::Conflict, "an older copy is not overwritten");
        let copy = Sqlite::open(Options::new(&to)).unwrap();
        assert_eq!(log(&*copy, id).await, before);
        assert_eq!(copy.inbox(id).await.unwrap().len(), 1);
        create(&*copy, vec![message("the copy can be used")]).await;
    });
}
