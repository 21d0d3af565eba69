//! The bash tool.

use crate::clean::{clean, whole_end, whole_start};
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
    let command = match fields.maybe_text("command")? {
        // What an empty one would do is nothing; with restart that is what is asked for.
        Some(command) if command.trim().is_empty() && restart => None,
        None if restart => None,
        Some(command) if command.trim().is_empty() => return Err("command: is empty; give a shell command.".to_owned()),
        Some(command) if command.contains('\0') => {
            return Err(
                "command: holds a NUL character, which a shell cannot take; write it as $'\\0' or with printf."
                    .to_owned(),
            );
        }
        Some(command) => Some(command),
        None => return Err(fields.text("command").err().unwrap_or_default()),
    };
    let timeout = timeout(fields)?;
    let sandbox = sandboxes.sandbox().await.map_err(|error| told(&error))?;
    if restart {
        sandbox.restart().await.map_err(|error| told(&error))?;
    }
    let Some(command) = command else { return Ok(ToolResult::done("All processes were ended; the shell is fresh.")) };
    let mut exec = Exec { output_bytes: SHOWN_BYTES, ..Exec::new(command) };
    if let Some(timeout) = timeout {
        exec.timeout = timeout;
    }
    let limit = exec.timeout;
    let outcome = sandbox.exec(exec).await.map_err(|error| told(&error))?;
    Ok(report(&outcome, limit))
}

/// The time limit that the call names; none and zero mean the usual one.
fn timeout(fields: &Fields) -> Result<Option<Duration>, String> {
    match fields.number("timeout_ms")? {
        None | Some(0.0) => Ok(None),
        Some(millis) if millis < 0.0 => Err(format!("timeout_ms: must not be negative, as {millis} is.")),
        // The cast saturates; less than a millisecond is the shortest time there is.
        Some(millis) => Ok(Some(Duration::from_millis((millis as u64).max(1)).min(MAX_TIMEOUT))),
    }
}

fn report(outcome: &Outcome, limit: Duration) -> ToolResult {
    let is_cut = !outcome.tail.is_empty();
    let mut text = clean(if is_cut { whole_end(&outcome.head) } else { &outcome.head });
    if is_cut {
        let shown = (outcome.head.len() + outcome.tail.len()) as u64;
        let left_out = outcome.total_bytes.saturating_sub(shown);
        text.push_str(&format!(
            "\n[… {left_out} of {} bytes left out; the full output is kept …]\n",
            outcome.total_bytes
        ));
        text.push_str(&clean(whole_start(&outcome.tail)));
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
