//! What is left in the file of forks and their parents that were removed.

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Body, Event, EventId, Limits, NewFork, SessionId, Timestamp, apply, fork};
use tenure_store::conformance::fixture::{bits, create, hold, message, node, session_id, tenant, view};
use tenure_store::conformance::run;
use tenure_store::{NewSession, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

async fn fork_at_the_end(store: &Sqlite, parent: SessionId) -> SessionId {
    let prefix = view(store, parent).await.session;
    let new = NewFork {
        id: session_id().on_shard(parent.shard()),
        created_at: Timestamp(1),
        title: String::new(),
        limits: Limits::default(),
        snapshot: None,
        told: None,
    };
    let (mut session, drafts) = fork(prefix, new);
    let mut events = Vec::new();
    for draft in drafts {
        let seq = session.last_seq + 1;
        let event = Event { id: EventId::from_bits(bits()), seq, at: Timestamp(1), step: draft.step, body: draft.body };
        assert!(!matches!(event.body, Body::AgentToolResult { .. }), "no call is open");
        apply(&mut session, &event).unwrap();
        events.push(event);
    }
    let new = NewSession { session, events, metadata: Default::default(), inputs: Vec::new(), idempotency: None };
    store.create(new).await.unwrap().view.session.id
}

#[test]
fn z_13_nothing_is_left_once_the_last_one_that_shares_rows_is_removed() {
    run(async {
        let folder = TempDir::new().unwrap();
        let options = Options::new(folder.path());
        let store = Sqlite::open(options.clone()).unwrap();
        let node = node(&*store).await;
        let parent = create(&*store, vec![message("go")]).await;
        let mut holder = hold(&*store, node).await;
        for _ in 0..5 {
            holder.say("row");
        }
        holder.park(&*store).await;
        let child = fork_at_the_end(&store, parent).await;
        let grandchild = fork_at_the_end(&store, child).await;
        // More of the parent's own, which nobody shares.
        store.deliver(tenure_store::conformance::fixture::delivery(parent, vec![message("on")])).await.unwrap();
        let mut holder = hold(&*store, node).await;
        holder.say("later");
        holder.take_all();
        holder.commit(&*store, Then::Park).await.unwrap();
        let last = view(&*store, grandchild).await.session.last_seq;
        for id in [parent, child] {
            store.delete(&tenant(), id).await.unwrap();
        }
        store.close().await;
        drop(store);
        let count = |sql: &str| -> u64 {
            let connection = Connection::open(options.file()).unwrap();
            connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
        };
        assert_eq!(count("SELECT count(*) FROM events"), last, "what the last fork is made of");
        let store = Sqlite::open(options.clone()).unwrap();
        store.delete(&tenant(), grandchild).await.unwrap();
        store.close().await;
        drop(store);
        for table in ["events", "lineage", "removals", "heads"] {
            assert_eq!(count(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
        }
    });
}
