//! A sandbox that writes down what it is asked and answers what it is told to.

use async_trait::async_trait;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_sandbox::{Error, ErrorKind, Exec, FileOp, FileReply, Guarantees, Incarnation, Outcome, Process, Status};
use tenure_tools::{Call, SandboxProvider, ToolResult, Toolset};
use tokio_util::sync::CancellationToken;

/// What the sandbox was asked, in words.
#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Inner>);

#[derive(Default)]
struct Inner {
    asked: Mutex<Vec<String>>,
    outcomes: Mutex<VecDeque<Outcome>>,
    replies: Mutex<VecDeque<Result<FileReply, Error>>>,
    guarantees: Guarantees,
}

impl Scripted {
    pub(crate) fn command(outcome: Outcome) -> Self {
        let scripted = Self::default();
        scripted.0.outcomes.lock().unwrap().push_back(outcome);
        scripted
    }

    pub(crate) fn file(reply: Result<FileReply, Error>) -> Self {
        let scripted = Self::default();
        scripted.0.replies.lock().unwrap().push_back(reply);
        scripted
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.asked.lock().unwrap().clone()
    }

    fn ask(&self, what: String) {
        self.0.asked.lock().unwrap().push(what);
    }
}

/// An outcome with this output that ended well.
pub(crate) fn outcome(head: &[u8]) -> Outcome {
    Outcome {
        status: Status::Exited(0),
        head: head.to_vec(),
        tail: Vec::new(),
        total_bytes: head.len() as u64,
        log_path: None,
        still_running: Vec::new(),
        duration: Duration::ZERO,
        network_hint: None,
        notes: Vec::new(),
    }
}

#[async_trait]
impl SandboxProvider for Scripted {
    async fn sandbox(&self) -> Result<Arc<dyn Incarnation>, Error> {
        self.ask("sandbox".to_owned());
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Incarnation for Scripted {
    fn id(&self) -> &str {
        "scripted"
    }

    fn driver(&self) -> &'static str {
        "scripted"
    }

    fn guarantees(&self) -> &Guarantees {
        &self.0.guarantees
    }

    async fn exec(&self, exec: Exec) -> Result<Outcome, Error> {
        self.ask(format!("exec {:?} {} ms", exec.command, exec.timeout.as_millis()));
        let next = self.0.outcomes.lock().unwrap().pop_front();
        Ok(next.unwrap_or_else(|| outcome(b"")))
    }

    async fn file(&self, op: FileOp) -> Result<FileReply, Error> {
        let content = match &op {
            FileOp::Write { content, .. } => format!(" {content:?}"),
            FileOp::Read { .. }
            | FileOp::ReadLines { .. }
            | FileOp::Edit { .. }
            | FileOp::Glob { .. }
            | FileOp::Grep { .. } => String::new(),
        };
        self.ask(format!("file {}{content}", serde_json::to_string(&op).unwrap()));
        let next = self.0.replies.lock().unwrap().pop_front();
        next.unwrap_or_else(|| Err(Error::new(ErrorKind::NotFound, "nothing is scripted")))
    }

    async fn processes(&self) -> Result<Vec<Process>, Error> {
        Ok(Vec::new())
    }

    async fn restart(&self) -> Result<(), Error> {
        self.ask("restart".to_owned());
        Ok(())
    }

    async fn stop(&self) {}

    async fn lost(&self) {}
}

/// Runs a call.
pub(crate) async fn call(name: &str, input: &str, sandbox: &Scripted) -> ToolResult {
    let call = Call { id: "call_1".to_owned(), name: name.to_owned(), input: input.to_owned() };
    Toolset.run(call, sandbox, CancellationToken::new()).await
}
