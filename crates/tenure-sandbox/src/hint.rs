//! Recognises commands that failed because the sandbox has no network, and those that wanted an answer.
//!
//! Both are guesses from the output, made only when a command did not end well. They are shown beside
//! the output, never instead of it.

use crate::port::Status;

/// Words of common programs and libraries for "there is no network".
const NO_NETWORK: [&str; 16] = [
    "could not resolve host",
    "network is unreachable",
    "temporary failure in name resolution",
    "temporary failure resolving",
    "name or service not known",
    "failed to resolve",
    "no route to host",
    "enotfound",
    "eai_again",
    "enetunreach",
    "nodename nor servname provided",
    "dns error",
    "failed to lookup address information",
    "no address associated with hostname",
    "unable to resolve host address",
    "getaddrinfo",
];

/// What programs say of any server; it means the network unless the server is the sandbox itself.
const NO_SERVER: [&str; 2] = ["couldn't connect to server", "could not connect to server"];
/// Names of the sandbox itself.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// Words of common programs for "there is no terminal to ask on" and "standard input is empty".
const NO_TERMINAL: [&str; 17] = [
    "a terminal is required",
    "no tty present",
    "/dev/tty",
    "device is not a tty",
    "must be run from a terminal",
    "inappropriate ioctl for device",
    "error opening terminal",
    "terminal is dumb",
    "terminal prompts disabled",
    "read askpass response",
    "problem with the editor",
    "eof when reading a line",
    "eoferror",
    "no yes option",
    "host key verification failed",
    "[y/n] abort",
    "password change has been aborted",
];

/// Characters of a question that are quoted.
const SHOWN: usize = 80;

/// Says that there is no network, if the output looks like it.
pub(crate) fn network(head: &[u8], tail: &[u8]) -> Option<String> {
    let text = lower(head, tail);
    let no_server = |line: &str| {
        NO_SERVER.into_iter().find(|sign| line.contains(sign) && !LOOPBACK.iter().any(|own| line.contains(own)))
    };
    let sign = NO_NETWORK.into_iter().find(|sign| text.contains(sign)).or_else(|| text.lines().find_map(no_server))?;
    Some(format!(
        "the sandbox has no network (the output says {sign:?}); trying again will not help. \
         Work with what is installed, or ask for an environment with network = \"host\""
    ))
}

/// Says that nobody can answer, if the output of a command that did not end well looks like a question
/// (cases O-065 and O-066). An unfinished last line that ends like a question is one in any language.
pub(crate) fn question(status: Status, head: &[u8], tail: &[u8]) -> Option<String> {
    match status {
        Status::Exited(0) | Status::KilledByMemory | Status::KilledByDisk | Status::Lost => return None,
        Status::Exited(_) | Status::Signalled(_) | Status::TimedOut => {}
    }
    let text = lower(head, tail);
    let sign = NO_TERMINAL.into_iter().find(|sign| text.contains(sign)).map(str::to_owned);
    let asked = sign.or_else(|| unanswered(if tail.is_empty() { head } else { tail }))?;
    Some(format!(
        "it seems to want an answer (the output says {asked:?}), which nobody can give: standard input is empty and \
         there is no terminal. Say it beforehand, with an option such as --yes, a file or a variable; do without \
         what needs a password, and never put one into a command"
    ))
}

fn lower(head: &[u8], tail: &[u8]) -> String {
    [String::from_utf8_lossy(head), String::from_utf8_lossy(tail)].join("\n").to_lowercase()
}

/// The last line, if it is unfinished and looks like a question.
fn unanswered(end: &[u8]) -> Option<String> {
    let line = end.rsplit(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    let choice = line.rfind(['[', '(']).and_then(|at| line.get(at..)).is_some_and(|choice| choice.contains('/'));
    let is_question = line.ends_with([':', '?', '\u{ff1a}', '\u{ff1f}']) || line.ends_with([']', ')']) && choice;
    let start = line.char_indices().rev().nth(SHOWN - 1).map_or(0, |(at, _)| at);
    is_question.then(|| line.get(start..).unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_066_questions_are_told_from_words() {
        let asked = |status, text: &str| question(status, text.as_bytes(), b"").is_some();
        let failed = Status::Exited(1);
        for text in [
            "sudo: a terminal is required to read the password; either use the -S option",
            "log\n[sudo] password for u: ",
            "Passwort für u: ",
            "パスワード： ",
            "Continue? [Y/n] ",
            "Overwrite (yes/no)",
            "bash: line 1: /dev/tty: No such device or address",
            "EOFError: EOF when reading a line",
        ] {
            assert!(asked(failed, text), "{text}");
            assert!(asked(Status::TimedOut, text), "{text}");
            assert!(!asked(Status::Exited(0), text), "{text}");
            assert!(!asked(Status::KilledByMemory, text), "{text}");
        }
        for text in ["password", "password\n", "wrong password:\n", "error: it failed\n", "done 5/9 [ok]", "", "\n"] {
            assert!(!asked(failed, text), "{text}");
        }
        let head = "Password: ".repeat(9);
        assert!(question(failed, head.as_bytes(), b"other\n").is_none(), "only the end counts");
        assert!(question(failed, &b"Password: ".repeat(100), b"").is_some_and(|note| note.len() < 400));
    }

    #[test]
    fn a_server_that_does_not_answer_means_the_network_unless_it_is_the_sandbox_itself() {
        let hint = |text: &str| network(text.as_bytes(), b"").is_some();
        assert!(hint("curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server"));
        assert!(!hint("curl: (7) Failed to connect to 127.0.0.1 port 80 after 0 ms: Couldn't connect to server"));
        assert!(!hint("curl: (7) Failed to connect to localhost port 80 after 0 ms: Couldn't connect to server"));
        assert!(!hint("connect: connection refused"));
    }
}
