//! Enters the namespaces of the namespace driver.
//!
//! Two orders, one result. With root, the file system and all namespaces are made by real root and
//! the user namespace comes last: it then owns none of the others, and its root is an id outside
//! that owns nothing but the workspace. Without root, the user namespace comes first, since it is
//! what permits the others.
//!
//! ```text
//! launcher ── unshare ── fork ─┬─ waits for PID 1, holds the lock, writes the id maps and the record
//!                              └─ PID 1: mounts, pivot_root, user, seccomp, then serves the host
//! ```

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use super::supervise::{self, Link};
use super::{confine, root, step};
use crate::port::{Error, ErrorKind, Network};
use crate::sys::{self, Fork};
use crate::wire::Setup;

/// User and group id that commands see as their own.
///
/// Not 0: `tar`, `npm` and others change their behaviour for root in ways that fail when only one
/// id is mapped.
pub(crate) const INSIDE_ID: u32 = 1000;

pub(super) fn enter(setup: &Setup, link: &mut Link, lock: &Option<OwnedFd>) -> Result<(), Error> {
    die_with_parent().map_err(|error| step("follow the worker", &error))?;
    let (real_uid, real_gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut flags = UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    if setup.network == Network::Off {
        flags |= UnshareFlags::NEWNET;
    }
    let as_root = setup.outside.is_some();
    if !as_root {
        unshare(UnshareFlags::NEWUSER).map_err(|error| step("make a user namespace", &error))?;
        write_maps("self", real_uid, real_gid).map_err(|error| step("map user ids", &error))?;
    }
    unshare(flags).map_err(|error| step("make pid, net, ipc and uts namespaces", &error))?;

    let (mut from_child, mut to_parent) = pipe().map_err(|error| step("make a pipe", &error))?;
    let (mut from_parent, mut to_child) = pipe().map_err(|error| step("make a pipe", &error))?;
    match sys::fork().map_err(|error| step("start PID 1", &error))? {
        Fork::Child => {
            drop((from_child, to_child));
            let result = die_with_parent_inside()
                .map_err(|error| step("follow the launcher", &error))
                .and_then(|()| inside(setup, as_root, link, &mut to_parent, &mut from_parent));
            if let Err(error) = result {
                // The host may be gone already; then nobody needs the reason.
                let _ = link.send(&crate::wire::ToHost::Failed { kind: error.kind, message: error.message }, &[]);
                sys::exit(1);
            }
            sys::exit(0)
        }
        Fork::Parent(pid) => {
            drop((to_parent, from_parent));
            link.close();
            let result = outside(setup, pid, &mut from_child, &mut to_child);
            if result.is_err() {
                // PID 1 sees the closed pipe and reports its own failure.
                drop(to_child);
            }
            // The lock stays ours until the kernel has ended every process of the sandbox.
            let _ = lock;
            let _ =
                rustix::process::waitpid(rustix::process::Pid::from_raw(pid), rustix::process::WaitOptions::empty());
            sys::exit(0)
        }
    }
}

/// The launcher's half: writes what only it can write.
fn outside(setup: &Setup, pid: i32, from_child: &mut fs::File, to_child: &mut fs::File) -> io::Result<()> {
    crate::record::write(setup, pid)?;
    let mut byte = [0];
    from_child.read_exact(&mut byte)?;
    if let Some((uid, gid)) = setup.outside {
        write_maps(&pid.to_string(), uid, gid)?;
    }
    to_child.write_all(&byte)
}

/// PID 1's half.
fn inside(
    setup: &Setup,
    as_root: bool,
    link: &mut Link,
    to_parent: &mut fs::File,
    from_parent: &mut fs::File,
) -> Result<(), Error> {
    if setup.network == Network::Off {
        sys::loopback_up().map_err(|error| step("bring loopback up", &error))?;
    }
    // Not earlier: the launcher still needs the host's view for the id maps and the record.
    unshare(UnshareFlags::NEWNS).map_err(|error| step("make a mount namespace", &error))?;
    rustix::system::sethostname(b"sandbox").map_err(|error| step("name the host", &error.into()))?;
    root::build(setup)?;
    if as_root {
        unshare(UnshareFlags::NEWUSER).map_err(|error| step("make a user namespace", &error))?;
    }
    let mut byte = [0];
    to_parent
        .write_all(&byte)
        .and_then(|()| from_parent.read_exact(&mut byte))
        .map_err(|_| Error::new(ErrorKind::Io, "the launcher ended before PID 1 was ready"))?;
    if as_root {
        sys::drop_groups().map_err(|error| step("drop groups", &error))?;
    }
    sys::become_user(INSIDE_ID, INSIDE_ID).map_err(|error| step("become the agent's user", &error))?;
    // A change of user clears the death signal.
    die_with_parent_inside().map_err(|error| step("follow the launcher", &error))?;
    let landlock_abi = confine::launcher(setup)?;
    supervise::run(setup, link, landlock_abi).map_err(|error| step("serve the host", &error))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[allow(
        unsafe_code,
        reason = "unsafe for programs with threads that share descriptors; the launcher has one thread"
    )]
    // SAFETY: one thread, and CLONE_FILES is never among the flags.
    unsafe {
        rustix::thread::unshare_unsafe(flags)?;
    }
    Ok(())
}

fn write_maps(process: &str, uid: u32, gid: u32) -> io::Result<()> {
    if process == "self" {
        fs::write("/proc/self/setgroups", "deny")?;
    }
    fs::write(format!("/proc/{process}/uid_map"), format!("{INSIDE_ID} {uid} 1\n"))?;
    fs::write(format!("/proc/{process}/gid_map"), format!("{INSIDE_ID} {gid} 1\n"))
}

fn pipe() -> io::Result<(fs::File, fs::File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// Ends this process when the thread that started it ends.
fn die_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call; then a reaper is our parent now and the socket,
    // which is closed, ends us.
    Ok(())
}

fn die_with_parent_inside() -> io::Result<()> {
    die_with_parent()
}
