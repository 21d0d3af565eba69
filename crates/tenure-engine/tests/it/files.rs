//! Files outlive sandboxes, workers and folders (promises P5, P17).

use crate::children::{Child, EFFECT_AND_WAIT, Gate};
use crate::house::{House, Running, check, drivers, options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::*;
use tenure_engine::{EventMasker, Folders, Sandboxes, Worker};
use tenure_files::snapshots::Stores;
use tenure_model::Providers;
use tokio_util::sync::CancellationToken;

const GRACE: Duration = Duration::from_secs(1);

/// One turn of the user: a command, then a word.
fn turn(command: &str) -> String {
    format!(
        "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '''{command}''' }} }}]\n\
         [[turn]]\ndo = [{{ say = \"done\" }}]\n"
    )
}

fn results(log: &[Event]) -> Vec<String> {
    let texts = log.iter().filter_map(|event| match &event.body {
        Body::AgentToolResult { content, .. } => Some(content),
        _ => None,
    });
    let text = |block: &Block| match block {
        Block::Text(text) => text.clone(),
        Block::Media { .. } => "media".into(),
    };
    texts.map(|content| content.iter().map(text).collect()).collect()
}

fn snapshots(log: &[Event]) -> Vec<(SnapshotId, SnapshotReason)> {
    let taken = log.iter().filter_map(|event| match &event.body {
        Body::SnapshotCreated { snapshot, taken } => Some((*snapshot, taken.reason)),
        _ => None,
    });
    taken.collect()
}

fn resets(log: &[Event]) -> Vec<(Option<SnapshotId>, String)> {
    let resets = log.iter().filter_map(|event| match &event.body {
        Body::EnvironmentReset { snapshot, reason } => Some((*snapshot, reason.clone())),
        _ => None,
    });
    resets.collect()
}

fn workspace(house: &House, session: SessionId) -> PathBuf {
    house.path().join("workspaces").join(session.to_string())
}

async fn turn_of(house: &mut House, session: SessionId, text: &str) -> Vec<Event> {
    let ended = |log: &[Event]| {
        log.iter().filter(|event| matches!(event.body, Body::StatusIdle { stop: Stop::EndTurn })).count()
    };
    let before = ended(&house.log(session).await);
    house.say(session, text).await;
    house.until_log(session, |log| ended(log) > before).await;
    house.until(session, Phase::Idle).await;
    house.log(session).await
}

#[tokio::test(flavor = "multi_thread")]
async fn p5_after_kill_9_and_the_loss_of_the_folder_the_files_are_back() {
    let write = turn("echo one > a; mkdir -p d/e; ln -s ../a d/link; chmod 750 d; echo done");
    let read = turn("cat a d/link; stat -c %a d; ls d/e; test -L d/link && echo a link");
    let mut house = House::new(&format!("{write}{read}")).await;
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    let log = turn_of(&mut house, session, "write").await;
    let [(snapshot, SnapshotReason::Turn)] = snapshots(&log)[..] else { panic!("{log:#?}") };
    worker.kill();
    std::fs::remove_dir_all(workspace(&house, session)).unwrap();
    std::fs::remove_dir_all(house.path().join("sandboxes")).unwrap();
    let _next = Child::worker(&house, GRACE);
    let log = turn_of(&mut house, session, "read").await;
    assert_eq!(results(&log)[1].trim(), "one\none\n750\na link");
    let resets = resets(&log);
    assert_eq!(resets.len(), 1, "{resets:?}");
    assert_eq!(resets[0].0, Some(snapshot));
    assert!(resets[0].1.contains("no command had ended since"), "{resets:?}");
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn p12_after_kill_9_with_the_disk_intact_no_file_goes_back() {
    let commands = [
        turn("echo one > a"),
        format!(
            "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = 'echo two > a; {EFFECT_AND_WAIT}' }} }}]\n\
         [[turn]]\ndo = [{{ call = \"bash\", input = {{ command = 'cat a' }} }}]\n\
         [[turn]]\ndo = [{{ say = \"done\" }}]\n"
        ),
    ];
    let mut house = House::new(&commands.concat()).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    turn_of(&mut house, session, "write").await;
    house.say(session, "write more").await;
    gate.begun().await;
    worker.kill();
    let _next = Child::worker(&house, GRACE);
    house.until_log(session, |log| results(log).len() == 3).await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(results(&log)[2].trim(), "two", "what the killed command wrote is there");
    assert!(resets(&log).iter().all(|(snapshot, _)| snapshot.is_none()), "{:?}", resets(&log));
}

#[tokio::test(flavor = "multi_thread")]
async fn z_32_files_that_went_back_come_with_the_names_of_the_commands_that_are_undone() {
    let scenario = [
        turn("echo one > a"),
        format!(
            "[[turn]]\ndo = [{{ call = \"bash\", input = {{ command = 'echo two > a; echo new > b' }} }}]\n\
             [[turn]]\ndo = [{{ call = \"bash\", input = {{ command = '{EFFECT_AND_WAIT}' }} }}]\n\
             [[turn]]\ndo = [{{ call = \"bash\", input = {{ command = 'cat a; ls' }} }}]\n\
             [[turn]]\ndo = [{{ say = \"done\" }}]\n"
        ),
    ];
    let mut house = House::new(&scenario.concat()).await;
    let mut gate = Gate::new(&house);
    let worker = Child::worker(&house, GRACE);
    let session = house.session().await;
    turn_of(&mut house, session, "write").await;
    house.say(session, "write more").await;
    gate.begun().await;
    worker.kill();
    std::fs::remove_dir_all(house.path().join("workspaces")).unwrap();
    let _next = Child::worker(&house, GRACE);
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(results(&log)[3].trim(), "one\na", "files are those of the snapshot");
    let back = resets(&log).into_iter().find(|(snapshot, _)| snapshot.is_some()).unwrap();
    assert!(back.1.contains("echo two > a; echo new > b"), "{back:?}");
    let told = transcript(&log).into_iter().any(|message| format!("{message:?}").contains("[environment reset]"));
    assert!(told, "the model is told");
    check(&log);
}

/// A worker with a data folder of its own and the snapshots of all.
async fn elsewhere(house: &House, data: &Path) -> Running {
    let models = Arc::new(Providers::scripted(Some(house.path().join("scenarios"))));
    let stores = Arc::new(Stores::new(&house.path().join("shared"), None));
    let folders = Folders { data: data.to_owned() };
    let sandboxes = Arc::new(Sandboxes::new(drivers(), folders, Vec::new()).with_snapshots(stores));
    let store = house.store.clone();
    let worker = Worker::start(store, models, sandboxes, EventMasker::default(), options(data)).await.unwrap();
    let (stop, address) = (CancellationToken::new(), worker.address());
    let task = tokio::spawn(worker.run(stop.clone()));
    Running::new(stop, task, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn o_068_files_follow_a_session_between_machines_and_old_ones_are_never_used() {
    let turns: String = (0..5).map(|round| turn(&format!("cat * 2>/dev/null; echo {round} > of-{round}"))).collect();
    let mut house = House::new(&turns).await;
    let machines = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let session = house.session().await;
    for round in 0..5usize {
        let worker = elsewhere(&house, machines[round % 2].path()).await;
        let log = turn_of(&mut house, session, "next").await;
        let expected: Vec<String> = (0..round).map(|earlier| earlier.to_string()).collect();
        let result = results(&log)[round].clone();
        let seen: Vec<&str> = result.lines().filter(|line| line.len() == 1).collect();
        assert_eq!(seen, expected, "round {round}: {result}");
        let back = resets(&log).into_iter().filter(|(snapshot, _)| snapshot.is_some()).count();
        assert_eq!(back, round, "each machine after the first gets the files anew");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p17_a_session_whose_snapshot_is_damaged_parks_and_goes_on_when_it_is_mended() {
    let blocked = "[[turn]]\ndo = [{ call = \"bash\", input = { command = 'cat a' } }]\n";
    let mut house = House::new(&format!("{}{blocked}{}", turn("echo one > a"), turn("cat a"))).await;
    let session = house.session().await;
    let worker = house.handy_worker().await;
    turn_of(&mut house, session, "write").await;
    worker.stop().await;
    std::fs::remove_dir_all(house.path().join("workspaces")).unwrap();
    let blobs = house.path().join("blobs");
    std::fs::rename(&blobs, house.path().join("away")).unwrap();
    let worker = house.handy_worker().await;
    house.say(session, "read").await;
    let view = house.until(session, Phase::NeedsYou).await;
    let wait = view.session.wait.unwrap();
    let WaitKind::SetAside { reason } = &wait.kind else { panic!("{wait:?}") };
    assert!(reason.contains("files could not be brought back"), "{reason}");
    assert!(!workspace(&house, session).exists(), "no blank folder in its place");
    std::fs::remove_dir_all(&blobs).unwrap();
    std::fs::rename(house.path().join("away"), &blobs).unwrap();
    worker.stop().await;
    let _worker = house.handy_worker().await;
    house.send(session, InputBody::Resume).await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    assert_eq!(results(&log).last().unwrap().trim(), "one", "the model tried again, with its files");
    check(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_069_files_that_are_nowhere_are_said_to_be_lost() {
    let mut house = House::new(&format!("{}{}", turn("echo one > a"), turn("ls"))).await;
    house.change_agent(|agent| agent.policies.snapshot = SnapshotPolicy::Manual).await;
    let session = house.session().await;
    let worker = house.handy_worker().await;
    let log = turn_of(&mut house, session, "write").await;
    assert_eq!(snapshots(&log), []);
    worker.stop().await;
    std::fs::remove_dir_all(house.path().join("workspaces")).unwrap();
    let _worker = house.handy_worker().await;
    let log = turn_of(&mut house, session, "look").await;
    let resets = resets(&log);
    assert!(resets.iter().any(|(_, reason)| reason.contains("files of the workspace are gone")), "{resets:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_policy_stores_files_at_its_moments_and_only_what_changed() {
    let scenario = "[[turn]]\ndo = [{ call = \"bash\", input = { command = 'echo 1 > a' } }]\n\
                    [[turn]]\ndo = [{ call = \"bash\", input = { command = 'echo 2 > a' } }]\n\
                    [[turn]]\ndo = [{ call = \"sleep\", input = { seconds = 0.5 } }]\n\
                    [[turn]]\ndo = [{ say = \"done\" }]\n\
                    [[turn]]\ndo = [{ call = \"bash\", input = { command = 'cat a' } }]\n\
                    [[turn]]\ndo = [{ say = \"done\" }]\n";
    use SnapshotReason::{Step, Turn, Wait};
    let cases: [(SnapshotPolicy, &[SnapshotReason]); 4] = [
        (SnapshotPolicy::Manual, &[]),
        (SnapshotPolicy::Turn, &[Turn]),
        (SnapshotPolicy::Wait, &[Wait]),
        (SnapshotPolicy::Step, &[Step, Step]),
    ];
    for (policy, expected) in cases {
        let mut house = House::new(scenario).await;
        house.change_agent(|agent| agent.policies.snapshot = policy).await;
        let _worker = house.handy_worker().await;
        let session = house.session().await;
        turn_of(&mut house, session, "go").await;
        let log = turn_of(&mut house, session, "only look").await;
        let reasons: Vec<_> = snapshots(&log).into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, expected, "{policy:?}");
        check(&log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn z_53_a_snapshot_that_cannot_be_stored_is_said_and_the_session_goes_on() {
    let mut house = House::new(&format!("{}{}", turn("echo one > a"), turn("cat a"))).await;
    // Nothing can be stored below a file.
    std::fs::write(house.path().join("blobs"), "in the way").unwrap();
    let _worker = house.handy_worker().await;
    let session = house.session().await;
    let log = turn_of(&mut house, session, "write").await;
    let errors: Vec<&String> = log
        .iter()
        .filter_map(|event| match &event.body {
            Body::Error { message, retrying: false, .. } => Some(message),
            _ => None,
        })
        .collect();
    assert!(matches!(errors[..], [message] if message.contains("the files were not stored")), "{errors:?}");
    std::fs::remove_file(house.path().join("blobs")).unwrap();
    let log = turn_of(&mut house, session, "read").await;
    assert_eq!(results(&log)[1].trim(), "one");
    assert_eq!(snapshots(&log).len(), 1, "the next one is stored");
}
