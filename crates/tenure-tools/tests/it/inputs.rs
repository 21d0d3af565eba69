//! Wrong inputs: each says what, where and what to do, and starts nothing.

use crate::sandbox::{Scripted, call};

/// A tool, an input, and what the answer must be.
const WRONG: [(&str, &str, &str); 36] = [
    ("bash", "", "command: is missing; give it as a string."),
    ("bash", "null", "command: is missing; give it as a string."),
    ("bash", "{}", "command: is missing; give it as a string."),
    ("bash", r#"{"command":null}"#, "command: is missing; give it as a string."),
    (
        "bash",
        r#"{"cmd":"ls"}"#,
        "command: is missing; give it as a string (\"cmd\": not known to bash, which takes command, restart, timeout_ms).",
    ),
    ("bash", r#"{"command":["ls"]}"#, "command: must be a string, not a list ([\"ls\"])."),
    ("bash", r#"{"command":"  "}"#, "command: is empty; give a shell command."),
    (
        "bash",
        r#"{"command":"a\u0000b"}"#,
        "command: holds a NUL character, which a shell cannot take; write it as $'\\0' or with printf.",
    ),
    ("bash", r#"{"command":"ls","restart":"yes"}"#, "restart: must be true or false, not a string (\"yes\")."),
    ("bash", r#"{"command":"ls","timeout_ms":"10s"}"#, "timeout_ms: must be a number, not a string (\"10s\")."),
    ("bash", r#"{"command":"ls","timeout_ms":-1}"#, "timeout_ms: must not be negative, as -1 is."),
    ("bash", "[]", "The input is a list; bash takes a JSON object with command, restart, timeout_ms."),
    ("bash", "\"ls\"", "The input is a string; bash takes a JSON object with command, restart, timeout_ms."),
    (
        "bash",
        r#"{"op": listt_files"}"#,
        "The input is not valid JSON: expected value at line 1 column 8; bash takes a JSON object with command, restart, timeout_ms.",
    ),
    (
        "bash",
        r#"{"command":"ls"#,
        "The input is not valid JSON: EOF while parsing a string at line 1 column 14; bash takes a JSON object with command, restart, timeout_ms.",
    ),
    ("read", "{}", "file_path: is missing; give it as a string."),
    ("read", r#"{"file_path":""}"#, "file_path: is empty."),
    ("read", r#"{"file_path":7}"#, "file_path: must be a string, not a number (7)."),
    ("read", r#"{"file_path":"a\u0000"}"#, "file_path: holds a NUL character, which no path can have."),
    (
        "read",
        r#"{"file_path":"a","view_range":"1-5"}"#,
        "view_range: must be two whole numbers, [first, last], as in [1, 40], not a string (\"1-5\").",
    ),
    (
        "read",
        r#"{"file_path":"a","view_range":[1]}"#,
        "view_range: must be two whole numbers, [first, last], as in [1, 40], not a list ([1]).",
    ),
    (
        "read",
        r#"{"file_path":"a","view_range":[1.5,2]}"#,
        "view_range: must be two whole numbers, [first, last], as in [1, 40], not a list ([1.5,2]).",
    ),
    (
        "read",
        r#"{"file_path":"a","view_range":[0,2]}"#,
        "view_range: there is no line 0; give [first, last], counted from 1; last -1 is the end.",
    ),
    (
        "read",
        r#"{"file_path":"a","view_range":[5,2]}"#,
        "view_range: the last line, 2, comes before the first, 5; give [first, last], counted from 1; last -1 is the end.",
    ),
    ("write", "{}", "file_path: is missing; give it as a string."),
    ("write", r#"{"file_path":"a"}"#, "content: is missing; give it as a string."),
    ("write", r#"{"file_path":"a","content":{"a":1}}"#, "content: must be a string, not an object ({\"a\":1})."),
    ("edit", r#"{"file_path":"a","old_string":"x"}"#, "new_string: is missing; give it as a string."),
    (
        "edit",
        r#"{"file_path":"a","old_string":"","new_string":"x"}"#,
        "old_string: is empty; give the text to replace, or use write to make a file.",
    ),
    (
        "edit",
        r#"{"file_path":"a","old_string":"x","new_string":"x"}"#,
        "new_string: is the same as old_string, so nothing would change.",
    ),
    (
        "edit",
        r#"{"file_path":"a","old_string":"x","new_string":"y","replace_all":1}"#,
        "replace_all: must be true or false, not a number (1).",
    ),
    ("glob", "{}", "pattern: is missing; give it as a string."),
    ("glob", r#"{"pattern":""}"#, "pattern: is empty."),
    ("glob", r#"{"pattern":"*","path":false}"#, "path: must be a string, not true or false (false)."),
    ("grep", r#"{"path":"src"}"#, "pattern: is missing; give it as a string."),
    ("grep", r#"{"pattern":null}"#, "pattern: is missing; give it as a string."),
];

#[tokio::test]
async fn o_012_a_wrong_input_of_any_tool_says_what_where_and_what_to_do_and_starts_nothing() {
    for (tool, input, expected) in WRONG {
        let sandbox = Scripted::default();
        let result = call(tool, input, &sandbox).await;
        assert!(result.is_error, "{tool} {input}");
        assert_eq!(result.content.first().map(String::as_str), Some(expected), "{tool} {input}");
        assert_eq!(sandbox.asked(), Vec::<String>::new(), "{tool} {input}");
    }
}

#[tokio::test]
async fn o_012_a_field_that_a_tool_does_not_know_is_named_and_does_nothing() {
    let sandbox = Scripted::default();
    let result = call("bash", r#"{"command":"ls","timeout":9,"description":"list"}"#, &sandbox).await;
    assert_eq!(
        (result.is_error, result.content),
        (
            false,
            vec![
                "(no output)".to_owned(),
                "[ignored: \"description\", \"timeout\": not known to bash, which takes command, restart, timeout_ms]"
                    .to_owned()
            ]
        )
    );
    assert_eq!(sandbox.asked(), ["sandbox", "exec \"ls\" 120000 ms"]);
    let many: Vec<String> = (0..50).map(|number| format!("\"{number}{}\":1", "x".repeat(1_000))).collect();
    let result = call("bash", &format!("{{\"command\":\"ls\",{}}}", many.join(",")), &Scripted::default()).await;
    assert!(result.content[1].len() < 500, "{}", result.content[1]);
}

#[tokio::test]
async fn time_limits_are_the_usual_one_the_given_one_or_the_longest_one() {
    for (given, expected) in
        [("0", 120_000), ("null", 120_000), ("1", 1), ("0.2", 1), ("2500", 2_500), ("1e300", 21_600_000)]
    {
        let sandbox = Scripted::default();
        call("bash", &format!(r#"{{"command":"ls","timeout_ms":{given}}}"#), &sandbox).await;
        assert_eq!(sandbox.asked()[1], format!("exec \"ls\" {expected} ms"), "{given}");
    }
}

#[tokio::test]
async fn restart_alone_runs_nothing_and_with_a_command_runs_it_afterwards() {
    for input in [r#"{"restart":true}"#, r#"{"restart":true,"command":""}"#, r#"{"restart":true,"command":null}"#] {
        let sandbox = Scripted::default();
        assert!(!call("bash", input, &sandbox).await.is_error);
        assert_eq!(sandbox.asked(), ["sandbox", "restart"]);
    }
    let sandbox = Scripted::default();
    call("bash", r#"{"restart":true,"command":"ls"}"#, &sandbox).await;
    assert_eq!(sandbox.asked(), ["sandbox", "restart", "exec \"ls\" 120000 ms"]);
}

#[tokio::test]
async fn o_014_an_unknown_tool_gets_an_error_that_names_the_tools() {
    for name in ["multi_tool_use.parallel", "search_files", "Bash", ""] {
        let sandbox = Scripted::default();
        let result = call(name, "{}", &sandbox).await;
        assert!(result.is_error);
        assert_eq!(
            result.content,
            [format!(
                "There is no tool named {name} in the sandbox; it has bash, read, write, edit, glob, grep. Call one of them by its own name."
            )]
        );
        assert_eq!(sandbox.asked(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn o_030_content_with_nul_reaches_the_file_exactly() {
    let sandbox = Scripted::default();
    call("write", r#"{"file_path":"a","content":"x\u0000y"}"#, &sandbox).await;
    assert_eq!(sandbox.asked()[1], r#"file {"write":{"path":"a"}} [120, 0, 121]"#);
}
