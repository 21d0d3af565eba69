//! Full outputs of commands, kept beside the sandbox under the id of their call.

use std::fs;
use std::io;
use std::path::Path;
use tenure_core::EventId;

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

/// Keeps the log of a call in `folder`, and removes the oldest outputs beyond the bounds.
pub(crate) fn keep(folder: &Path, call: EventId, log: &Path, bounds: Bounds) -> io::Result<()> {
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
            keep(path, EventId::from_bits(call << 64), &path.join("new"), bounds).unwrap();
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
}
