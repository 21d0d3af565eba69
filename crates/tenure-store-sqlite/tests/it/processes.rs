//! Two opened stores on one folder. They share nothing but the files, as two processes do.

use std::time::Duration;
use tempfile::TempDir;
use tenure_store::conformance::fixture::{Holder, claim, create, deliver, hold, log, message, node};
use tenure_store::conformance::run;
use tenure_store::{Hint, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

/// Long enough for a slow machine; only reached if the hint never comes.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn two_processes_wake_each_other() {
    run(async {
        let folder = TempDir::new().unwrap();
        let [server, worker] = [(); 2].map(|()| Sqlite::open(Options::new(folder.path())).unwrap());
        let node = node(&*worker).await;
        let mut hints = worker.hints();
        let id = create(&*server, vec![message("go")]).await;
        let is_awake = async { while !matches!(hints.recv().await, Ok(Hint::Runnable | Hint::Anything)) {} };
        tokio::time::timeout(PATIENCE, is_awake).await.expect("the worker is woken");
        let mut holder = hold(&*worker, node).await;
        let mut hints = server.hints();
        holder.say("hello");
        holder.commit(&*worker, Then::Keep).await.unwrap();
        let is_told = async { while !matches!(hints.recv().await, Ok(Hint::Session(told)) if told == id) {} };
        let told = tokio::time::timeout(PATIENCE, is_told);
        told.await.expect("the server is told which session changed");
        assert_eq!(log(&*server, id).await.len(), 1);
    });
}

#[test]
fn commits_of_others_are_found_without_their_datagrams() {
    run(async {
        let folder = TempDir::new().unwrap();
        let [server, worker] = [(); 2].map(|()| Sqlite::open(Options::new(folder.path())).unwrap());
        // Sockets that are gone, as after a clean-up of the folder.
        for socket in std::fs::read_dir(folder.path().join("wake")).unwrap() {
            std::fs::remove_file(socket.unwrap().path()).unwrap();
        }
        let mut hints = worker.hints();
        create(&*server, vec![message("go")]).await;
        let is_awake = async { while !matches!(hints.recv().await, Ok(Hint::Anything)) {} };
        tokio::time::timeout(PATIENCE, is_awake).await.expect("looking finds it");
    });
}

#[test]
fn z_22_two_processes_write_at_once_and_lose_nothing() {
    run(async {
        let folder = TempDir::new().unwrap();
        let stores = [(); 2].map(|()| Sqlite::open(Options::new(folder.path())).unwrap());
        let mut tasks = Vec::new();
        for store in stores.clone() {
            tasks.push(tokio::spawn(async move {
                let node = node(&*store).await;
                let mut done = Vec::new();
                for _ in 0..30 {
                    let id = create(&*store, vec![message("go")]).await;
                    deliver(&*store, id, message("more")).await.unwrap();
                    for leased in claim(&*store, node, 4).await {
                        let mut holder = Holder::new(leased);
                        holder.say("one");
                        holder.say("two");
                        holder.take_all();
                        let committed = holder.commit(&*store, Then::Park).await.unwrap();
                        done.push((holder.lease.session, committed.is_held));
                    }
                }
                done
            }));
        }
        let mut seen = std::collections::BTreeMap::new();
        for task in tasks {
            for (session, is_held) in task.await.unwrap() {
                *seen.entry(session).or_insert(0) += 2;
                // The other process may have delivered meanwhile: then the lease is simply kept.
                let _ = is_held;
            }
        }
        for (session, rows) in seen {
            assert_eq!(log(&*stores[0], session).await.len(), rows);
            assert_eq!(log(&*stores[1], session).await.len(), rows);
        }
        let counts = stores[0].counts().await.unwrap();
        assert_eq!(counts.queued + counts.leased + counts.parked, 60);
    });
}
