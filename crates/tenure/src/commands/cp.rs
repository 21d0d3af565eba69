//! `tenure cp FROM TO`, one of them `SESSION:PATH`: files and folders, either way.

use super::ls::query;
use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, progress, time};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tenure_api::client::{Client, Download};
use tenure_files::{ImportLimits, PackLimits, Packed, Progress, Workspace, pack};
use tokio::sync::{mpsc, watch};

/// Pieces of an archive that wait between its writer and its reader.
const PIECES: usize = 16;
/// Size of a piece.
const PIECE_BYTES: usize = 64 * 1024;

/// From where to where.
#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// A path of this machine, or SESSION:PATH.
    from: String,
    /// A path of this machine, or SESSION:PATH.
    to: String,
    /// Copy from this state: live, the id of a snapshot, or seq:NUMBER for what that event saw.
    #[arg(long, value_name = "STATE")]
    at: Option<String>,
}

/// One side of a copy.
#[derive(Debug)]
enum Side {
    Here(PathBuf),
    There { session: String, path: String },
}

impl Side {
    /// A colon before the first slash means a session, as with scp.
    fn read(text: &str) -> Self {
        match text.split_once(':') {
            Some((session, path)) if !session.is_empty() && !session.contains('/') => {
                Self::There { session: session.to_owned(), path: path.trim_start_matches('/').to_owned() }
            }
            Some(_) | None => Self::Here(PathBuf::from(text)),
        }
    }
}

impl Cp {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let doing = |failure: Failure| failure.doing(&format!("copy {} to {}", self.from, self.to));
        let client = common.target().connect()?;
        let done = match (Side::read(&self.from), Side::read(&self.to)) {
            (Side::Here(from), Side::There { session, path }) => {
                if self.at.is_some() {
                    return Err(Failure::new(Exit::Usage, "--at: files are copied to a session as it is now")
                        .fix("tenure cp notes.md SESSION:notes.md"));
                }
                let id = session_id(&client, &session).await?;
                upload(&client, &id, &from, &path).await.map_err(doing)?
            }
            (Side::There { session, path }, Side::Here(to)) => {
                let id = session_id(&client, &session).await?;
                download(&client, &id, &path, self.at.as_deref(), &to).await.map_err(doing)?
            }
            (Side::Here(_), Side::Here(_)) | (Side::There { .. }, Side::There { .. }) => {
                return Err(Failure::new(
                    Exit::Usage,
                    "one side must be SESSION:PATH, the other one a path of this machine",
                )
                .fix("tenure cp SESSION:report.md .      or   tenure cp notes.md SESSION:notes.md"));
            }
        };
        match common.format() {
            Format::Json => output::json(&done)?,
            Format::Human => {
                output::say(&format!("copied {}", inert::line(done.get("to").and_then(Value::as_str).unwrap_or(""))))
            }
        }
        Ok(Exit::Ok)
    }
}

async fn upload(client: &Client, id: &str, from: &Path, path: &str) -> Result<Value, Failure> {
    let found = std::fs::metadata(from).map_err(|error| local(from, &error))?;
    if found.is_dir() {
        return upload_folder(client, id, from, path).await;
    }
    let name = from.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let path = if path.is_empty() || path.ends_with('/') { format!("{path}{name}") } else { path.to_owned() };
    let file = tokio::fs::File::open(from).await.map_err(|error| local(from, &error))?;
    let mode = found.permissions().mode() & 0o777;
    // The octal number is text in the address.
    let mode = format!("{mode:o}");
    let query = [("path", path.as_str()), ("mode", mode.as_str())];
    let url = ["v1", "sessions", id, "files", "content"];
    let body = reqwest::Body::wrap_stream(tokio_util::io::ReaderStream::with_capacity(file, PIECE_BYTES));
    let what = format!("sending {} ({})", from.display(), time::size(found.len()));
    progress::watch(&what, client.put(&url, &query, "application/octet-stream", body)).await?;
    Ok(json!({ "from": from, "to": format!("…{}:{path}", tail(id)), "size_bytes": found.len() }))
}

