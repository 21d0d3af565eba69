//! What takes rights away from the launcher and, with it, from every command.
//!
//! The filter is a list of refusals: what is not named works as usual. It refuses what can widen
//! the attack surface of the kernel or reach outside: mounts, new namespaces, tracing machinery of
//! the kernel, keyrings, and socket families other than UNIX, INET, INET6 and route netlink. Where a
//! program has a fallback, the answer is ENOSYS.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

use super::{step, table};
use crate::port::{Error, ErrorKind, Network};
use crate::sys;
use crate::wire::{Mode, Setup};

/// Highest capability number that is dropped; unknown ones are refused by the kernel and skipped.
const LAST_CAPABILITY: u32 = 63;
/// Bit that marks system calls of the x32 interface, which must not be a way round the filter.
const X32: i64 = 0x4000_0000;
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];
/// Requests that put characters into another terminal's input.
const TERMINAL_INJECTION: [u64; 2] = [0x5412, 0x541C];

/// System calls that are refused whatever their arguments are.
const REFUSED: [libc::c_long; 49] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_vhangup,
    libc::SYS_process_madvise,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_kcmp,
];
/// System calls that are said not to exist, since programs fall back on older ones.
const ABSENT: [libc::c_long; 2] = [libc::SYS_clone3, libc::SYS_io_uring_setup];

/// Threads of the same user that do not belong to the sandbox, counted before its first command.
static FOREIGN_PROCESSES: OnceLock<u64> = OnceLock::new();

/// Confines the launcher for good. Returns the landlock version used, 0 without landlock.
pub(super) fn launcher(setup: &Setup) -> Result<i32, Error> {
    let foreign =
        if setup.mode == Mode::Namespace { 0 } else { table::threads_of_user(rustix::process::getuid().as_raw()) };
    FOREIGN_PROCESSES.get_or_init(|| foreign);
    match setup.mode {
        Mode::Namespace => {
            drop_capabilities();
            hide()?;
            seccomp()?;
            Ok(0)
        }
        Mode::Landlock => {
            drop_capabilities();
            rustix::thread::set_no_new_privs(true).map_err(|error| step("set no_new_privs", &error.into()))?;
            let abi = landlock(setup)?;
            hide()?;
            seccomp()?;
            Ok(abi)
        }
        Mode::Process => {
            hide()?;
            Ok(0)
        }
    }
}

/// Keeps commands, which have the same user, from reading or tracing the launcher.
fn hide() -> Result<(), Error> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| step("hide the launcher", &error.into()))
}

fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    for number in 0..=LAST_CAPABILITY {
        if let Some(capability) = CapabilitySet::from_bits(1 << number) {
            // Not permitted without CAP_SETPCAP; then there is no capability to lose either.
            let _ = rustix::thread::remove_capability_from_bounding_set(capability);
        }
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    // Giving up rights needs none.
    let _ = set_capabilities(None, sets);
}

fn seccomp() -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unavailable, format!("install the system call filter: {error}"))
    };
    for (rules, errno) in [(refused(), libc::EPERM), (absent(), libc::ENOSYS)] {
        let architecture = std::env::consts::ARCH.try_into().map_err(|error| failed(&error))?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), architecture)
            .map_err(|error| failed(&error))?;
        let program: seccompiler::BpfProgram =
            filter.try_into().map_err(|error: seccompiler::BackendError| failed(&error))?;
        apply_filter(&program).map_err(|error| failed(&error))?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn absent() -> Rules {
    let mut rules = Rules::new();
    for call in ABSENT {
        put(&mut rules, call, Vec::new);
    }
    rules
}

fn refused() -> Rules {
    let mut rules = Rules::new();
    for call in REFUSED {
        put(&mut rules, call, Vec::new);
    }
    let namespaces = || {
        let flag = |flag: &libc::c_int| {
            let flag = u64::from(*flag as u32);
            rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)])
        };
        NAMESPACE_FLAGS.iter().map(flag).collect()
    };
    put(&mut rules, libc::SYS_clone, namespaces);
    put(&mut rules, libc::SYS_unshare, namespaces);
    put(&mut rules, libc::SYS_socket, || {
        let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        let other = families.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family as u64)).collect();
        let netlink = condition(0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64);
        let not_route = condition(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64);
        vec![rule(other), rule(vec![netlink, not_route])]
    });
    put(&mut rules, libc::SYS_ioctl, || {
        TERMINAL_INJECTION.iter().map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, *request)])).collect()
    });
    rules
}

