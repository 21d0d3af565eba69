//! How a command fails: exit code, and the error block of the terminal and of `--json`.

use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;
use tenure_api::client;

/// Exit codes; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// Failed for another reason.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// No key, or a wrong one.
    Auth = 4,
    /// It is in use or was decided otherwise.
    Conflict = 5,
    /// The session failed, or stopped without finishing its turn.
    SessionFailed = 6,
    /// The session was cancelled.
    SessionCancelled = 7,
    /// The time limit of the command is over.
    TimedOut = 8,
    /// The server was not reached.
    Unreachable = 9,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// A failed command. First what failed, then why, then what to do, then code and request id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    what: String,
    why: Vec<String>,
    fix: Option<String>,
    code: Option<String>,
    docs: Option<String>,
    request_id: Option<String>,
}

impl Failure {
    /// Starts with what failed, lower case, without a full stop.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: Vec::new(), fix: None, code: None, docs: None, request_id: None }
    }

    /// Adds a reason; an empty one is left out.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        let why = why.into();
        if !why.is_empty() {
            self.why.push(why);
        }
        self
    }

    /// Says what to do.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Names the kind for programs.
    pub(crate) fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Puts the object in front of what the server said.
    pub(crate) fn doing(mut self, action: &str) -> Self {
        let what = std::mem::take(&mut self.what);
        self.why.insert(0, what);
        self.what = format!("cannot {action}");
        self
    }

    /// The error as JSON, with the fields of the API.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "type": "error", "error": {
            "message": self.what, "why": self.why, "hint": self.fix, "code": self.code, "docs": self.docs,
            "exit": self.exit as u8,
        }, "request_id": self.request_id })
    }

    /// The error block with the word `error` perhaps in colour.
    pub(crate) fn render(&self, error_word: &str) -> String {
        use crate::output::inert;
        let mut text = format!("{error_word}: {}", inert::line(&self.what));
        for why in &self.why {
            text.push_str(&format!("\n  {}", inert::line(why)));
        }
        if let Some(fix) = &self.fix {
            text.push_str(&format!("\n  fix:   {}", inert::line(fix)));
        }
        let last = [("code", &self.code), ("docs", &self.docs), ("request", &self.request_id)];
        let last: Vec<String> =
            last.iter().filter_map(|(name, value)| Some(format!("{name}: {}", inert::line(value.as_ref()?)))).collect();
        if !last.is_empty() {
            text.push_str(&format!("\n  {}", last.join("   ")));
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("error"))
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Failure>() {
            Ok(failure) => failure,
            Err(error) => match error.downcast::<client::Error>() {
                Ok(error) => error.into(),
                Err(error) => {
                    let mut chain = error.chain();
                    let what = chain.next().map(ToString::to_string).unwrap_or_default();
                    chain.fold(Failure::new(Exit::Failed, what), |failure, cause| failure.why(cause.to_string()))
                }
            },
        }
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        let what = error.to_string();
        match error {
            client::Error::Refused(refusal) => {
                let exit = match refusal.status {
                    401 | 403 => Exit::Auth,
                    404 | 410 => Exit::NotFound,
                    409 | 422 => Exit::Conflict,
                    400 | 413 | 415 => Exit::Usage,
                    _ => Exit::Failed,
                };
                let auth_fix = (exit == Exit::Auth && refusal.hint.is_none())
                    .then(|| "TENURE_API_KEY=KEY, or --data DIR of the server on this machine".to_owned());
                Failure {
                    exit,
                    what,
                    why: Vec::new(),
                    fix: refusal.hint.or(auth_fix),
                    code: refusal.code,
                    docs: refusal.docs,
                    request_id: refusal.request_id,
                }
            }
            client::Error::Unreachable { source, base, .. } => {
                let mut failure = Failure::new(Exit::Unreachable, what).code("server_unreachable");
                let mut cause = std::error::Error::source(&source);
                let mut last = None;
                while let Some(inner) = cause {
                    last = Some(inner.to_string());
                    cause = inner.source();
                }
                failure = failure.why(last.unwrap_or_default());
                match client::is_loopback_address(&base) {
                    true => failure.fix("tenure dev      check: tenure doctor"),
                    false => failure.fix("check the address and that a server runs there: tenure doctor --server URL"),
                }
            }
            client::Error::Address { .. } | client::Error::Unsendable { .. } => Failure::new(Exit::Usage, what),
            client::Error::Unreadable { .. } => Failure::new(Exit::Failed, what)
                .fix("check that a tenure server of this version listens there: tenure version")
                .code("answer_unreadable"),
        }
    }
}
