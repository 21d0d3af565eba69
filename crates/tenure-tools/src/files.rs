//! The tools that work on files, with the view and confinement of commands.

use crate::clean::{clean, whole_end};
use crate::input::Fields;
use crate::run::{SandboxProvider, ToolResult, told};
use std::borrow::Cow;
use tenure_sandbox::{FileOp, FileReply};

/// Text of a file that one read shows.
const SHOWN_BYTES: usize = 60_000;

async fn work(op: FileOp, sandboxes: &dyn SandboxProvider) -> Result<FileReply, String> {
    let sandbox = sandboxes.sandbox().await.map_err(|error| told(&error))?;
    sandbox.file(op).await.map_err(|error| told(&error))
}

pub(crate) async fn read(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let path = fields.path("file_path")?;
    let range = fields.range("view_range")?.map(|(first, last)| lines(first, last)).transpose()?;
    let op = match range {
        None => FileOp::Read { path, offset: 0, limit: SHOWN_BYTES as u64 },
        Some((first, last)) => FileOp::ReadLines { path, first, last },
    };
    let FileReply::Content { bytes, file_bytes, truncated } = work(op, sandboxes).await? else {
        return Err(unexpected());
    };
    let is_cut = truncated || bytes.len() > SHOWN_BYTES;
    let kept = bytes.get(..SHOWN_BYTES).unwrap_or(&bytes);
    let kept = if is_cut { whole_end(kept) } else { kept };
    // Not cleaned as output of commands is: an edit must find what was shown.
    let text = String::from_utf8_lossy(kept);
    let mut notes = Vec::new();
    if matches!(text, Cow::Owned(_)) {
        notes.push("bytes that are not UTF-8 are shown as U+FFFD; an edit cannot match them".to_owned());
    }
    if is_cut {
        let first = range.map_or(1, |(first, _)| first);
        let next = first + kept.iter().filter(|byte| **byte == b'\n').count() as u64;
        notes.push(if next == first {
            format!(
                "cut inside line {first}; the file has {file_bytes} bytes; use bash with cut or tail -c for the rest"
            )
        } else {
            format!(
                "cut before the end of line {next}; the file has {file_bytes} bytes; go on with view_range [{next}, -1]"
            )
        });
    }
    let mut text = match (text.is_empty(), range) {
        (false, _) => text.into_owned(),
        (true, Some((first, _))) if file_bytes > 0 => format!("(no line {first}; the file has {file_bytes} bytes)"),
        (true, _) => "(empty file)".to_owned(),
    };
    for note in notes {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[{note}]"));
    }
    Ok(ToolResult::done(text))
}

/// First and last line of a range; no last one is the end of the file.
fn lines(first: i64, last: i64) -> Result<(u64, Option<u64>), String> {
    let wrong =
        |why: String| Err(format!("view_range: {why}; give [first, last], counted from 1; last -1 is the end."));
    match (u64::try_from(first).unwrap_or(0), u64::try_from(last).unwrap_or(0)) {
        (0, _) => wrong(format!("there is no line {first}")),
        (first, 0) => Ok((first, None)),
        (first, last) if last < first => wrong(format!("the last line, {last}, comes before the first, {first}")),
        (first, last) => Ok((first, Some(last))),
    }
}

pub(crate) async fn write(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let (path, content) = (fields.path("file_path")?, fields.any_text("content")?.into_bytes());
    let size = content.len();
    let FileReply::Written { created } = work(FileOp::Write { path: path.clone(), content }, sandboxes).await? else {
        return Err(unexpected());
    };
    let verb = if created { "created" } else { "replaced" };
    Ok(ToolResult::done(format!("{verb} {path} ({size} bytes)")))
}

pub(crate) async fn edit(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let path = fields.path("file_path")?;
    let (old, new) = (fields.any_text("old_string")?, fields.any_text("new_string")?);
    if old.is_empty() {
        return Err("old_string: is empty; give the text to replace, or use write to make a file.".to_owned());
    }
    if old == new {
        return Err("new_string: is the same as old_string, so nothing would change.".to_owned());
    }
    let replace_all = fields.flag("replace_all")?;
    let FileReply::Edited { replaced } =
        work(FileOp::Edit { path: path.clone(), old, new, replace_all }, sandboxes).await?
    else {
        return Err(unexpected());
    };
    Ok(ToolResult::done(format!("edited {path} ({replaced} replaced)")))
}

pub(crate) async fn glob(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let op = FileOp::Glob { pattern: fields.path("pattern")?, path: fields.maybe_path("path")? };
    matches(op, sandboxes).await
}

pub(crate) async fn grep(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let op = FileOp::Grep { pattern: fields.text("pattern")?, path: fields.maybe_path("path")? };
    matches(op, sandboxes).await
}

async fn matches(op: FileOp, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let FileReply::Matches { lines, truncated } = work(op, sandboxes).await? else { return Err(unexpected()) };
    if lines.is_empty() {
        return Ok(ToolResult::done("(no matches)"));
    }
    let mut text = lines.iter().map(|line| clean(line)).collect::<Vec<_>>().join("\n");
    if truncated {
        text.push_str("\n[more matches exist; narrow the pattern]");
    }
    Ok(ToolResult::done(text))
}

fn unexpected() -> String {
    "The sandbox gave an answer that does not fit the request.".to_owned()
}
