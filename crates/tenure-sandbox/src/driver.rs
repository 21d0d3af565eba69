//! The drivers, one file each, and what they share.

pub(crate) mod landlock;
pub(crate) mod namespace;
pub(crate) mod process;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cgroup::{self, Controller, Groups, Version};
use crate::incarnation::{Launcher, Running, launch};
use crate::port::{Error, ErrorKind, Guarantees, Incarnation, Item, Network, Spec, State};
use crate::takeover;
use crate::wire::{Mode, Setup};

/// First outside user id of sandboxes started by root; far from ids of people and containers.
const OUTSIDE_FIRST: u32 = 0x7000_0000;
/// Number of outside user ids.
const OUTSIDE_COUNT: u32 = 0x0100_0000;

/// Starts an incarnation of any driver: takes over, prepares folders, launches.
pub(crate) async fn start(
    driver: &'static str,
    mode: Mode,
    launcher: Launcher,
    spec: Spec,
) -> Result<Arc<dyn Incarnation>, Error> {
    let prepared = tokio::task::spawn_blocking(move || prepare(mode, &launcher, spec));
    let prepared = prepared.await.map_err(|error| Error::new(ErrorKind::Io, format!("start a sandbox: {error}")))??;
    let Prepared { id, spec, guarantees, groups, started } = prepared;
    Ok(Running::new(driver, id, spec, guarantees, groups, started)?)
}

struct Prepared {
    id: String,
    spec: Spec,
    guarantees: Guarantees,
    groups: Groups,
    started: crate::incarnation::Started,
}

fn prepare(mode: Mode, launcher: &Launcher, spec: Spec) -> Result<Prepared, Error> {
    let failed = |what: &str, error: &io::Error| Error::new(ErrorKind::Io, format!("{what}: {error}"));
    let lock = takeover::take(&spec.state_dir, spec.epoch)?;
    let text = |path: &Path| {
        let path = fs::canonicalize(path).map_err(|error| failed(&format!("find {}", path.display()), &error))?;
        path.into_os_string()
            .into_string()
            .map_err(|path| Error::new(ErrorKind::Refused, format!("the path {} is not UTF-8", path.display())))
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&spec.workspace)
        .map_err(|error| failed("make the workspace", &error))?;
    let workspace = text(&spec.workspace)?;
    let home = spec.state_dir.join("home");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home.join("tmp"))
        .map_err(|error| failed("make the agent's home", &error))?;
    let home = text(&home)?;
    let outside = (mode == Mode::Namespace && has_outside_ids())
        .then(|| outside_id(Path::new(&workspace), &spec.session))
        .transpose()
        .map_err(|error| failed("look at the workspace", &error))?;
    if let Some((uid, gid)) = outside {
        for folder in [&workspace, &home] {
            give(Path::new(folder), uid, gid)
                .map_err(|error| failed(&format!("give {folder} to the sandbox's user"), &error))?;
        }
    }
    let id = incarnation_id();
    let (groups, missing) = Groups::make(&cgroup::plan(), &id, &spec.limits);
    let setup = Setup {
        mode,
        id: id.clone(),
        epoch: spec.epoch,
        workspace,
        state_dir: text(&spec.state_dir)?,
        home,
        network: spec.network,
        limits: spec.limits.clone(),
        env: spec.env.clone(),
        hidden: spec.hidden.iter().filter_map(|path| text(path).ok()).collect(),
        outside,
        cgroup_files: groups.join_files(),
        memory_capped: groups.has(Controller::Memory),
        processes_capped: groups.has(Controller::Pids),
    };
    match launch(launcher, &setup, &lock) {
        Ok(started) => {
            let abi = started.landlock_abi;
            let guarantees = guarantees(mode, &groups, &missing, spec.network, abi);
            Ok(Prepared { id, spec, guarantees, groups, started })
        }
        Err(error) => {
            groups.remove();
            Err(error)
        }
    }
}

fn incarnation_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut random = [0; 8];
    // Only uniqueness on this machine matters; pid and count give most of it already.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    format!(
        "{:08x}-{:x}-{:x}",
        u64::from_le_bytes(random) >> 32,
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Whether sandboxes can get users of their own: as root, if the ids of those users mean something here.
/// Root of a container often has fewer ids, or only its own; it is then like any other user.
pub(crate) fn has_outside_ids() -> bool {
    let is_mapped = |map: &str| fs::read_to_string(map).is_ok_and(|map| covers_outside_ids(&map));
    rustix::process::geteuid().is_root() && is_mapped("/proc/self/uid_map") && is_mapped("/proc/self/gid_map")
}

/// Whether one line of a map (first id inside, first id outside, count) holds all ids of sandboxes.
fn covers_outside_ids(map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) = (numbers.next(), numbers.next(), numbers.next()) else {
            return false;
        };
        let wanted = u64::from(OUTSIDE_FIRST)..u64::from(OUTSIDE_FIRST) + u64::from(OUTSIDE_COUNT);
        first <= wanted.start && wanted.end <= first.saturating_add(count)
    })
}

