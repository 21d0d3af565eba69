//! Full outputs of commands, kept beside the sandbox under the id of their call.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use tenure_core::EventId;
use tenure_core::redact::{Masker, StreamMasker};

/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;

/// Outputs that are kept for one session.
pub(crate) const MAX_OUTPUTS: usize = 1_000;

/// Bytes of outputs that are kept for one session; the newest one stays whatever its size, which
/// has a bound of its own.
pub(crate) const MAX_OUTPUT_BYTES: u64 = 512 * 1024 * 1024;

/// How much of the outputs of a session is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) outputs: usize,
    pub(crate) bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { outputs: MAX_OUTPUTS, bytes: MAX_OUTPUT_BYTES }
    }
}

/// Keeps the log of a call in `folder` without known secrets, and removes the oldest outputs beyond
/// the bounds.
pub(crate) fn keep(
    folder: &Path,
    call: EventId,
    log: &Path,
    masker: Option<&Masker>,
    bounds: Bounds,
) -> io::Result<()> {
    if let Some(masker) = masker {
        mask(log, masker)?;
    }
    // Processes that go on write into the same file under its new name.
    fs::rename(log, folder.join(format!("{call}.log")))?;
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_output = entry.file_name().to_str().and_then(|name| name.strip_suffix(".log")?.parse::<EventId>().ok());
        if let Some(id) = is_output {
            kept.push((id, entry.metadata()?.len(), entry.path()));
        }
    }
    // Ids are in the order of the calls.
    kept.sort_unstable_by_key(|(id, _, _)| std::cmp::Reverse(*id));
    let mut bytes = 0u64;
    for (place, (_, len, path)) in kept.iter().enumerate() {
        bytes = bytes.saturating_add(*len);
        if place > 0 && (place >= bounds.outputs || bytes > bounds.bytes) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Puts a masked copy in the place of a log that holds a secret. What processes write later is lost
/// then, rather than shown.
fn mask(log: &Path, masker: &Masker) -> io::Result<()> {
    if !holds_secret(log, masker)? {
        return Ok(());
    }
    let copy = log.with_extension("masked");
    let (mut from, mut to) = (File::open(log)?, BufWriter::new(File::create(&copy)?));
    let (mut stream, mut chunk) = (StreamMasker::new(masker.clone()), vec![0; CHUNK]);
    loop {
        let len = from.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
        to.write_all(&stream.push(bytes))?;
    }
    to.write_all(&stream.finish())?;
    to.flush()?;
    fs::rename(copy, log)
}

fn holds_secret(log: &Path, masker: &Masker) -> io::Result<bool> {
    let (mut from, mut stream) = (File::open(log)?, StreamMasker::new(masker.clone()));
    let (mut chunk, mut open) = (vec![0; CHUNK], Vec::new());
    loop {
        let len = from.read(&mut chunk)?;
        let bytes = chunk.get(..len).unwrap_or_default();
        open.extend_from_slice(bytes);
        let shown = if bytes.is_empty() { stream.finish() } else { stream.push(bytes) };
        if !open.starts_with(&shown) {
            return Ok(true);
        }
        open.drain(..shown.len());
        if bytes.is_empty() {
            return Ok(!open.is_empty());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_outputs_go_beyond_the_bounds_and_the_newest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::write(path.join("incarnation.json"), "x").unwrap();
        fs::write(path.join("other.log"), "not ours").unwrap();
        let add = |call: u128, size: usize, bounds| {
            fs::write(path.join("new"), vec![b'x'; size]).unwrap();
            keep(path, EventId::from_bits(call << 64), &path.join("new"), None, bounds).unwrap();
        };
        let kept = || {
            let names =
                (1..=9u128).filter(|call| path.join(format!("{}.log", EventId::from_bits(call << 64))).exists());
            names.collect::<Vec<_>>()
        };
        let bounds = Bounds { outputs: 3, bytes: 100 };
        for call in 1..=4 {
            add(call, 10, bounds);
        }
        assert_eq!(kept(), [2, 3, 4], "by number");
        add(5, 75, bounds);
        assert_eq!(kept(), [3, 4, 5], "95 bytes fit");
        add(6, 1_000, bounds);
        assert_eq!(kept(), [6], "the newest stays, whatever its size");
        assert!(path.join("incarnation.json").exists() && path.join("other.log").exists());
    }

    #[test]
    fn o_088_a_kept_output_holds_no_secret_wherever_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (path, secret) = (folder.path(), "sk-kept-0123456789");
        let masker = Masker::new([secret].into_iter());
        let kept = |text: &str| {
            let call = EventId::from_bits(7);
            fs::write(path.join("new"), text).unwrap();
            keep(path, call, &path.join("new"), Some(&masker), Bounds::default()).unwrap();
            fs::read_to_string(path.join(format!("{call}.log"))).unwrap()
        };
        for before in [0, 1, CHUNK - 5, CHUNK, 2 * CHUNK - 1] {
            let text = format!("{}{secret} after", "x".repeat(before));
            assert_eq!(kept(&text), text.replace(secret, "[redacted]"), "{before}");
        }
        let clean = "nothing of it, but sk-kept-01 begins like it\n".repeat(5_000);
        assert!(kept(&clean) == clean);
        assert!(kept("cut at the end sk-kept-0123") == "cut at the end sk-kept-0123");
    }
}
