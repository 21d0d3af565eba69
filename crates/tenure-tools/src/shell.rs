//! The bash tool.

use crate::clean::clean;
use crate::input::Fields;
use crate::run::{SandboxProvider, ToolResult, told};
use std::time::Duration;
use tenure_sandbox::{Exec, Outcome, Status};

/// Longest time that a command may ask for.
const MAX_TIMEOUT: Duration = Duration::from_secs(6 * 3_600);

/// Output that the model sees, head and tail together.
const SHOWN_BYTES: usize = 30_000;

/// Processes that are named when a command leaves some behind.
const SHOWN_PROCESSES: usize = 10;

pub(crate) async fn bash(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let restart = fields.flag("restart")?;
    let command = fields.maybe_text("command")?;
    let timeout = fields.number("timeout_ms")?;
    if command.is_none() && !restart {
        return Err("command: is missing; give the command as a string.".to_owned());
    }
    let sandbox = sandboxes.sandbox().await.map_err(|error| told(&error))?;
    if restart {
        sandbox.restart().await.map_err(|error| told(&error))?;
    }
    let Some(command) = command else { return Ok(ToolResult::done("All processes were ended; the shell is fresh.")) };
    let mut exec = Exec { output_bytes: SHOWN_BYTES, ..Exec::new(command) };
    if let Some(millis) = timeout {
        // The cast saturates; nothing at all is the shortest time there is.
        exec.timeout = Duration::from_millis((millis as u64).max(1)).min(MAX_TIMEOUT);
    }
    let limit = exec.timeout;
    let outcome = sandbox.exec(exec).await.map_err(|error| told(&error))?;
    Ok(report(&outcome, limit))
}

fn report(outcome: &Outcome, limit: Duration) -> ToolResult {
    let mut text = clean(&outcome.head);
    if !outcome.tail.is_empty() {
        let shown = (outcome.head.len() + outcome.tail.len()) as u64;
        let left_out = outcome.total_bytes.saturating_sub(shown);
        text.push_str(&format!(
            "\n[… {left_out} of {} bytes left out; the full output is kept …]\n",
            outcome.total_bytes
        ));
        text.push_str(&clean(&outcome.tail));
    }
    let mut notes: Vec<String> = Vec::new();
    match outcome.status {
        Status::Exited(0) => {}
        Status::Exited(code) => notes.push(format!("exit code {code}")),
        Status::Signalled(signal) => notes.push(format!("ended by signal {signal}")),
        Status::TimedOut => notes.push(format!(
            "timeout: it ran longer than {} ms and was ended with everything it started",
            limit.as_millis()
        )),
        Status::KilledByMemory => {
            notes.push("out of memory: a process was killed at the memory limit of the sandbox".to_owned())
        }
        Status::KilledByDisk => notes.push("out of disk: it was killed at the disk limit of the sandbox".to_owned()),
        Status::Lost => notes.push("the sandbox ended while this ran; what it did is unknown".to_owned()),
    }
    notes.extend(outcome.network_hint.clone());
    notes.extend(outcome.notes.iter().cloned());
    if !outcome.still_running.is_empty() {
        let listed = outcome.still_running.iter().take(SHOWN_PROCESSES);
        let listed: Vec<String> =
            listed.map(|process| format!("{} {}", process.pid, clean(process.command.as_bytes()))).collect();
        let more = outcome.still_running.len().saturating_sub(SHOWN_PROCESSES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!("still running: {}{more}", listed.join("; ")));
    }
    for note in notes {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[{note}]"));
    }
    if text.is_empty() {
        text.push_str("(no output)");
    }
    let is_error = outcome.status != Status::Exited(0);
    ToolResult { content: vec![text], is_error, log_path: outcome.log_path.clone() }
}
