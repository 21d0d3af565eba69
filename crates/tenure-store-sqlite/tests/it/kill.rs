//! kill -9 of a process that commits: what it was told is durable is there, once (promises P1, P12).
//!
//! The child is this test binary again, asked for one test that does nothing unless it is the child.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tenure_store::conformance::fixture::{Holder, claim, create, log, message, node};
use tenure_store::conformance::run;
use tenure_store::{State, Store, Then};
use tenure_store_sqlite::{Options, Sqlite};

/// Tells the child its folder.
const FOLDER: &str = "TENURE_STORE_TEST_FOLDER";

/// Kills, each after another number of acknowledged commits.
const KILLS: [usize; 5] = [1, 7, 40, 111, 300];

/// Commits of each session after which a child ends by itself.
const CHILD_COMMITS: usize = 100_000;

/// Sessions that the child advances at the same time.
const SESSIONS: usize = 8;

#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    run(async {
        let store = Sqlite::open(Options::new(folder)).unwrap();
        let node = node(&*store).await;
        for _ in 0..SESSIONS {
            create(&*store, vec![message("go")]).await;
        }
        let mut tasks = Vec::new();
        for leased in claim(&*store, node, SESSIONS).await {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let mut holder = Holder::new(leased);
                // Until it is killed; the bound is for a parent that died first.
                for _ in 0..CHILD_COMMITS {
                    holder.say("one");
                    holder.say(&"large ".repeat(if holder.session.last_seq % 20 == 1 { 10_000 } else { 1 }));
                    holder.commit(&*store, Then::Keep).await.unwrap();
                    let line = format!("acknowledged {} {}\n", holder.lease.session, holder.session.last_seq);
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn p_12_kill_9_loses_no_acknowledged_commit_and_repeats_none() {
    for commits in KILLS {
        let folder = TempDir::new().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let parse = |line: String| {
            let mut words = line.strip_prefix("acknowledged ")?.split(' ');
            Some((words.next()?.parse::<tenure_core::SessionId>().ok()?, words.next()?.parse::<u64>().ok()?))
        };
        let mut acknowledged: Vec<_> = lines.by_ref().filter_map(parse).take(commits).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        // What it still said before it died counts too.
        acknowledged.extend(lines.filter_map(parse));
        assert!(acknowledged.len() >= commits);
        run(check(Options::new(folder.path()), acknowledged));
    }
}

async fn check(options: Options, acknowledged: Vec<(tenure_core::SessionId, u64)>) {
    let store = Sqlite::open(options).unwrap();
    for (session, last_seq) in acknowledged {
        let log = log(&*store, session).await;
        let seqs: Vec<u64> = log.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=log.len() as u64).collect::<Vec<_>>(), "each once, without gaps");
        assert!(log.len() as u64 >= last_seq && log.len() % 2 == 0, "whole commits only");
        let view = store.session(&tenure_store::conformance::fixture::tenant(), session).await.unwrap().unwrap();
        assert_eq!(view.session.last_seq, log.len() as u64, "the head is that of the log");
        assert_eq!(view.state, State::Leased);
    }
    let dead: Vec<_> = store.nodes().await.unwrap().iter().map(|node| (node.id, node.beats)).collect();
    let taken_back = store.sweep(&dead).await.unwrap();
    let node = node(&*store).await;
    let leased = claim(&*store, node, 100).await;
    assert_eq!(leased.len(), taken_back.len(), "all of them run again");
    for leased in leased {
        let mut holder = Holder::new(leased);
        holder.say("and on it goes");
        holder.commit(&*store, Then::Keep).await.unwrap();
    }
}
