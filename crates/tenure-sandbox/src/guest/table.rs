//! Reads the process table in /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::port::Process;

/// Longest command line that is reported.
const COMMAND_BYTES: usize = 200;
/// Most processes that are reported.
pub(crate) const LISTED: usize = 200;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) zombie: bool,
    pub(crate) threads: u64,
    pub(crate) resident_pages: u64,
}

/// Reads all processes that this process can see.
pub(crate) fn rows() -> Vec<Row> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| row(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

fn row(pid: i32) -> Option<Row> {
    let fields = stat(pid)?;
    let threads = fields.get(17)?.parse().ok()?;
    Some(Row {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        // One whose first thread has ended looks like a zombie too, and lives on in the others.
        zombie: matches!(fields.first()?.as_str(), "Z" | "X") && threads <= 1,
        threads,
        resident_pages: fields.get(21)?.parse().ok()?,
    })
}

/// Counts the threads of a user.
pub(crate) fn threads_of_user(uid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let owned = |row: &Row| fs::metadata(format!("/proc/{}", row.pid)).is_ok_and(|metadata| metadata.uid() == uid);
    rows().iter().filter(|row| owned(row)).map(|row| row.threads).sum()
}

/// Start time of a process in clock ticks since boot.
pub(crate) fn start_ticks(pid: i32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// Fields of /proc/PID/stat after the name, which may itself contain anything.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Finds all living descendants of some processes, without those themselves.
pub(crate) fn descendants(rows: &[Row], roots: &[i32]) -> Vec<Row> {
    let mut children: BTreeMap<i32, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        children.entry(row.parent).or_default().push(row);
    }
    let (mut found, mut queue, mut seen) = (Vec::new(), roots.to_vec(), BTreeSet::new());
    while let Some(parent) = queue.pop() {
        for row in children.get(&parent).into_iter().flatten() {
            if seen.insert(row.pid) {
                queue.push(row.pid);
                found.push(**row);
            }
        }
    }
    found
}

/// Describes processes for people.
pub(crate) fn describe(rows: &[Row]) -> Vec<Process> {
    let mut list: Vec<Process> = rows
        .iter()
        .filter(|row| !row.zombie)
        .take(LISTED)
        .map(|row| Process { pid: row.pid, parent: row.parent, command: command(row.pid) })
        .collect();
    list.sort_by_key(|process| process.pid);
    list
}

fn command(pid: i32) -> String {
    let mut bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if bytes.is_empty() {
        bytes = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    }
    while bytes.last().is_some_and(|byte| matches!(byte, 0 | b'\n')) {
        bytes.pop();
    }
    bytes.truncate(COMMAND_BYTES);
    String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
