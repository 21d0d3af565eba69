//! A control group around this whole program, so that no mistake of the product can fill the process
//! table of the machine that runs its tests.
//!
//! ```text
//! tenure-tests-PID   pids.max: nothing that a test starts, by whatever way, gets past it
//! └─ run             this program; groups of the product's drivers are made beside or below it
//! ```
//!
//! A watcher outside of the group sees this program end, kills what it left and removes the group.
//! Before the first test, a harmless crowd of threads proves that the bound holds. Where no such group
//! can be made, tests that start bombs are left out, and `cargo xtask test` says so.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Most processes and threads that all tests may have together: above what the suite needs, far below
/// what a machine has.
pub(crate) const MOST: u32 = 4_000;

/// Threads that the proof tries to start.
const CROWD: u32 = 5_000;

/// Start of the group's name.
const NAME: &str = "tenure-tests-";

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// Lines for the end of `cargo xtask test`.
const LEFT_OUT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/tenure-sandbox.left-out");

/// Waits for the end of its input, then ends and removes the group that it is given.
const WATCH: &str = r#"
cat
for round in $(seq 1000); do
    [ -d "$1" ] || exit 0
    find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null | xargs -r kill -9 2>/dev/null
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
done
"#;

/// What keeps the watcher waiting: it sees this program end because its input closes.
struct Container {
    _watcher: Child,
}

/// Moves this program into a group of its own, once; `Err` says why that cannot be.
pub(crate) fn contained() -> Result<(), String> {
    static DONE: OnceLock<Result<Option<Container>, String>> = OnceLock::new();
    DONE.get_or_init(|| if is_inside() { Ok(None) } else { enter().map(Some) })
        .as_ref()
        .map(|_| ())
        .map_err(Clone::clone)
}

/// Says that something was not tested here, at once and at the end of `cargo xtask test`.
pub(crate) fn left_out(what: &str) {
    eprintln!("left out: {what}");
    let line = format!("{what}\n");
    let known = fs::read_to_string(LEFT_OUT).unwrap_or_default();
    if !known.contains(&line) {
        // Another user's run may not write there; its output says it.
        let _ = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(LEFT_OUT)
            .and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// The group that this program is in, as far as processes are counted.
fn own_group() -> Result<(PathBuf, bool), String> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("no control groups: {error}"))?;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (parts.next(), parts.next()) else { continue };
        if names.split(',').any(|name| name == "pids") {
            return Ok((Path::new(ROOT).join(names).join(path.trim_start_matches('/')), false));
        }
    }
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or("no control groups")?;
    Ok((Path::new(ROOT).join(path.trim_start_matches('/')), true))
}

fn is_inside() -> bool {
    own_group().is_ok_and(|(path, _)| path.to_string_lossy().contains(NAME))
}

fn enter() -> Result<Container, String> {
    let (own, is_version_two) = own_group()?;
    // In version 2 a group with processes hands nothing down, so the new group is a sister.
    let parents = [Some(own.as_path()), own.parent().filter(|_| is_version_two)];
    let mut why = String::new();
    for parent in parents.into_iter().flatten().filter(|parent| parent.starts_with(ROOT)) {
        let group = parent.join(format!("{NAME}{}", std::process::id()));
        match make(&group, is_version_two) {
            Ok(run) => return join(&group, &run),
            Err(error) => {
                remove(&group);
                why = format!("no control group for the tests: {}: {error}", group.display());
            }
        }
    }
    Err(why)
}

fn make(group: &Path, is_version_two: bool) -> std::io::Result<PathBuf> {
    let run = group.join("run");
    fs::create_dir(group)?;
    fs::write(group.join("pids.max"), MOST.to_string())?;
    if is_version_two {
        for controller in ["pids", "memory", "cpu"] {
            let handed = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
            // The others are for the product's own groups, which say themselves what they miss.
            if controller == "pids" {
                handed?;
            }
        }
    }
    fs::create_dir(&run)?;
    Ok(run)
}

fn join(group: &Path, run: &Path) -> Result<Container, String> {
    use std::os::unix::process::CommandExt;
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let watcher = Command::new("bash")
        .args(["-c", WATCH, "watch"])
        .arg(group)
        // Ctrl-C ends the tests, not the one that cleans up after them.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed("start the watcher of the tests' control group", error))?;
    let container = Container { _watcher: watcher };
    fs::write(run.join("cgroup.procs"), "0").map_err(|error| failed("join the tests' control group", error))?;
    prove()?;
    Ok(container)
}

/// A crowd of sleeping threads, larger than the bound, must be refused.
fn prove() -> Result<(), String> {
    let script = format!(
        "import threading
gate, count = threading.Event(), 0
try:
    for number in range({CROWD}):
        threading.Thread(target=gate.wait, daemon=True).start()
        count += 1
except RuntimeError:
    pass
print(count)"
    );
    let output = Command::new("python3").args(["-c", &script]).output();
    let output = output.map_err(|error| format!("start python3 for the proof of the container: {error}"))?;
    let started: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(CROWD);
    if started < MOST {
        Ok(())
    } else {
        Err(format!("the tests' control group does not hold: it let {started} threads start"))
    }
}

fn remove(group: &Path) {
    // Only what a half-made group consists of; the reason that is reported is the one of its making.
    let _ = fs::remove_dir(group.join("run"));
    let _ = fs::remove_dir(group);
}

#[test]
fn the_whole_suite_is_inside_a_bounded_control_group() {
    match contained() {
        Err(why) => left_out(&format!("the container of the sandbox tests: {why}")),
        Ok(()) => {
            let (own, _) = own_group().expect("a group");
            let bounded = own
                .ancestors()
                .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME)));
            let most = fs::read_to_string(bounded.expect("our group").join("pids.max")).expect("a bound");
            assert_eq!(most.trim(), MOST.to_string());
        }
    }
}
