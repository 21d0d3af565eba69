//! The system calls for which there is no safe wrapper, each in the smallest function.
//!
//! Only the launcher uses them, and the launcher has one thread: `fork` without `exec` is sound
//! there. Nothing here runs in the server or the worker.
#![allow(unsafe_code, reason = "fork, execve and a few mount calls have no safe wrapper in rustix")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Which side of a fork runs.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, with the child's id.
    Parent(i32),
}

fn check(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Forks the launcher.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the launcher has one thread, so no lock can be held by a thread that the child lacks.
    let pid = unsafe { libc::fork() };
    match check(pid.into())? {
        0 => Ok(Fork::Child),
        _ => Ok(Fork::Parent(pid)),
    }
}

/// Ends this process at once, without destructors of the process it was forked from.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Becomes another program; returns only on failure.
pub(crate) fn execve(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers =
        |list: &[CString]| list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Makes `to` refer to the file of `from`, open over `exec`.
pub(crate) fn dup_to(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; the caller owns the number `to` in this process.
    check(unsafe { libc::dup2(from, to) }.into())?;
    // dup2 onto itself keeps the close-on-exec flag.
    // SAFETY: plain numbers.
    check(unsafe { libc::fcntl(to, libc::F_SETFD, 0) }.into())?;
    Ok(())
}

/// Closes all descriptors of this forked child except those named.
pub(crate) fn close_all_except(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    keep.sort_unstable();
    let mut first = 0_u32;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if fd > first {
            close_range(first, if fd == u32::MAX { fd } else { fd - 1 });
        }
        first = fd.saturating_add(1);
    }
}

fn close_range(first: u32, last: u32) {
    // SAFETY: callers run in a forked child that never drops the values it inherited (it ends
    // with `exit` or `execve`), so nothing uses the closed numbers.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done < 0 {
        for fd in first..=last.min(65_535) {
            // SAFETY: as above.
            unsafe { libc::close(fd as RawFd) };
        }
    }
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child has ended.
pub(crate) fn child_signal_fd() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; signalfd returns a new descriptor.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(fd.into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Gives a child that is about to `exec` the signal state that programs expect.
pub(crate) fn reset_signals() {
    // SAFETY: SIG_DFL is a valid action for every signal; failures for reserved ones are harmless.
    unsafe {
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Flags of [`mount_attributes`], from `linux/mount.h`.
pub(crate) const MOUNT_RDONLY: u64 = 1;
/// Set-user-id bits and file capabilities have no effect.
pub(crate) const MOUNT_NOSUID: u64 = 2;
/// Device nodes cannot be opened.
pub(crate) const MOUNT_NODEV: u64 = 4;
/// Programs cannot be run.
pub(crate) const MOUNT_NOEXEC: u64 = 8;

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Sets flags on a mount and on all mounts below it.
pub(crate) fn mount_attributes(path: &CStr, set: u64) -> io::Result<()> {
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: path ends with a null byte; the struct has the size that is passed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    check(done)?;
    Ok(())
}

/// Drops supplementary groups.
pub(crate) fn drop_groups() -> io::Result<()> {
    // SAFETY: a length of zero allows a null list.
    check(unsafe { libc::setgroups(0, std::ptr::null()) }.into())?;
    Ok(())
}

/// Takes one user and group id, for real, effective and saved alike.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain numbers; one thread.
    check(unsafe { libc::setresgid(gid, gid, gid) }.into())?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(uid, uid, uid) }.into())?;
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an all-zero ifreq is valid; the name fits with its final null byte.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into())?;
    }
    Ok(())
}

/// Duplicates a received descriptor number into an owned one.
pub(crate) fn stdin_socket() -> OwnedFd {
    // SAFETY: called once at the start of the launcher, whose descriptor 0 is its socket by
    // construction; nothing else in the process owns the number.
    unsafe { OwnedFd::from_raw_fd(0) }
}

/// Asks the kernel for its landlock version; 0 if it has none.
pub(crate) fn landlock_version() -> i32 {
    const VERSION_FLAG: u32 = 1;
    // SAFETY: with this flag the kernel takes a null pointer and a size of zero and returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION_FLAG) };
    i32::try_from(version).unwrap_or(0).max(0)
}
