//! How results and messages are shown: results on stdout, messages on stderr, the same words with and
//! without colour.

pub(crate) mod inert;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod time;

use crate::failure::{Exit, Failure};
use serde_json::Value;
use std::io::{IsTerminal, Write};

/// Human text or JSON for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences.
    Human,
    /// One JSON value per line.
    Json,
}

/// Writes one line of result. A reader that went away (`| head`) ends the program quietly.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    raw(format!("{text}\n").as_bytes())
}

/// Writes result bytes as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(Exit::Ok as i32),
        Err(error) => Err(Failure::new(Exit::Failed, "cannot write to standard output").why(error.to_string())),
    }
}

/// Writes one JSON value as a line of result.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    line(&value.to_string())
}

/// Writes a message for the person, not for a program.
pub(crate) fn say(text: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Says what could be done next.
pub(crate) fn hint(text: &str) {
    say(&format!("hint: {text}"));
}

/// Shows a failure in the wanted form.
pub(crate) fn fail(failure: &Failure, format: Format) {
    match format {
        Format::Json => say(&failure.to_json().to_string()),
        Format::Human => say(&failure.render(if has_colour() { "\x1b[31merror\x1b[0m" } else { "error" })),
    }
}

/// Whether stdout shows escape sequences to a person.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns of the terminal that shows stdout; nothing for a file or a pipe.
pub(crate) fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    // A terminal that does not know its size says 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn has_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}
