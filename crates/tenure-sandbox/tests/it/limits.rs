//! Caps, and what is said of them.

use std::time::Duration;

use tenure_sandbox::{Exec, Item, State, Status};

use crate::contain::{contained, left_out};
use crate::machine::{Folders, drivers, namespace, output, run, text};

#[tokio::test]
async fn every_item_has_a_line_and_every_weak_one_a_reason() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let lines = &sandbox.guarantees().0;
        assert_eq!(lines.len(), 13, "{lines:?}");
        assert!(lines.iter().all(|line| !line.why.is_empty()));
        assert!(sandbox.guarantees().weak().all(|line| !line.fix.is_empty()));
        let expected = driver.guarantees();
        for line in lines {
            assert_eq!(expected.state(line.item), line.state, "{} in {}", line.item.name(), driver.name());
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_077_fork_bomb_and_threads_meet_the_limit() {
    if let Err(why) = contained() {
        left_out(&format!("the sandbox's fork bomb: {why}"));
        return;
    }
    for driver in drivers().await {
        let folders = Folders::new();
        let mut spec = folders.spec();
        spec.limits.processes = 64;
        // Only where the kernel caps processes and ends the whole tree: anywhere else a bomb that gets away
        // would fill the container, and the other tests would fail for want of processes.
        let holds = |item| driver.guarantees().state(item) == State::Enforced;
        if !(holds(Item::Processes) && holds(Item::Pid) && holds(Item::TreeKill)) {
            left_out(&format!("the fork bomb in the {} driver: nothing stops one there", driver.name()));
            continue;
        }
        let sandbox = driver.start(spec).await.expect("start");
        // The test must not take the machine down when the product is wrong: the limit is there first.
        let limit = output(&sandbox, "ulimit -u").await;
        assert_ne!(limit.trim(), "unlimited");
        let others = Folders::new();
        let other = driver.start(others.spec()).await.expect("start");
        let exec = Exec { timeout: Duration::from_secs(3), ..Exec::new(":(){ :|:& };:; sleep 1000") };
        // The host and other sandboxes answer meanwhile.
        let (outcome, answer) = tokio::join!(sandbox.exec(exec), output(&other, "echo other"));
        let outcome = outcome.expect("run");
        assert_eq!(answer, "other\n");
        assert_ne!(outcome.status, Status::Exited(0), "{}", text(&outcome));
        sandbox.restart().await.expect("restart");
        assert_eq!(sandbox.processes().await.expect("list"), Vec::new());
        assert_eq!(output(&sandbox, "echo alive").await, "alive\n");
        let threads = "python3 -c '
import threading, time
for i in range(10000): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
time.sleep(100)'";
        let exec = Exec { timeout: Duration::from_secs(3), ..Exec::new(threads) };
        let outcome = sandbox.exec(exec).await.expect("run");
        assert_ne!(outcome.status, Status::Exited(0), "{}", text(&outcome));
        assert_eq!(output(&sandbox, "echo alive").await, "alive\n");
        assert_eq!(output(&other, "echo other").await, "other\n");
        sandbox.stop().await;
        other.stop().await;
    }
}

#[tokio::test]
async fn a_command_that_takes_too_much_memory_is_killed_and_told() {
    for driver in drivers().await {
        let folders = Folders::new();
        let mut spec = folders.spec();
        spec.limits.memory_bytes = 128 * 1024 * 1024;
        let sandbox = driver.start(spec).await.expect("start");
        let outcome = run(&sandbox, "python3 -c 'x = [bytearray(1 << 20) for _ in range(1000)]'").await;
        let enforced = sandbox.guarantees().state(Item::Memory) == State::Enforced;
        // Without a control group the allocation itself fails.
        let wanted =
            if enforced { outcome.status == Status::KilledByMemory } else { outcome.status != Status::Exited(0) };
        assert!(wanted, "{:?} {}", outcome.status, text(&outcome));
        assert_eq!(output(&sandbox, "echo alive").await, "alive\n");
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn a_command_that_fills_the_disk_is_ended() {
    let Some(driver) = namespace().await else { return };
    let folders = Folders::new();
    let mut spec = folders.spec();
    spec.limits.disk_bytes = 8 * 1024 * 1024;
    let sandbox = driver.start(spec).await.expect("start");
    let outcome = run(&sandbox, "head -c 20000000 /dev/zero > big").await;
    assert_ne!(outcome.status, Status::Exited(0), "{}", text(&outcome));
    let outcome = run(&sandbox, "for i in 1 2 3; do head -c 5000000 /dev/zero > part$i; done; sleep 1000").await;
    assert_eq!(outcome.status, Status::KilledByDisk, "{}", text(&outcome));
    sandbox.stop().await;
}