/// Puts a folder into a folder of the workspace, without what its `.tenureignore` files name.
pub(crate) async fn upload_folder(client: &Client, id: &str, from: &Path, path: &str) -> Result<Value, Failure> {
    let found = std::fs::metadata(from).map_err(|error| local(from, &error))?;
    if !found.is_dir() {
        return Err(Failure::new(Exit::Usage, format!("{} is no folder", from.display())));
    }
    let (sender, mut receiver) = mpsc::channel::<std::io::Result<Vec<u8>>>(PIECES);
    let (told, so_far) = watch::channel(Progress::default());
    let folder = from.to_path_buf();
    let writer = tokio::task::spawn_blocking(move || {
        let mut pieces = std::io::BufWriter::with_capacity(PIECE_BYTES, Pieces(sender.clone()));
        let packed = pack(&folder, &mut pieces, PackLimits::default(), |progress| {
            told.send_replace(progress);
        });
        let packed = packed.map_err(|error| error.message);
        let packed = packed.and_then(|packed| pieces.flush().map(|()| packed).map_err(|error| error.to_string()));
        if let Err(message) = &packed {
            // The request must fail too: half an archive is not the folder.
            let _ = sender.blocking_send(Err(std::io::Error::other(message.clone())));
        }
        packed
    });
    let stream = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    let url = ["v1", "sessions", id, "files", "archive"];
    let query = [("path", path)];
    let request = client.put(&url, &query, "application/x-tar", reqwest::Body::wrap_stream(stream));
    let what = || {
        let Progress { entries, bytes, total_entries, total_bytes } = *so_far.borrow();
        let (bytes, total_bytes) = (time::size(bytes), time::size(total_bytes));
        format!("sending {} ({entries} of {total_entries} entries, {bytes} of {total_bytes})", from.display())
    };
    let sent = progress::watch_changing(what, request).await;
    match (writer.await.map_err(anyhow::Error::from)?, sent) {
        // A server that refuses early breaks the writer: its refusal is the reason.
        (_, Err(error)) if error.refusal().is_some() => Err(error.into()),
        (Err(message), _) => Err(Failure::new(Exit::Failed, format!("cannot send {}", from.display())).why(message)),
        (Ok(_), Err(error)) => Err(error.into()),
        (Ok(packed), Ok(reply)) => {
            tell_left_out(&packed);
            Ok(json!({
                "from": from, "to": format!("…{}:{path}", tail(id)), "entries": packed.entries,
                "size_bytes": packed.bytes, "left_out": packed.left_out_count, "unpacked": reply,
            }))
        }
    }
}

/// Names what cannot be in a workspace; what an ignore file names is left out silently.
fn tell_left_out(packed: &Packed) {
    /// Most entries that are named.
    const NAMED: usize = 5;
    for entry in packed.left_out.iter().take(NAMED) {
        let path = String::from_utf8_lossy(&entry.path);
        output::say(&format!("warning: left out {}: {}", inert::line(&path), inert::line(&entry.why)));
    }
    let rest = packed.left_out_count.saturating_sub(NAMED as u64);
    if rest > 0 {
        output::say(&format!("warning: left out {rest} more"));
    }
}

async fn download(client: &Client, id: &str, path: &str, at: Option<&str>, to: &Path) -> Result<Value, Failure> {
    let query = query(path, at);
    let content = ["v1", "sessions", id, "files", "content"];
    let opened = if path.is_empty() { None } else { Some(client.download(&content, &query).await) };
    match opened {
        Some(Ok(file)) => download_file(file, path, to).await,
        Some(Err(error)) if error.refusal().is_none_or(|refusal| refusal.code.as_deref() != Some("not_a_file")) => {
            Err(error.into())
        }
        Some(Err(_)) | None => {
            let archive = client.download(&["v1", "sessions", id, "files", "archive"], &query).await?;
            download_folder(archive, path, to).await
        }
    }
}

