//! What the model is told of what came.

use crate::sandbox::{Scripted, call, outcome};
use tenure_sandbox::{Error, ErrorKind, FileReply, Outcome, Process, Status};
use tenure_tools::{Call, Toolset};
use tokio_util::sync::CancellationToken;

async fn told(outcome: Outcome) -> (bool, String) {
    let result = call("bash", r#"{"command":"x"}"#, &Scripted::command(outcome)).await;
    (result.is_error, result.content.join("\n"))
}

#[tokio::test]
async fn every_end_of_a_command_has_its_words() {
    for (status, is_error, expected) in [
        (Status::Exited(0), false, "out\n"),
        (Status::Exited(2), true, "out\n[exit code 2]"),
        (Status::Signalled(11), true, "out\n[ended by signal 11]"),
        (
            Status::TimedOut,
            true,
            "out\n[timeout: it ran longer than 120000 ms and was ended with everything it started]",
        ),
        (Status::KilledByMemory, true, "out\n[out of memory: a process was killed at the memory limit of the sandbox]"),
        (Status::KilledByDisk, true, "out\n[out of disk: it was killed at the disk limit of the sandbox]"),
        (Status::Lost, true, "out\n[the sandbox ended while this ran; what it did is unknown]"),
    ] {
        let outcome = Outcome { status, ..outcome(b"out\n") };
        assert_eq!(told(outcome).await, (is_error, expected.to_owned()));
    }
    assert_eq!(told(outcome(b"")).await, (false, "(no output)".to_owned()));
}

#[tokio::test]
async fn o_063_what_still_runs_is_listed_and_bounded() {
    let still_running =
        (1..=12).map(|pid| Process { pid, parent: 1, command: format!("sleep {pid}\u{1b}[2J") }).collect();
    let (is_error, text) = told(Outcome { still_running, ..outcome(b"hi\n") }).await;
    assert!(!is_error);
    let listed: Vec<String> = (1..=10).map(|pid| format!("{pid} sleep {pid}")).collect();
    assert_eq!(text, format!("hi\n[still running: {} and 2 more]", listed.join("; ")));
}

#[tokio::test]
async fn a_missing_network_and_a_lost_working_directory_are_said() {
    let network_hint = Some("no network".to_owned());
    let notes = vec!["the directory is gone".to_owned()];
    let outcome = Outcome { status: Status::Exited(6), network_hint, notes, ..outcome(b"curl: (6)") };
    assert_eq!(told(outcome).await.1, "curl: (6)\n[exit code 6]\n[no network]\n[the directory is gone]");
}

#[tokio::test]
async fn o_067_giant_output_shows_head_tail_and_the_true_count() {
    let head = "a\u{20ac}".repeat(10).into_bytes();
    let tail = "\u{20ac}z".repeat(10).into_bytes();
    // Both cuts fall into a character.
    let cut = Outcome {
        tail: tail[1..].to_vec(),
        total_bytes: 1_000_000_000,
        log_path: Some("/log".into()),
        ..outcome(&head[..head.len() - 1])
    };
    let shown = head.len() - 1 + tail.len() - 1;
    let result = call("bash", r#"{"command":"yes"}"#, &Scripted::command(cut)).await;
    let expected = format!(
        "{}a\n[… {} of 1000000000 bytes left out; the full output is kept …]\nz{}",
        "a\u{20ac}".repeat(9),
        1_000_000_000 - shown,
        "\u{20ac}z".repeat(9)
    );
    assert_eq!(result.content, [expected]);
    assert_eq!(result.log_path.as_deref(), Some(std::path::Path::new("/log")));
}

#[tokio::test]
async fn o_081_o_030_control_characters_in_output_are_cleaned_and_a_nul_is_shown() {
    let mut raw = b"a\0b\x1b[2J\x1b]52;c;aGk=\x07\xe2\x80\xae".to_vec();
    for percent in 0..10_000 {
        raw.extend(format!("\r{percent}%").bytes());
    }
    raw.extend(b"\nend\n");
    assert_eq!(told(outcome(&raw)).await, (false, "9999%\nend\n".to_owned()));
    assert_eq!(told(outcome(b"a\0b")).await, (false, "a\u{2400}b".to_owned()));
}

async fn read(input: &str, bytes: &[u8], file_bytes: u64, truncated: bool) -> (Vec<String>, String) {
    let sandbox = Scripted::file(Ok(FileReply::Content { bytes: bytes.to_vec(), file_bytes, truncated }));
    let result = call("read", input, &sandbox).await;
    assert!(!result.is_error, "{:?}", result.content);
    (sandbox.asked(), result.content.join("\n"))
}

#[tokio::test]
async fn a_range_reads_its_lines_and_one_without_a_last_line_reads_to_the_end() {
    for (range, expected) in [
        ("[3,7]", r#"{"first":3,"last":7}"#),
        ("[3,-1]", r#"{"first":3,"last":null}"#),
        ("[3,0]", r#"{"first":3,"last":null}"#),
    ] {
        let input = format!(r#"{{"file_path":"a","view_range":{range}}}"#);
        let (asked, text) = read(&input, b"line\n", 100, false).await;
        assert_eq!(asked[1].replace(r#""path":"a","#, ""), format!(r#"file {{"read_lines":{expected}}}"#));
        assert_eq!(text, "line\n");
    }
    let beyond = r#"{"file_path":"a","view_range":[300,-1]}"#;
    assert_eq!(read(beyond, b"", 100, false).await.1, "(no line 300; the file has 100 bytes)");
    assert_eq!(read(r#"{"file_path":"a"}"#, b"", 0, false).await.1, "(empty file)");
}

#[tokio::test]
async fn a_file_is_shown_as_it_is_so_that_an_edit_finds_it() {
    let text = "a\r\nb\u{1b}[31m\u{202e}\0\n";
    assert_eq!(read(r#"{"file_path":"a"}"#, text.as_bytes(), 12, false).await.1, text);
    assert_eq!(
        read(r#"{"file_path":"a"}"#, b"bad \xff", 5, false).await.1,
        "bad \u{fffd}\n[bytes that are not UTF-8 are shown as U+FFFD; an edit cannot match them]"
    );
}

#[tokio::test]
async fn a_long_file_says_where_to_go_on() {
    let input = r#"{"file_path":"a"}"#;
    let (_, text) = read(input, b"one\ntwo\nthr\xe2\x82", 1_000, true).await;
    assert_eq!(
        text,
        "one\ntwo\nthr\n[cut before the end of line 3; the file has 1000 bytes; go on with view_range [3, -1]]"
    );
    let (_, text) = read(r#"{"file_path":"a","view_range":[9,-1]}"#, b"one\ntw", 1_000, true).await;
    assert!(text.contains("go on with view_range [10, -1]"), "{text}");
    let (_, text) = read(input, b"one long line", 1_000, true).await;
    assert!(text.contains("cut inside line 1") && text.contains("use bash"), "{text}");
}

#[tokio::test]
async fn matches_are_one_inert_line_each_and_say_when_there_are_more() {
    let matches = |lines: &[&[u8]], truncated| {
        Scripted::file(Ok(FileReply::Matches { lines: lines.iter().map(|line| line.to_vec()).collect(), truncated }))
    };
    let input = r#"{"pattern":"x"}"#;
    assert_eq!(call("grep", input, &matches(&[], false)).await.content, ["(no matches)"]);
    assert_eq!(
        call("glob", input, &matches(&[b"esc\x1b[2J", b"bad\xff"], true)).await.content,
        ["esc\nbad\u{fffd}\n[more matches exist; narrow the pattern]"]
    );
}

#[tokio::test]
async fn failures_of_the_sandbox_become_results() {
    for (kind, expected) in [
        (ErrorKind::Lost, "The sandbox ended while this ran; what it did is unknown."),
        (ErrorKind::Fenced, "This worker no longer holds the session."),
        (ErrorKind::Unavailable, "The sandbox cannot be started: why"),
        (ErrorKind::Refused, "why"),
        (ErrorKind::NotFound, "why"),
        (ErrorKind::TimedOut, "why"),
        (ErrorKind::Io, "why"),
    ] {
        let sandbox = Scripted::file(Err(Error::new(kind, "why")));
        let result = call("read", r#"{"file_path":"a"}"#, &sandbox).await;
        assert_eq!((result.is_error, result.content.as_slice()), (true, &[expected.to_owned()][..]));
    }
}

#[tokio::test]
async fn a_cancelled_call_says_that_it_was_stopped() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let call = Call { id: "1".into(), name: "bash".into(), input: r#"{"command":"x"}"#.into() };
    struct Never;
    #[async_trait::async_trait]
    impl tenure_tools::SandboxProvider for Never {
        async fn sandbox(&self) -> Result<std::sync::Arc<dyn tenure_sandbox::Incarnation>, Error> {
            std::future::pending().await
        }
    }
    let result = Toolset.run(call, &Never, cancel).await;
    assert_eq!((result.is_error, result.content), (true, vec!["Stopped.".to_owned()]));
}
