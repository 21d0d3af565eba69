//! Damaged records: they are named, and everything else works (case O-038).

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_store::conformance::fixture::{
    all_sessions, claim, create, deliver, hold, log, message, node, tenant, view,
};
use tenure_store::conformance::run;
use tenure_store::{EventQuery, Kind, Order, State, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

fn key(session: tenure_core::SessionId) -> [u8; 16] {
    session.bits().to_be_bytes()
}

#[test]
fn o_038_a_damaged_event_ends_its_log_and_nothing_else() {
    run(async {
        let folder = TempDir::new().unwrap();
        let options = Options::new(folder.path());
        let store = Sqlite::open(options.clone()).unwrap();
        let node = node(&*store).await;
        let id = create(&*store, vec![message("go")]).await;
        let mut holder = hold(&*store, node).await;
        for text in ["one", "two", "three"] {
            holder.say(text);
        }
        holder.park(&*store).await;
        let connection = Connection::open(options.file()).unwrap();
        let damage = "UPDATE events SET body = '' WHERE session = ?1 AND seq = 3";
        assert_eq!(connection.execute(damage, [key(id)]).unwrap(), 1);
        assert_eq!(log(&*store, id).await.len(), 2, "up to the damage");
        let query = EventQuery { tenant: tenant(), session: id, after: Some(2), order: Order::Ascending, limit: 10 };
        let error = store.events(query).await.unwrap_err();
        assert_eq!(error.kind, Kind::Corrupt);
        assert!(error.message.contains("seq 3") && error.message.contains(&id.to_string()), "{}", error.message);
        let other = create(&*store, vec![message("go")]).await;
        assert_eq!(hold(&*store, node).await.session.id, other);
        assert_eq!(store.sessions(all_sessions()).await.unwrap().len(), 2);
    });
}

#[test]
fn o_038_a_damaged_head_is_set_aside_and_the_others_are_leased() {
    run(async {
        let folder = TempDir::new().unwrap();
        let options = Options::new(folder.path());
        let store = Sqlite::open(options.clone()).unwrap();
        let node = node(&*store).await;
        let damaged = create(&*store, vec![message("go")]).await;
        let whole = create(&*store, vec![message("go")]).await;
        let connection = Connection::open(options.file()).unwrap();
        connection.execute("UPDATE heads SET body = '{\"v\":1' WHERE id = ?1", [key(damaged)]).unwrap();
        let leased = claim(&*store, node, 10).await;
        assert_eq!(leased.iter().map(|leased| leased.session.id).collect::<Vec<_>>(), [whole]);
        assert!(claim(&*store, node, 10).await.is_empty(), "it is not claimed again and again");
        assert_eq!(store.session(&tenant(), damaged).await.unwrap_err().kind, Kind::Corrupt);
        assert_eq!(deliver(&*store, damaged, message("hello?")).await.unwrap_err().kind, Kind::Corrupt);
        let listed = store.sessions(all_sessions()).await.unwrap();
        assert_eq!(listed.iter().map(|view| view.session.id).collect::<Vec<_>>(), [whole]);
        let body: String =
            connection.query_row("SELECT body FROM heads WHERE id = ?1", [key(damaged)], |row| row.get(0)).unwrap();
        assert_eq!(body, "{\"v\":1", "its bytes are kept");
    });
}

#[test]
fn o_038_a_lost_payload_is_named_and_the_others_work() {
    run(async {
        let folder = TempDir::new().unwrap();
        let options = Options::new(folder.path());
        let store = Sqlite::open(options.clone()).unwrap();
        let node = node(&*store).await;
        let id = create(&*store, vec![message(&"x".repeat(100_000))]).await;
        for shelf in std::fs::read_dir(options.path.join("blobs")).unwrap() {
            for file in std::fs::read_dir(shelf.unwrap().path()).unwrap() {
                std::fs::write(file.unwrap().path(), "").unwrap();
            }
        }
        assert!(claim(&*store, node, 10).await.is_empty());
        assert_eq!(store.inbox(id).await.unwrap_err().kind, Kind::Corrupt);
        assert_eq!(view(&*store, id).await.state, State::Parked);
        create(&*store, vec![message("go")]).await;
        let mut holder = hold(&*store, node).await;
        holder.say("fine");
        holder.commit(&*store, Then::Keep).await.unwrap();
    });
}
