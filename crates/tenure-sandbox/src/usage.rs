//! Checks the disk cap while a command runs, since most machines have no quota to enforce it.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::port::Spec;

/// Shortest time between two checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// A check may take at most this part of the time between two.
const SHARE: u32 = 20;
/// Deepest directory that is counted.
const DEPTH: usize = 256;

/// Calls `kill` when workspace and home together pass the cap. Never returns; drop it.
pub(crate) async fn watch(spec: &Spec, kill: impl Fn() + Send + Sync + 'static) -> Infallible {
    let mut wait = INTERVAL;
    let paths = [spec.workspace.clone(), spec.state_dir.join("home")];
    loop {
        tokio::time::sleep(wait).await;
        let paths = paths.clone();
        let begun = Instant::now();
        let used = tokio::task::spawn_blocking(move || paths.iter().map(|path| bytes(path)).sum::<u64>());
        if used.await.is_ok_and(|used| used > spec.limits.disk_bytes) {
            kill();
        }
        wait = INTERVAL.max(begun.elapsed() * SHARE);
    }
}

/// Bytes on disk below a directory; links are counted, not followed.
fn bytes(start: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let (mut queue, mut total): (Vec<(PathBuf, usize)>, u64) = (vec![(start.to_owned(), 0)], 0);
    while let Some((directory, depth)) = queue.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            total = total.saturating_add(metadata.blocks().saturating_mul(512));
            if metadata.is_dir() && depth < DEPTH {
                queue.push((entry.path(), depth + 1));
            }
        }
    }
    total
}
