//! The launcher: a process with one thread that sets a sandbox up and then runs its commands.
//!
//! In the namespace driver it becomes PID 1 of the sandbox. In every driver it is the reaper of
//! all that commands leave behind, and it ends with its socket: when the worker is gone, nothing
//! of the sandbox lives on.

mod confine;
mod files;
mod namespaces;
mod root;
mod shell;
mod supervise;
pub(crate) mod table;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use crate::port::{Error, ErrorKind};
use crate::sys;
use crate::wire::{Mode, Setup, ToGuest, ToHost};
pub(crate) use shell::MARK;
use supervise::Link;

/// First argument that turns the binary into a launcher.
pub const LAUNCHER_ARGUMENT: &str = "__sandbox";

/// Becomes the launcher if the first argument says so; then it never returns.
///
/// Must be the first line of `main`, before any thread or runtime exists.
pub fn main_if_requested() {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(LAUNCHER_ARGUMENT)) {
        run();
    }
}

fn run() -> ! {
    let mut link = Link::new(sys::stdin_socket());
    let code = match receive_setup(&mut link) {
        Err(_) => 1,
        Ok((setup, lock)) => match start(setup, &lock, &mut link) {
            Ok(()) => 0,
            Err(error) => {
                // The host may be gone already; then nobody needs the reason.
                let _ = link.send(&ToHost::Failed { kind: error.kind, message: error.message }, &[]);
                1
            }
        },
    };
    sys::exit(code)
}

fn receive_setup(link: &mut Link) -> io::Result<(Setup, Option<OwnedFd>)> {
    let (frame, _, lock) = link.receive()?;
    match frame {
        ToGuest::Setup(setup) => Ok((*setup, lock)),
        ToGuest::Exec { .. }
        | ToGuest::File { .. }
        | ToGuest::Processes { .. }
        | ToGuest::Restart { .. }
        | ToGuest::Kill { .. } => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn start(setup: Setup, lock: &Option<OwnedFd>, link: &mut Link) -> Result<(), Error> {
    for file in &setup.cgroup_files {
        std::fs::write(file, "0").map_err(|error| step(&format!("join cgroup {file}"), &error))?;
    }
    match setup.mode {
        Mode::Namespace => namespaces::enter(&setup, link, lock),
        Mode::Landlock | Mode::Process => {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
                .map_err(|error| step("become the reaper", &error.into()))?;
            crate::record::write(&setup, rustix::process::getpid().as_raw_nonzero().get())
                .map_err(|error| step("write the incarnation file", &error))?;
            let landlock_abi = confine::launcher(&setup)?;
            supervise::run(&setup, link, landlock_abi).map_err(|error| step("serve the host", &error))
        }
    }
}

/// Makes an error that names the step that failed.
fn step(name: &str, error: &io::Error) -> Error {
    let kind = match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS | libc::EACCES | libc::EINVAL | libc::ENOSPC) => ErrorKind::Unavailable,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{name}: {error}"))
}
