//! The tools that work on files, with the view and confinement of commands.

use crate::clean::clean;
use crate::input::Fields;
use crate::run::{SandboxProvider, ToolResult, told};
use tenure_sandbox::{FileOp, FileReply};

/// Text of a file that one read shows.
const SHOWN_BYTES: usize = 60_000;

async fn work(op: FileOp, sandboxes: &dyn SandboxProvider) -> Result<FileReply, String> {
    let sandbox = sandboxes.sandbox().await.map_err(|error| told(&error))?;
    sandbox.file(op).await.map_err(|error| told(&error))
}

pub(crate) async fn read(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let path = fields.text("file_path")?;
    let op = match fields.range("view_range")? {
        None => FileOp::Read { path, offset: 0, limit: SHOWN_BYTES as u64 },
        Some((first, last)) => {
            FileOp::ReadLines { path, first: u64::try_from(first).unwrap_or(1).max(1), last: u64::try_from(last).ok() }
        }
    };
    let FileReply::Content { mut bytes, file_bytes, truncated } = work(op, sandboxes).await? else {
        return Err(unexpected());
    };
    let is_cut = truncated || bytes.len() > SHOWN_BYTES;
    bytes.truncate(SHOWN_BYTES);
    let mut text = clean(&bytes);
    if is_cut {
        text.push_str(&format!("\n[the file has {file_bytes} bytes; read on with view_range]"));
    }
    Ok(ToolResult::done(if text.is_empty() { "(empty file)".to_owned() } else { text }))
}

pub(crate) async fn write(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let (path, content) = (fields.text("file_path")?, fields.text("content")?.into_bytes());
    let size = content.len();
    let FileReply::Written { created } = work(FileOp::Write { path: path.clone(), content }, sandboxes).await? else {
        return Err(unexpected());
    };
    let verb = if created { "created" } else { "replaced" };
    Ok(ToolResult::done(format!("{verb} {path} ({size} bytes)")))
}

pub(crate) async fn edit(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let (path, old, new) = (fields.text("file_path")?, fields.text("old_string")?, fields.text("new_string")?);
    let replace_all = fields.flag("replace_all")?;
    let FileReply::Edited { replaced } =
        work(FileOp::Edit { path: path.clone(), old, new, replace_all }, sandboxes).await?
    else {
        return Err(unexpected());
    };
    Ok(ToolResult::done(format!("edited {path} ({replaced} replaced)")))
}

pub(crate) async fn glob(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let op = FileOp::Glob { pattern: fields.text("pattern")?, path: fields.maybe_text("path")? };
    matches(op, sandboxes).await
}

pub(crate) async fn grep(fields: &Fields, sandboxes: &dyn SandboxProvider) -> Result<ToolResult, String> {
    let op = FileOp::Grep { pattern: fields.text("pattern")?, path: fields.maybe_text("path")? };
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
