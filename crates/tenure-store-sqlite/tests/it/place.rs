//! Where the store lies, and who else was there.

use rusqlite::Connection;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;
use tenure_store::conformance::fixture::{create, message};
use tenure_store::conformance::run;
use tenure_store::{Kind, Store};
use tenure_store_sqlite::{Options, Sqlite};

#[test]
fn the_data_folder_is_made_and_private() {
    run(async {
        let folder = TempDir::new().unwrap();
        let options = Options::new(folder.path().join("a/b"));
        let store = Sqlite::open(options.clone()).unwrap();
        create(&*store, vec![message("go")]).await;
        store.close().await;
        let mode = std::fs::metadata(&options.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(std::fs::metadata(options.file()).unwrap().len() > 0);
    });
}

#[test]
fn z_55_a_store_of_a_newer_release_is_refused_and_stays_as_it_is() {
    run(async {
        let folder = TempDir::new().unwrap();
        let options = Options::new(folder.path());
        Sqlite::open(options.clone()).unwrap().close().await;
        let connection = Connection::open(options.file()).unwrap();
        connection.execute_batch("PRAGMA user_version = 99").unwrap();
        drop(connection);
        let error = Sqlite::open(options.clone()).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains("99"), "{}", error.message);
        let connection = Connection::open(options.file()).unwrap();
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 99);
    });
}

#[test]
fn a_file_that_is_no_store_is_refused_with_a_fix() {
    let folder = TempDir::new().unwrap();
    let options = Options::new(folder.path());
    std::fs::write(options.file(), vec![7; 8_192]).unwrap();
    let error = Sqlite::open(options).unwrap_err();
    assert_eq!(error.kind, Kind::Broken);
    assert!(error.message.contains("restore a backup"), "{}", error.message);
}

#[test]
fn a_closed_store_says_so() {
    run(async {
        let folder = TempDir::new().unwrap();
        let store = Sqlite::open(Options::new(folder.path())).unwrap();
        store.close().await;
        store.close().await;
        let error = store.release(&lease()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Broken);
        assert!(error.message.contains("closed"), "{}", error.message);
    });
}

fn lease() -> tenure_store::Lease {
    use tenure_store::conformance::fixture::{bits, lease_id, session_id, tenant};
    let node = tenure_core::NodeId::from_bits(bits());
    tenure_store::Lease { tenant: tenant(), session: session_id(), epoch: 1, nonce: lease_id(), node }
}
