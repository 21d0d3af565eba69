//! What the persistent shell promises, in every driver.

use std::time::{Duration, Instant};

use tenure_sandbox::{Exec, Network, Spec, Status};

use crate::machine::{Folders, drivers, output, run, text};

/// Longest time that a call may take beyond its shell's end, generous for a busy machine.
const PROMPT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn working_directory_and_environment_persist_between_commands() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        assert_eq!(output(&sandbox, "mkdir -p a/b && cd a/b && export X='1 2'").await, "");
        assert_eq!(output(&sandbox, "pwd | tail -c 5; echo \"$X\"").await, "/a/b\n1 2\n");
        // Also when the shell ends by `exit`, with its code.
        let outcome = run(&sandbox, "cd ..; exit 3").await;
        assert_eq!(outcome.status, Status::Exited(3));
        assert_eq!(output(&sandbox, "pwd | tail -c 3").await, "/a\n");
        // A directory that is gone is said, not silently replaced.
        output(&sandbox, "cd b && rm -rf ../b").await;
        let outcome = run(&sandbox, "pwd").await;
        assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn restart_ends_processes_and_forgets_the_environment() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let outcome = run(&sandbox, "export X=1; sleep 1000 & disown; echo started").await;
        assert_eq!(outcome.still_running.len(), 1, "{:?}", outcome.still_running);
        sandbox.restart().await.expect("restart");
        assert_eq!(sandbox.processes().await.expect("list"), Vec::new());
        assert_eq!(output(&sandbox, "echo [$X]").await, "[]\n");
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_063_background_process_holds_stdout() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        for command in [
            "sleep 300 & echo hi",
            "setsid sleep 300 & echo hi",
            "nohup sleep 300 & echo hi",
            "(setsid sh -c 'sleep 300' &); echo hi",
        ] {
            let begun = Instant::now();
            let outcome = run(&sandbox, command).await;
            assert!(begun.elapsed() < PROMPT, "{command} took {:?}", begun.elapsed());
            assert_eq!(outcome.status, Status::Exited(0));
            assert!(text(&outcome).contains("hi\n"), "{}", text(&outcome));
            // That something runs is told at once; what it is may not be known before its `exec` is through.
            assert!(!outcome.still_running.is_empty(), "{command}");
            let deadline = Instant::now() + PROMPT;
            loop {
                let processes = sandbox.processes().await.expect("list");
                if processes.iter().any(|process| process.command.contains("sleep 300")) {
                    break;
                }
                assert!(Instant::now() < deadline, "{command}: {processes:?}");
            }
            sandbox.restart().await.expect("restart");
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_063_late_output_goes_to_the_log() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        output(&sandbox, "mkfifo gate").await;
        let outcome = run(&sandbox, "(cat gate; echo late) & echo early").await;
        assert_eq!(text(&outcome), "early\n");
        let log = outcome.log_path.expect("a log");
        output(&sandbox, "echo open > gate").await;
        let complete = || std::fs::read_to_string(&log).is_ok_and(|text| text == "early\nopen\nlate\n");
        let deadline = Instant::now() + PROMPT;
        while !complete() && Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        assert!(complete(), "{:?}", std::fs::read_to_string(&log));
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_064_timeout_leaves_no_children() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        for command in [
            "sleep 300 & wait",
            "setsid sleep 300 & sleep 300",
            "for i in $(seq 24); do (while :; do :; done) & done; wait",
            "(setsid sh -c 'sleep 300 & sleep 300' &) ; sleep 300",
        ] {
            let exec = Exec { timeout: Duration::from_millis(300), ..Exec::new(command) };
            let outcome = sandbox.exec(exec).await.expect("run");
            assert_eq!(outcome.status, Status::TimedOut, "{command}");
            assert_eq!(outcome.still_running, Vec::new(), "{command}");
            assert_eq!(sandbox.processes().await.expect("list"), Vec::new(), "{command}");
        }
        // A background process of an earlier command is not part of the tree.
        run(&sandbox, "sleep 1000 & echo kept").await;
        let exec = Exec { timeout: Duration::from_millis(100), ..Exec::new("sleep 300") };
        let outcome = sandbox.exec(exec).await.expect("run");
        assert_eq!(outcome.status, Status::TimedOut);
        assert_eq!(outcome.still_running.len(), 1, "{:?}", outcome.still_running);
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_064_a_process_whose_first_thread_has_ended_is_ended_too() {
    // The process table calls it a zombie while its other thread goes on.
    let script = "import threading, time, ctypes
def work():
    while True:
        with open(\"out\", \"a\") as out: out.write(\"x\")
        time.sleep(0.01)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60, 0)";
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let outcome =
            run(&sandbox, &format!("setsid python3 -c '{script}' & until test -s out; do sleep 0.01; done")).await;
        assert_eq!(outcome.still_running.len(), 1, "{:?}", outcome.still_running);
        sandbox.restart().await.expect("restart");
        let sizes = "a=$(stat -c %s out); sleep 0.3; test $a = $(stat -c %s out) && echo same";
        assert_eq!(output(&sandbox, sizes).await, "same\n", "{}", driver.name());
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn a_dropped_call_ends_its_command() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        output(&sandbox, "mkfifo begun").await;
        {
            let running = sandbox.exec(Exec::new("echo > begun; sleep 1000"));
            let begun = sandbox.exec(Exec::new("cat begun"));
            tokio::select! {
                _ = running => panic!("the command ended by itself"),
                begun = begun => { begun.expect("the command has begun"); }
            }
        }
        let deadline = Instant::now() + PROMPT;
        while !sandbox.processes().await.expect("list").is_empty() {
            assert!(Instant::now() < deadline, "the command lives on");
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_065_command_waits_for_a_human() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        assert_ne!(run(&sandbox, "read x").await.status, Status::Exited(0));
        assert_eq!(run(&sandbox, "cat").await.status, Status::Exited(0));
        // Each fails by itself, in seconds, with a hint; programs that this machine lacks are left out.
        for (program, command) in [
            ("bash", "exec 3<>/dev/tty"),
            ("bash", "exec 3<>$(tty)"),
            ("python3", "python3 -c 'input(\"Ok to proceed? \")'"),
            ("python3", "python3 -c 'import getpass; getpass.getpass()'"),
            ("sudo", "sudo -k ls"),
            (
                "git",
                "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && git -c user.name=a -c user.email=a@b rebase -i --root",
            ),
            ("git", "printf 'protocol=https\\nhost=example.org\\n\\n' | git credential fill"),
        ] {
            if run(&sandbox, &format!("command -v {program}")).await.status != Status::Exited(0) {
                continue;
            }
            let outcome = run(&sandbox, command).await;
            assert!(matches!(outcome.status, Status::Exited(code) if code != 0), "{command}: {:?}", outcome.status);
            // Without an own view of devices, `tty` names nothing and bash says something else.
            if command != "exec 3<>$(tty)" {
                let hints = outcome.notes.iter().filter(|note| note.contains("nobody can give")).count();
                assert_eq!(hints, 1, "{} {command}: {} {:?}", driver.name(), text(&outcome), outcome.notes);
            }
        }
        let outcome = run(&sandbox, "ssh -oConnectTimeout=5 127.0.0.1").await;
        assert_ne!(outcome.status, Status::TimedOut);
        assert_eq!(
            output(&sandbox, "echo $CI $GIT_TERMINAL_PROMPT $DEBIAN_FRONTEND $PAGER").await,
            "1 0 noninteractive cat\n"
        );
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_066_a_prompt_for_a_password_fails_at_once_and_says_so() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        for prompt in ["[sudo] password for u: ", "Passwort f\u{fc}r u: ", "u@host\u{2019}s password:"] {
            // In parts, as a program writes that asks with echo off.
            let middle = prompt.char_indices().nth(7).expect("long enough").0;
            let (first, second) = prompt.split_at(middle);
            let command = format!("printf '%s' '{first}'; printf '%s' '{second}'; read -r answer || exit 3");
            let outcome = run(&sandbox, &command).await;
            assert_eq!(outcome.status, Status::Exited(3), "{}", text(&outcome));
            assert!(
                outcome.notes.iter().any(|note| note.contains(&format!("{:?}", prompt.trim()))),
                "{:?}",
                outcome.notes
            );
        }
        // One that makes itself a terminal waits there; its limit ends it, and the hint names the question.
        let own = "import os, pty, sys
def ask(): os.execvp(\"bash\", [\"bash\", \"-c\", \"read -rsp \\\"[sudo] password for u: \\\" x < /dev/tty\"])
pid, fd = pty.fork()
if pid == 0: ask()
while True:
    data = os.read(fd, 100)
    os.write(1, data)";
        let exec = Exec { timeout: Duration::from_secs(3), ..Exec::new(format!("python3 -c '{own}'")) };
        let outcome = sandbox.exec(exec).await.expect("run");
        // Where no terminal can be made it fails at once; both are told.
        assert_ne!(outcome.status, Status::Exited(0));
        if outcome.status == Status::TimedOut && text(&outcome).contains("password for") {
            assert!(outcome.notes.iter().any(|note| note.contains("password for u")), "{:?}", outcome.notes);
        }
        // A program that only prints the word wants nothing.
        let outcome = run(&sandbox, "echo password; echo 'wrong password:'; exit 1").await;
        assert_eq!(outcome.notes, Vec::<String>::new());
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_067_giant_output_is_counted_cut_and_capped_on_disk() {
    for driver in drivers().await {
        let folders = Folders::new();
        let mut spec: Spec = folders.spec();
        spec.limits.output_bytes = 1024 * 1024;
        let sandbox = driver.start(spec).await.expect("start");
        let before = resident_bytes();
        let outcome = run(&sandbox, "echo first; yes | head -c 300000000; echo last").await;
        let grown = resident_bytes().saturating_sub(before);
        assert_eq!(outcome.status, Status::Exited(0));
        assert_eq!(outcome.total_bytes, 300_000_000 + 6 + 5);
        assert!(outcome.head.starts_with(b"first\n"));
        assert!(outcome.tail.ends_with(b"last\n"));
        assert!(outcome.head.len() + outcome.tail.len() <= tenure_sandbox::OUTPUT_BYTES);
        assert_eq!(std::fs::metadata(outcome.log_path.expect("a log")).expect("metadata").len(), 1024 * 1024);
        assert!(grown < 16 * 1024 * 1024, "memory grew by {grown} bytes");
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_067_output_without_lines_and_binary_output_are_counted_too() {
    for driver in drivers().await {
        let folders = Folders::new();
        let mut spec: Spec = folders.spec();
        spec.limits.output_bytes = 1024 * 1024;
        let sandbox = driver.start(spec).await.expect("start");
        for command in ["head -c 100000000 /dev/zero | tr '\\0' x", "head -c 100000000 /dev/zero", "seq 1 12000000"] {
            let outcome = run(&sandbox, command).await;
            assert_eq!(outcome.status, Status::Exited(0), "{command}");
            let expected = if command.starts_with("seq") { 96_888_897 } else { 100_000_000 };
            assert_eq!(outcome.total_bytes, expected, "{command}");
            assert!(outcome.head.len() + outcome.tail.len() <= tenure_sandbox::OUTPUT_BYTES);
            assert_eq!(std::fs::metadata(outcome.log_path.expect("a log")).expect("metadata").len(), 1024 * 1024);
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_081_raw_bytes_are_kept_in_the_log() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let command = "printf 'a\\033[2J\\033]52;c;aGk=\\007\\r1%%\\r2%%\\342\\200\\256\\000\\377'";
        let raw = b"a\x1b[2J\x1b]52;c;aGk=\x07\r1%\r2%\xe2\x80\xae\0\xff";
        let outcome = run(&sandbox, command).await;
        assert_eq!(outcome.head, raw, "o_030: the null byte too");
        assert_eq!(std::fs::read(outcome.log_path.expect("a log")).expect("read"), raw);
        sandbox.stop().await;
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

#[tokio::test]
async fn o_078_zombies_are_reaped() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        // The whole number of the case where the table is the sandbox's own; elsewhere the way is the same.
        let count = if driver.name() == "namespace" { 20_000 } else { 2_000 };
        output(&sandbox, &format!("for ((i = 0; i < {count}; i++)); do (: &) ; done")).await;
        let table = output(&sandbox, "ps -eo stat,ppid | grep -c '^Z' || true").await;
        let zombies: u32 = table.trim().parse().expect("a number");
        assert!(zombies < 50, "{zombies} zombies");
        assert_eq!(sandbox.processes().await.expect("list"), Vec::new());
        sandbox.stop().await;
    }
}

/// What agents try; a program that this machine lacks ends with 127.
const WITHOUT_NETWORK: [&str; 6] = [
    "curl -sS http://192.0.2.1/",
    "curl -sS http://example.org/",
    "git clone -q https://example.org/x.git",
    "python3 -c 'import urllib.request; urllib.request.urlopen(\"http://example.org\")'",
    "ssh -oConnectTimeout=5 example.org",
    "exec 3<>/dev/tcp/192.0.2.1/80",
];

#[tokio::test]
async fn a_command_that_failed_for_want_of_a_network_is_told_why() {
    for driver in drivers().await {
        if driver.name() == "process" {
            continue;
        }
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let outcome = run(&sandbox, "echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6").await;
        assert!(outcome.network_hint.is_some());
        let outcome = run(&sandbox, "echo 'no such file' >&2; exit 6").await;
        assert_eq!(outcome.network_hint, None);
        if driver.name() == "namespace" {
            for command in WITHOUT_NETWORK {
                let outcome = run(&sandbox, command).await;
                assert_ne!(outcome.status, Status::Exited(0), "{command}");
                let is_missing = outcome.status == Status::Exited(127);
                assert!(is_missing || outcome.network_hint.is_some(), "{command}: {}", text(&outcome));
            }
            // A server of the sandbox's own that is not there is no matter of the network.
            let outcome = run(&sandbox, "curl -sS http://127.0.0.1:9/ || exit 1").await;
            assert_eq!(outcome.network_hint, None, "{}", text(&outcome));
        }
        sandbox.stop().await;
        let spec = Spec { network: Network::Host, ..folders.spec() };
        let sandbox = driver.start(spec).await.expect("start with the host's network");
        assert_eq!(sandbox.guarantees().state(tenure_sandbox::Item::Net), tenure_sandbox::State::Missing);
        sandbox.stop().await;
    }
}
