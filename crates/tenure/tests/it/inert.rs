//! What agents write cannot steer the terminal of the person who looks at it.

use crate::house::{House, on_a_terminal};
use std::process::Stdio;

/// Clears the screen, sets the clipboard, reorders text, and hides behind carriage returns.
const EVIL: &str = r#"
[[turn]]
do = [
  { say = "x\u001b[2Jy\u001b]52;c;aGk=\u0007 safe\u202etxt.exe a\u0000b 1%\r2%\r", pieces = 7 },
  { call = "bash", input = { command = "printf 'a\\033[2Jb\\033]52;c;aGk=\\007\\342\\200\\256\\0nul\\r'; printf 'raw\\033[2J\\342\\200\\256\\0\\233x' > evil.txt; touch \"$(printf 'e\\033[2Jvil')\"; false" } },
]
[[turn]]
do = [{ say = "done" }]
"#;

#[track_caller]
fn is_inert(shown: &[u8]) {
    let text = String::from_utf8_lossy(shown);
    // A terminal gets CR LF for each line feed; nothing else of that kind is ours.
    let text = text.replace("\r\n", "\n");
    let bad =
        text.chars().find(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202e}' | '\u{fffe}'));
    assert_eq!(bad, None, "{text:?}");
}

#[test]
fn o_081_control_characters_in_output() {
    let house = House::dev().scenario("evil", EVIL);
    let title = "t\u{1b}[2J\u{202e}";
    let run = house.run(&["run", "--model", "script/evil", "--title", title, "go"]).ok();
    assert!(run.stdout.contains("␛[2J") && run.stdout.contains("<U+202E>"), "{run:?}");
    let id = house.run(&["ps", "--json"]).ok().one()["id"].as_str().unwrap().to_owned();
    for shown in [run.stdout, run.stderr] {
        is_inert(shown.as_bytes());
    }
    let file = format!("{id}:evil.txt");
    for given in
        [&["logs", &id][..], &["logs", &id, "--full"], &["why", &id], &["ps"], &["ls", &id], &["ls", "--long", &id]]
    {
        let ran = house.run(given).ok();
        is_inert(ran.stdout.as_bytes());
        is_inert(ran.stderr.as_bytes());
    }
    // Raw bytes are kept: a pipe gets the file as it is, a terminal does not.
    let piped = house.command(&["cat", &file]).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(piped.stdout, b"raw\x1b[2J\xe2\x80\xae\0\x9bx");
    let shown = on_a_terminal(house.command(&["cat", &file]));
    is_inert(&shown);
    assert!(String::from_utf8_lossy(&shown).starts_with("raw␛[2J<U+202E>␀"), "{:?}", String::from_utf8_lossy(&shown));
    // Followed on a terminal, the answer comes in pieces that split its escape sequences.
    let live = on_a_terminal(house.command(&["run", "--model", "script/evil", "go"]));
    is_inert_but_for_our_own(&live);
    assert!(String::from_utf8_lossy(&live).contains("␛[2J"), "{:?}", String::from_utf8_lossy(&live));
    // Error messages repeat what was typed.
    let error = house.run(&["why", "z\u{1b}[2J"]).fails(3);
    is_inert(error.as_bytes());
}

/// The clock of `asking the server …` moves to the first column and clears the line.
#[track_caller]
fn is_inert_but_for_our_own(shown: &[u8]) {
    let text = String::from_utf8_lossy(shown);
    let ours = regex::Regex::new("\r\u{1b}\\[K([a-z ]+ … \\d+ s)?").unwrap();
    let text = ours.replace_all(&text, "").into_owned();
    is_inert(text.as_bytes());
}