fn put(rules: &mut Rules, call: libc::c_long, conditions: impl Fn() -> Vec<SeccompRule>) {
    rules.insert(call, conditions());
    #[cfg(target_arch = "x86_64")]
    rules.insert(call | X32, conditions());
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .expect("system calls have arguments 0 to 5")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("each rule has a condition")
}

/// Directories that the landlock driver lets commands read and run.
const READABLE: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sys/devices/system/cpu"];
/// Entries of /etc that no command may read, although root or the owner could.
const ETC_SECRET: [&str; 14] = [
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssh",
    "krb5.keytab",
    "security",
    "NetworkManager",
    "wireguard",
    "kubernetes",
    "docker",
    "machine-id",
];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "shm"];

fn landlock(setup: &Setup) -> Result<i32, Error> {
    let failed =
        |error: &dyn std::fmt::Display| Error::new(ErrorKind::Unavailable, format!("install landlock rules: {error}"));
    let abi = ABI::V6;
    let (all, read) = (AccessFs::from_all(abi), AccessFs::from_read(abi));
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(|error| failed(&error))?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(|error| failed(&error))?;
    if setup.network == Network::Off {
        ruleset = ruleset.handle_access(landlock::AccessNet::from_all(abi)).map_err(|error| failed(&error))?;
    }
    let mut created = ruleset.create().map_err(|error| failed(&error))?;
    let hidden: Vec<PathBuf> = setup.hidden.iter().map(PathBuf::from).collect();
    let etc = fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
    let etc = etc.filter(|path| !ETC_SECRET.iter().any(|name| path.ends_with(name)));
    let devices = DEVICES.iter().map(|name| Path::new("/dev").join(name));
    let writable = [PathBuf::from(&setup.workspace), PathBuf::from(&setup.home)];
    let mut rules: Vec<(PathBuf, landlock::BitFlags<AccessFs>)> = Vec::new();
    for path in READABLE.iter().map(PathBuf::from).chain(etc) {
        allow(&path, read, &hidden, &mut rules);
    }
    rules.extend(writable.into_iter().chain(devices).map(|path| (path, all)));
    for (path, access) in rules {
        // What does not exist needs no rule.
        let Ok(fd) = PathFd::new(&path) else { continue };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(abi) };
        created = created.add_rule(PathBeneath::new(fd, access)).map_err(|error| failed(&error))?;
    }
    let status = created.restrict_self().map_err(|error| failed(&error))?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(Error::new(ErrorKind::Unavailable, "this kernel has no landlock"));
    }
    Ok(sys::landlock_version())
}

/// Allows a tree, or, if something hidden lies in it, everything in it beside that.
fn allow(
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
    hidden: &[PathBuf],
    rules: &mut Vec<(PathBuf, landlock::BitFlags<AccessFs>)>,
) {
    if hidden.iter().any(|hidden| path.starts_with(hidden)) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
        rules.push((path.to_owned(), access));
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        allow(&entry.path(), access, hidden, rules);
    }
}

/// Sets the limits of a command that is about to start.
pub(super) fn command_limits(setup: &Setup) -> io::Result<()> {
    let limits = &setup.limits;
    set(Resource::Core, 0)?;
    set(Resource::Nofile, limits.open_files.into())?;
    set(Resource::Fsize, limits.disk_bytes)?;
    // In the namespace driver only this sandbox is counted. Elsewhere all of the user's processes
    // are, so those that were there before come on top; root is exempt from this limit.
    let before = FOREIGN_PROCESSES.get().copied().unwrap_or(0);
    set(Resource::Nproc, u64::from(limits.processes) + before + RESERVED_PROCESSES)?;
    if !setup.memory_capped {
        set(Resource::Data, limits.memory_bytes)?;
    }
    Ok(())
}

/// Processes of ours beside those of commands: PID 1 and the keepers of running commands.
const RESERVED_PROCESSES: u64 = 8;

fn set(resource: Resource, value: u64) -> io::Result<()> {
    let old = rustix::process::getrlimit(resource);
    let value = old.maximum.map_or(value, |maximum| value.min(maximum));
    rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    Ok(())
}
