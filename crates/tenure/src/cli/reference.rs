//! The reference of the command line, written from the definition of the commands, so that it cannot
//! say what the program does not do.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::fmt::Write;

/// Where the page is, seen from this crate.
const PAGE: &str = "../../docs/reference/command-line.md";
/// Variable that makes the test write the page instead of comparing it.
const UPDATE: &str = "TENURE_UPDATE_DOCS";

/// What no definition says.
const HEAD: &str = r#"# The command line

This page is written from the program: `TENURE_UPDATE_DOCS=1 cargo test -p tenure reference` makes it anew, and a
test fails while it is stale.

## What holds for every command

- **Results go to standard output, everything else to standard error**: progress, warnings, errors, and hints, which
  start with `hint:`. `tenure run … > answer.txt` writes the answer and nothing else.
- **`--json`** gives one JSON value per line, with the fields of [the API](api.md). Errors are one JSON value on
  standard error, with the same `code`.
- **An id can be any unique tail of it.** `tenure why 9z8` is enough where one session ends so. If several do, the
  error names them. `…9z8`, as lists show it, works too.
- **Text of agents, tools and files is inert on a terminal.** Escape sequences, control characters and characters that
  reorder text are shown as visible marks: `␛[2J`, `<U+202E>`. `cat` into a pipe and `cp` give the bytes as they are.
- **Nothing is asked back** unless standard input is a terminal. Colour is used for the word `error` alone, never with
  `NO_COLOR`, with `TERM=dumb` or in a pipe.
- **Ctrl-C** detaches from a session, which goes on. It stops `dev`, `serve`, `worker` and `demo` in order; a second
  one at once.

The server is the one that is named by `--server` or `TENURE_SERVER`; without them, the one that runs on the data
folder. The key is `TENURE_API_KEY`, else the file `api.key` of the data folder, which is sent to this machine only.

| exit code | meaning |
|---|---|
| 0 | done; for `run`: the turn has ended |
| 1 | failed for another reason; for `doctor`: a check failed |
| 2 | the command line, a definition or the configuration is wrong |
| 3 | there is no such thing |
| 4 | no key, or a wrong one |
| 5 | in use, or decided otherwise before |
| 6 | the session failed, or stopped at a limit before its turn was done |
| 7 | the session was cancelled |
| 8 | the time limit of the command is over; the session goes on |
| 9 | the server was not reached, or did not answer in time |
"#;

fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Flags of every command\n\n");
    arguments(&mut page, cli.get_arguments().filter(|argument| argument.is_global_set()));
    for command in cli.get_subcommands() {
        describe(&mut page, command, "tenure");
    }
    page
}

fn describe(page: &mut String, command: &Command, above: &str) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{above} {}", command.get_name());
    let own = || command.get_arguments().filter(|argument| is_shown(argument));
    let mut usage = name.clone();
    for argument in own().filter(|argument| argument.is_positional()) {
        write!(usage, " {}", given(argument)).expect("writing to a string does not fail");
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## {name}\n\n{about}.\n\n`{usage}`\n").expect("writing to a string does not fail");
    if own().next().is_some() {
        page.push('\n');
        arguments(page, own());
    }
    command.get_subcommands().for_each(|inner| describe(page, inner, &name));
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !argument.is_global_set() && argument.get_id() != "help"
}

fn arguments<'a>(page: &mut String, list: impl Iterator<Item = &'a Arg>) {
    page.push_str("| argument | meaning |\n|---|---|\n");
    for argument in list {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let defaults: Vec<String> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        let default = if defaults.is_empty() || !takes_value {
            String::new()
        } else {
            format!("; default: {}", defaults.join(", "))
        };
        let possible: Vec<String> =
            argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        let possible =
            if possible.is_empty() || !takes_value { String::new() } else { format!(": {}", possible.join(", ")) };
        let meaning = format!("{help}{possible}{default}").replace('|', "\\|");
        writeln!(page, "| `{}` | {meaning} |", given(argument).replace('|', "\\|"))
            .expect("writing to a string does not fail");
    }
}

/// An argument as it is typed.
fn given(argument: &Arg) -> String {
    let values: Vec<String> = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let value = if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
    let dots = if argument.get_num_args().is_some_and(|range| range.max_values() > 1) { " …" } else { "" };
    if argument.is_positional() {
        let text = format!("{value}{dots}");
        return if argument.is_required_set() { text } else { format!("[{text}]") };
    }
    let long = argument.get_long().map(|long| format!("--{long}")).unwrap_or_default();
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    format!("{short}{long} {value}").trim_end().to_owned()
}

#[test]
fn the_reference_of_the_command_line_is_what_the_program_knows() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "{PAGE} is stale: {UPDATE}=1 cargo test -p tenure reference");
}

#[test]
fn every_command_of_the_guides_exists() {
    use clap::Parser;
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut seen = 0;
    for folder in ["guides", "reference"] {
        for entry in std::fs::read_dir(docs.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().filter_map(|line| line.strip_prefix("$ tenure ")) {
                let command = line.split("   #").next().unwrap_or(line);
                let words = words(command);
                let parsed = Cli::try_parse_from(std::iter::once("tenure".to_owned()).chain(words));
                assert!(parsed.is_ok(), "{}: {line}\n{}", path.display(), parsed.unwrap_err());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "the guides show commands: {seen}");
}

/// Splits as a shell does, as far as the guides need it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.trim().chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ' ') => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            (None, '>' | '|' | '&') => break,
            (_, c) => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}