/// Writes beside the target and renames, so that a broken connection leaves no half file.
async fn download_file(mut file: Download, path: &str, to: &Path) -> Result<Value, Failure> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let target = if to.is_dir() { to.join(safe_name(name)?) } else { to.to_path_buf() };
    let mut partial: OsString = target.clone().into_os_string();
    partial.push(".partial");
    let work = async {
        let mut out = std::fs::File::create(&partial).map_err(|error| local(&target, &error))?;
        let mut size = 0;
        while let Some(chunk) = file.chunk().await? {
            size += chunk.len();
            out.write_all(&chunk).map_err(|error| local(&target, &error))?;
        }
        std::fs::rename(&partial, &target).map_err(|error| local(&target, &error))?;
        Ok::<_, Failure>(size)
    };
    let written = progress::watch(&format!("fetching {name}"), work).await;
    if written.is_err() {
        // It may not even have been made.
        let _ = std::fs::remove_file(&partial);
    }
    Ok(json!({ "from": path, "to": target, "size_bytes": written? }))
}

/// Unpacks beneath the target; links of the archive are made, never followed.
async fn download_folder(mut archive: Download, path: &str, to: &Path) -> Result<Value, Failure> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
    let target = if to.is_dir() && !name.is_empty() { to.join(safe_name(name)?) } else { to.to_path_buf() };
    std::fs::create_dir_all(&target).map_err(|error| local(&target, &error))?;
    let folder = target.canonicalize().map_err(|error| local(&target, &error))?;
    let workspace = Workspace::open(&folder).map_err(|error| Failure::new(Exit::Failed, error.message))?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let reader = tokio::task::spawn_blocking(move || {
        workspace.import_tar(b"", &mut Received { receiver, piece: Vec::new(), at: 0 }, ImportLimits::default())
    });
    let fetch = async {
        while let Some(chunk) = archive.chunk().await? {
            if sender.send(chunk.to_vec()).await.is_err() {
                break;
            }
        }
        drop(sender);
        Ok::<_, Failure>(())
    };
    progress::watch(&format!("fetching {}", if name.is_empty() { "the workspace" } else { name }), fetch).await?;
    let imported =
        reader.await.map_err(anyhow::Error::from)?.map_err(|error| Failure::new(Exit::Failed, error.message))?;
    Ok(
        json!({ "from": path, "to": target, "entries": imported.entries, "size_bytes": imported.bytes, "skipped": imported.skipped }),
    )
}

/// The last part of a remote path must be a name on this machine, not a way out of the folder.
fn safe_name(name: &str) -> Result<&str, Failure> {
    if name.is_empty() || matches!(name, "." | "..") || name.contains(['/', '\0']) {
        return Err(
            Failure::new(Exit::Usage, format!("{name:?} cannot be a file name here")).fix("name the target file")
        );
    }
    Ok(name)
}

fn local(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
}

/// Writes into a channel; a full one makes the writer wait.
struct Pieces(mpsc::Sender<std::io::Result<Vec<u8>>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.blocking_send(Ok(bytes.to_vec())).map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads from a channel.
struct Received {
    receiver: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Received {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.at == self.piece.len() {
            match self.receiver.blocking_recv() {
                Some(piece) => (self.piece, self.at) = (piece, 0),
                None => return Ok(0),
            }
        }
        let size = into.len().min(self.piece.len() - self.at);
        into[..size].copy_from_slice(&self.piece[self.at..self.at + size]);
        self.at += size;
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_means_a_session() {
        assert!(matches!(Side::read("9z8:src/a.rs"), Side::There { .. }));
        assert!(matches!(Side::read("./a:b"), Side::Here(_)));
        assert!(matches!(Side::read("a.rs"), Side::Here(_)));
    }

    #[test]
    fn a_remote_name_never_leads_out_of_the_folder() {
        assert!(safe_name("..").is_err() && safe_name("").is_err() && safe_name("a.rs").is_ok());
    }
}
