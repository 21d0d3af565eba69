//! Control groups: caps on memory, processes and processor time of a whole sandbox.
//!
//! Version 2 is used where its controllers may be handed down from a group that we may write;
//! version 1, also on machines that mix both, per controller below our own group. What is not to be
//! had is left out here and reported by [`plan`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::port::Limits;

const ROOT: &str = "/sys/fs/cgroup";
/// Period of the processor cap in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// Rounds of waiting for the kernel to let go of an empty group.
const REMOVE_ROUNDS: u32 = 200;
/// Prefix of our groups.
pub(crate) const PREFIX: &str = "tenure-";

/// A thing that a control group can cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// Which version a controller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Where groups can be made, and why not for the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) parents: BTreeMap<Controller, (Version, PathBuf)>,
    pub(crate) missing: BTreeMap<Controller, String>,
}

/// Finds out what can be capped here.
pub(crate) fn plan() -> Plan {
    let mut plan = Plan::default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for controller in Controller::ALL {
        match parent(controller, &own) {
            Ok(found) => {
                plan.parents.insert(controller, found);
            }
            Err(why) => {
                plan.missing.insert(controller, why);
            }
        }
    }
    plan
}

fn parent(controller: Controller, own: &str) -> Result<(Version, PathBuf), String> {
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if names.split(',').any(|name| name == controller.name()) {
            let path = Path::new(ROOT).join(names).join(path.trim_start_matches('/'));
            return writable(&path).map(|()| (Version::One, path));
        }
    }
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Err("no control groups are mounted".to_owned());
    };
    let own = Path::new(ROOT).join(path.trim_start_matches('/'));
    let mut why = String::new();
    for candidate in [Some(own.as_path()), own.parent().filter(|parent| parent.starts_with(ROOT))].into_iter().flatten()
    {
        match version_two(candidate, controller) {
            Ok(()) => return Ok((Version::Two, candidate.to_owned())),
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn version_two(path: &Path, controller: Controller) -> Result<(), String> {
    let name = controller.name();
    let lists = |file: &str| {
        fs::read_to_string(path.join(file)).is_ok_and(|text| text.split_whitespace().any(|other| other == name))
    };
    if !lists("cgroup.controllers") {
        return Err(format!("control group {} has no {name} controller", path.display()));
    }
    writable(path)?;
    if !lists("cgroup.subtree_control") {
        // Refused for a group that has processes, except for the root of the machine.
        fs::write(path.join("cgroup.subtree_control"), format!("+{name}"))
            .map_err(|error| format!("control group {} does not hand {name} down: {error}", path.display()))?;
    }
    Ok(())
}

fn writable(path: &Path) -> Result<(), String> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
        .map_err(|error| format!("control group {} cannot be written: {error}", path.display()))
}

/// The groups of one incarnation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    paths: BTreeMap<Controller, (Version, PathBuf)>,
}

impl Groups {
    /// Makes groups with the caps; what fails is named in the second value.
    pub(crate) fn make(plan: &Plan, id: &str, limits: &Limits) -> (Self, BTreeMap<Controller, String>) {
        let (mut groups, mut missing) = (Self::default(), plan.missing.clone());
        for (controller, (version, parent)) in &plan.parents {
            remove_stale(parent);
            let path = parent.join(format!("{PREFIX}{id}"));
            let made = match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                Ok(()) | Err(_) => cap(*controller, *version, &path, limits),
            };
            match made {
                Ok(()) => {
                    groups.paths.insert(*controller, (*version, path));
                }
                Err(error) => {
                    // An empty group without its cap is of no use.
                    let _ = fs::remove_dir(&path);
                    missing.insert(*controller, format!("{}: {error}", path.display()));
                }
            }
        }
        (groups, missing)
    }

    /// The groups that could be made.
    pub(crate) fn expected(plan: &Plan) -> Self {
        Self { paths: plan.parents.clone() }
    }

    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.paths.contains_key(&controller)
    }

    pub(crate) fn version(&self, controller: Controller) -> Option<Version> {
        self.paths.get(&controller).map(|(version, _)| *version)
    }

    /// Files that a process writes `0` into to join.
    pub(crate) fn join_files(&self) -> Vec<String> {
        let mut files: Vec<String> =
            self.paths.values().map(|(_, path)| path.join("cgroup.procs").to_string_lossy().into_owned()).collect();
        files.sort();
        files.dedup();
        files
    }

    /// How often the memory cap has ended a process.
    pub(crate) fn memory_kills(&self) -> u64 {
        let Some((version, path)) = self.paths.get(&Controller::Memory) else { return 0 };
        let file = match version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(path.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// Removes the groups of an incarnation whose processes have ended.
    pub(crate) fn remove(&self) {
        remove(self.paths.values().map(|(_, path)| path.as_path()));
    }
}

/// Removes empty groups of workers that are gone, which a crash leaves behind.
///
/// The id of an incarnation names its worker's process, so that no group of a living worker is
/// taken away between its making and its first process.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let worker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').nth(1));
        let worker = worker.and_then(|worker| u32::from_str_radix(worker, 16).ok());
        if worker.is_some_and(|worker| !Path::new(&format!("/proc/{worker}")).exists()) {
            // Refused for one that still has processes.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Removes groups that are named by their join files.
pub(crate) fn remove_by_join_files(files: &[String]) {
    let ours = files.iter().map(Path::new).filter_map(Path::parent);
    remove(ours.filter(|path| {
        path.starts_with(ROOT) && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    }));
}

/// Kills what is left in groups that are named by their join files.
pub(crate) fn kill_by_join_files(files: &[String]) {
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        for pid in text.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "nothing tells when the kernel lets go of a group; a thread that may block"
)]
fn remove<'a>(paths: impl Iterator<Item = &'a Path>) {
    for path in paths {
        for _ in 0..REMOVE_ROUNDS {
            match fs::remove_dir(path) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Ok(()) | Err(_) => break,
            }
        }
    }
}

fn cap(controller: Controller, version: Version, path: &Path, limits: &Limits) -> io::Result<()> {
    let write = |file: &str, value: String| fs::write(path.join(file), value);
    let quota = u64::from(limits.cpu_millis.max(10)) * CPU_PERIOD_US / 1000;
    match (controller, version) {
        (Controller::Memory, Version::One) => {
            write("memory.limit_in_bytes", limits.memory_bytes.to_string())?;
            // Absent when the kernel does not count swap.
            let _ = write("memory.memsw.limit_in_bytes", limits.memory_bytes.to_string());
            Ok(())
        }
        (Controller::Memory, Version::Two) => {
            write("memory.max", limits.memory_bytes.to_string())?;
            let _ = write("memory.swap.max", "0".to_owned());
            Ok(())
        }
        (Controller::Pids, Version::One | Version::Two) => write("pids.max", limits.processes.to_string()),
        (Controller::Cpu, Version::One) => {
            write("cpu.cfs_period_us", CPU_PERIOD_US.to_string())?;
            write("cpu.cfs_quota_us", quota.to_string())
        }
        (Controller::Cpu, Version::Two) => write("cpu.max", format!("{quota} {CPU_PERIOD_US}")),
    }
}
