//! Runs calls.

use crate::input::Fields;
use crate::{files, shell};
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::Arc;
use tenure_sandbox::{Error, ErrorKind, Incarnation};
use tokio_util::sync::CancellationToken;

/// Makes the sandbox when a tool first needs it.
#[async_trait]
pub trait SandboxProvider: Send + Sync {
    /// The sandbox of the session.
    async fn sandbox(&self) -> Result<Arc<dyn Incarnation>, Error>;
}

/// A call to run.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text.
    pub input: String,
}

/// What a call gave.
#[derive(Clone, Debug, Default)]
pub struct ToolResult {
    /// Texts for the model.
    pub content: Vec<String>,
    /// Whether it failed.
    pub is_error: bool,
    /// Host file with the full output of a command.
    pub log_path: Option<PathBuf>,
}

impl ToolResult {
    /// A result that succeeded.
    pub fn done(text: impl Into<String>) -> Self {
        Self { content: vec![text.into()], ..Self::default() }
    }

    /// A result that failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { content: vec![text.into()], is_error: true, log_path: None }
    }
}

/// Each tool of the sandbox and the fields that it takes.
const TOOLS: [(&str, &[&str]); 6] = [
    ("bash", &["command", "restart", "timeout_ms"]),
    ("read", &["file_path", "view_range"]),
    ("write", &["file_path", "content"]),
    ("edit", &["file_path", "old_string", "new_string", "replace_all"]),
    ("glob", &["pattern", "path"]),
    ("grep", &["pattern", "path"]),
];

/// The tools that work in a sandbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toolset;

impl Toolset {
    /// Runs a call to its end, or until `cancel`; its processes are gone when this returns.
    pub async fn run(&self, call: Call, sandboxes: &dyn SandboxProvider, cancel: CancellationToken) -> ToolResult {
        let Some(tool) = TOOLS.iter().find(|tool| tool.0 == call.name) else {
            let names: Vec<&str> = TOOLS.iter().map(|tool| tool.0).collect();
            return ToolResult::failed(format!(
                "There is no tool named {} in the sandbox; it has {}. Call one of them by its own name.",
                call.name,
                names.join(", ")
            ));
        };
        let fields = match Fields::parse(tool.0, tool.1, &call.input) {
            Ok(fields) => fields,
            Err(message) => return ToolResult::failed(message),
        };
        let run = async {
            let mut result = dispatch(&call.name, &fields, sandboxes).await.unwrap_or_else(ToolResult::failed);
            // A misspelt field does nothing; a model that does not learn of it waits for its effect.
            result.content.extend(fields.unknown().map(|unknown| format!("[ignored: {unknown}]")));
            result
        };
        tokio::select! {
            result = run => result,
            // Dropping the run kills the command's tree.
            () = cancel.cancelled() => ToolResult::failed("Stopped."),
        }
    }
}

async fn dispatch(name: &str, fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    match name {
        "bash" => shell::bash(fields, sandboxes).await,
        "read" => files::read(fields, sandboxes).await,
        "write" => files::write(fields, sandboxes).await,
        "edit" => files::edit(fields, sandboxes).await,
        "glob" => files::glob(fields, sandboxes).await,
        "grep" => files::grep(fields, sandboxes).await,
        other => Err(format!("There is no tool named {other} in the sandbox.")),
    }
}

/// What the model is told about an error of the sandbox.
pub(crate) fn told(error: &Error) -> String {
    match error.kind {
        ErrorKind::Unavailable => format!("The sandbox cannot be started: {error}"),
        ErrorKind::Lost => "The sandbox ended while this ran; what it did is unknown.".to_owned(),
        ErrorKind::Fenced => "This worker no longer holds the session.".to_owned(),
        ErrorKind::Refused | ErrorKind::NotFound | ErrorKind::TimedOut | ErrorKind::Io => error.to_string(),
    }
}
