//! Addresses, versions, statements.

use crate::server::server;
use crate::suite::InDatabase;
use tenure_store::{Kind, Store};
use tenure_store_postgres::{Options, Postgres};

#[tokio::test]
async fn every_statement_is_taken_by_the_database() {
    let Some(harness) = InDatabase::new(|_| {}).await else { return };
    assert_eq!(harness.postgres().wrong_statements().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn several_processes_make_the_tables_at_once() {
    let Some(server) = server() else { return };
    let options = Options::parse(&server.database().await).unwrap();
    let opened = futures_util::future::join_all((0..4).map(|_| Postgres::open(options.clone()))).await;
    for store in opened {
        store.unwrap().now().await.unwrap();
    }
}

#[tokio::test]
async fn z_55_tables_of_a_newer_release_are_left_alone() {
    let Some(server) = server() else { return };
    let url = server.database().await;
    let options = Options::parse(&url).unwrap();
    Postgres::open(options.clone()).await.unwrap().close().await;
    let name = url.rsplit('/').next().unwrap();
    server.run(name, "UPDATE meta SET value = 99 WHERE key = 'schema'").await;
    let error = Postgres::open(options).await.unwrap_err();
    assert_eq!(error.kind, Kind::Broken);
    assert!(error.message.contains("version 99") && error.message.contains("newer release"), "{error}");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_says_why_and_shows_no_password() {
    for (url, expected) in [
        ("postgres://me:s3cret@host:notaport/db", "cannot be read"),
        ("postgres://me:s3cret@host/db?sslmode=prefer", "checks the certificate"),
        ("postgres://me:s3cret@host/db?unknown=1", "cannot be read"),
    ] {
        let error = Options::parse(url).unwrap_err();
        assert!(error.message.contains(expected) && !error.message.contains("s3cret"), "{error}");
    }
    // Bound and dropped: nobody listens there.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let options = Options::parse(&format!("postgres://me:s3cret@{gone}/db")).unwrap();
    let error = Postgres::open(options).await.unwrap_err();
    assert_eq!(error.kind, Kind::Retry, "{error}");
    assert!(!format!("{error:?}").contains("s3cret"));
    let Some(server) = server() else { return };
    let error = Postgres::open(Options::parse(&server.url("missing")).unwrap()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Broken);
    assert!(error.message.contains("\"missing\" does not exist") && error.message.contains("store.url"), "{error}");
}
