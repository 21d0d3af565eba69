//! Files of older releases are opened and brought up to date (promise P21).

use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;
use tenure_store::conformance::fixture::{create, deliver, hold, log, message, node, tenant, view};
use tenure_store::conformance::run;
use tenure_store::{Beat, LeaseEnd, LeaseQuery, State, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

/// The schemas of older releases, from version 1.
const OLD: [&str; 4] = [
    include_str!("../fixtures/schema_1.sql"),
    include_str!("../fixtures/schema_2.sql"),
    include_str!("../fixtures/schema_3.sql"),
    include_str!("../fixtures/schema_4.sql"),
];

/// The columns of each table.
fn tables(connection: &Connection) -> BTreeMap<String, Vec<String>> {
    let all = |sql: &str, of: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([of], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let tables = all("SELECT name FROM sqlite_master WHERE type = ?1 AND name NOT LIKE 'sqlite_%'", "table");
    let columns = |table: &String| {
        let mut columns = all("SELECT name FROM pragma_table_info(?1)", table);
        columns.sort();
        columns
    };
    tables.iter().map(|table| (table.clone(), columns(table))).collect()
}

/// Makes a file of an old version with what `from` holds.
fn older(version: usize, from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let connection = Connection::open(to).unwrap();
    connection.execute_batch(OLD[version - 1]).unwrap();
    let old = tables(&connection);
    connection.execute("ATTACH ?1 AS now", [from.to_str().unwrap()]).unwrap();
    for (table, columns) in old {
        let columns = columns.join(", ");
        let copy = format!("INSERT OR REPLACE INTO {table} ({columns}) SELECT {columns} FROM now.{table}");
        connection.execute_batch(&copy).unwrap();
    }
    connection.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
}

#[test]
fn a_file_of_an_older_release_is_opened_with_all_that_it_holds() {
    run(async {
        for version in 1..=OLD.len() {
            let folder = TempDir::new().unwrap();
            let now = Options::new(folder.path().join("now"));
            let store = Sqlite::open(now.clone()).unwrap();
            let node = node(&*store).await;
            let parked = create(&*store, vec![message("go")]).await;
            let mut holder = hold(&*store, node).await;
            holder.say("one");
            holder.park(&*store).await;
            let leased = create(&*store, vec![message("go")]).await;
            let mut holder = hold(&*store, node).await;
            holder.say("two");
            holder.commit(&*store, Then::Keep).await.unwrap();
            store.close().await;
            let old = Options::new(folder.path().join("old"));
            older(version, &now.file(), &old.file());

            let store = Sqlite::open(old.clone()).unwrap();
            assert_eq!(log(&*store, parked).await.len(), 1);
            assert_eq!(view(&*store, parked).await.state, State::Parked);
            let query = |session| LeaseQuery { tenant: tenant(), session, after: 0, limit: 10 };
            let open = store.leases(query(leased)).await.unwrap();
            assert_eq!((open.len(), open[0].epoch, open[0].end), (1, holder.lease.epoch, None));
            let held = vec![(leased, holder.lease.epoch)];
            let claimed_before = store.now().await.unwrap();
            let reply = store.heartbeat(Beat { node, held, claimed_before }).await.unwrap();
            assert!(reply.lost.is_empty(), "the lease goes on");
            holder.say("three");
            holder.park(&*store).await;
            let past = store.leases(query(leased)).await.unwrap();
            assert_eq!(past[0].end.map(|end| (end.how, end.seq)), Some((LeaseEnd::Parked, 2)));
            deliver(&*store, parked, message("more")).await.unwrap();
            hold(&*store, node).await;
            store.close().await;

            let columns = |options: &Options| tables(&Connection::open(options.file()).unwrap());
            assert_eq!(columns(&old), columns(&now), "it looks like a new one");
        }
    });
}