/// The outside user of a sandbox: the workspace's owner if it is one of ours, else one by session.
fn outside_id(workspace: &Path, session: &str) -> io::Result<(u32, u32)> {
    let owner = fs::metadata(workspace)?.uid();
    if (OUTSIDE_FIRST..OUTSIDE_FIRST + OUTSIDE_COUNT).contains(&owner) {
        return Ok((owner, owner));
    }
    // FNV-1a; a collision shares an id between two sessions and nothing else.
    let hash = session.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let id = OUTSIDE_FIRST + hash % OUTSIDE_COUNT;
    Ok((id, id))
}

/// Gives a tree to a user, if its top is not the user's already.
fn give(top: &Path, uid: u32, gid: u32) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};
    if fs::symlink_metadata(top)?.uid() == uid {
        return Ok(());
    }
    let mut queue = vec![top.to_owned()];
    let mut all = Vec::new();
    while let Some(directory) = queue.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                queue.push(entry.path());
            } else {
                all.push(entry.path());
            }
        }
        all.push(directory);
    }
    // The top comes last, so that a crash in between starts again.
    all.sort();
    for path in all.iter().rev() {
        chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// What a driver enforces on this machine before any incarnation exists.
pub(crate) fn expected(mode: Mode) -> Guarantees {
    let plan = cgroup::plan();
    let groups = Groups::expected(&plan);
    guarantees(mode, &groups, &plan.missing, Network::Off, crate::sys::landlock_version())
}

fn guarantees(
    mode: Mode,
    groups: &Groups,
    missing: &std::collections::BTreeMap<Controller, String>,
    network: Network,
    landlock_abi: i32,
) -> Guarantees {
    let mut list = Guarantees::default();
    match mode {
        Mode::Namespace => namespace::describe(&mut list, network),
        Mode::Landlock => landlock::describe(&mut list, network, landlock_abi),
        Mode::Process => process::describe(&mut list),
    }
    describe_caps(&mut list, mode, groups, missing);
    list
}

const CGROUP_FIX: &str = "run as root, or in a service with Delegate=yes";

fn describe_caps(
    list: &mut Guarantees,
    mode: Mode,
    groups: &Groups,
    missing: &std::collections::BTreeMap<Controller, String>,
) {
    let why = |controller: Controller| missing.get(&controller).map_or("no control group", String::as_str);
    let version = |controller: Controller| match groups.version(controller) {
        Some(Version::One) => Some("control group, version 1"),
        Some(Version::Two) => Some("control group, version 2"),
        None => None,
    };
    match version(Controller::Memory) {
        Some(by) => list.set(Item::Memory, State::Enforced, by, ""),
        None => list.set(
            Item::Memory,
            State::Partial,
            format!("data limit of each process, and the sum is checked every 200 ms: {}", why(Controller::Memory)),
            CGROUP_FIX,
        ),
    }
    match (version(Controller::Pids), mode) {
        (Some(by), _) => list.set(Item::Processes, State::Enforced, by, ""),
        (None, Mode::Namespace) => {
            list.set(Item::Processes, State::Enforced, "limit of the sandbox's user in its own user namespace", "");
        }
        // The kernel exempts root from the limit, and counting is slower than a fork bomb.
        (None, Mode::Landlock | Mode::Process) if rustix::process::geteuid().is_root() => list.set(
            Item::Processes,
            State::Missing,
            format!("only counted every 200 ms, which does not stop a fork bomb: {}", why(Controller::Pids)),
            "run as another user than root, or where control groups can be made",
        ),
        (None, Mode::Landlock | Mode::Process) => list.set(
            Item::Processes,
            State::Partial,
            format!("limit of the user's processes, which counts those outside too: {}", why(Controller::Pids)),
            CGROUP_FIX,
        ),
    }
    match version(Controller::Cpu) {
        Some(by) => list.set(Item::Cpu, State::Enforced, by, ""),
        None => list.set(Item::Cpu, State::Missing, why(Controller::Cpu), CGROUP_FIX),
    }
    list.set(
        Item::Disk,
        State::Partial,
        "largest file is limited; the sum of workspace and home is checked every few seconds while a command runs, so it can be passed for a moment",
        "put the data folder on a file system of its own",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_container_without_ids_for_sandboxes_is_like_any_other_user() {
        let cases = [
            ("         0          0 4294967295\n", true),
            ("0 1000 1\n", false),
            ("0 100000 65536\n", false),
            ("0 1000 1\n1 100000 4294867295\n", true),
            ("", false),
            ("nonsense\n", false),
        ];
        for (map, expected) in cases {
            assert_eq!(covers_outside_ids(map), expected, "{map:?}");
        }
    }
}
