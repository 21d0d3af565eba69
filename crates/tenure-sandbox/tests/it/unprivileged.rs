//! Runs the suite again without root.

use crate::contain::{contained, left_out};
use std::process::Command;

/// Most processes of the second run, by the kernel, below the bound of the container: what goes wrong
/// without root does not hurt the run with root beside it.
const NET: &str = "ulimit -u 3000; exec \"$0\" \"$@\"";

/// User and group of the second run.
const NOBODY: u32 = 65_534;

#[test]
fn the_suite_passes_without_root_too() {
    use std::os::unix::process::CommandExt;
    if std::fs::metadata("/proc/self").map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata)).ok() != Some(0) {
        eprintln!("left out: this run has no root, so it is the unprivileged one already");
        return;
    }
    // The second run is a child of this one, so it is in the same container.
    let bombs: &[&str] = match contained() {
        Ok(()) => &[],
        Err(why) => {
            left_out(&format!("the sandbox's fork bomb without root: {why}"));
            &["--skip", "o_077"]
        }
    };
    // The folder of the build may be closed to others; a copy is not.
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let suite = folder.path().join("suite");
    let launcher = folder.path().join("launcher");
    std::fs::copy(std::env::current_exe().expect("own path"), &suite).expect("copy");
    std::fs::copy(env!("CARGO_BIN_EXE_sandbox-launcher"), &launcher).expect("copy");
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).expect("a folder");
    std::os::unix::fs::chown(&scratch, Some(NOBODY), Some(NOBODY)).expect("chown");
    let run = Command::new("bash")
        .args(["-c", NET])
        .arg(&suite)
        .args(["--skip", "the_suite_passes_without_root_too", "--test-threads", "2"])
        .args(bombs)
        .env("TENURE_TEST_LAUNCHER", &launcher)
        .env("TMPDIR", &scratch)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    println!("{text}");
    assert!(run.status.success(), "the unprivileged run failed");
}
