//! What this machine has, and what is done about what it lacks.

use crate::run;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a program runs.
pub(crate) fn has(program: &str, arguments: &[&str]) -> bool {
    let silent =
        |mut command: Command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let mut command = Command::new(program);
    command.args(arguments);
    silent(command).is_ok_and(|status| status.success())
}

/// Whether system packages may be installed.
fn may_install() -> bool {
    has("apt-get", &["--version"]) && has("test", &["-w", "/var/lib/dpkg"])
}

/// Checks what nothing works without.
pub(crate) fn check() -> Result<()> {
    let compilers = ["cc", "gcc", "clang"];
    if !compilers.iter().any(|compiler| has(compiler, &["--version"])) && !install(&["gcc", "libc6-dev"]) {
        bail!("no C compiler was found and none may be installed; install one (Debian: apt-get install gcc libc6-dev)");
    }
    if !has("bash", &["--version"]) && !install(&["bash"]) {
        bail!("bash was not found and may not be installed; sandboxes and tests need it");
    }
    Ok(())
}

/// Installs system packages, if that is allowed.
pub(crate) fn install(packages: &[&str]) -> bool {
    if !may_install() {
        return false;
    }
    let apt = Path::new("apt-get");
    let install: Vec<&str> =
        ["install", "--yes", "--no-install-recommends"].into_iter().chain(packages.iter().copied()).collect();
    run::program("read the list of system packages", apt, &["update", "--quiet"]).is_ok()
        && run::program("install system packages", apt, &install).is_ok()
}

/// Says what was left out.
pub(crate) fn tell(left_out: &[String]) -> Result<()> {
    for line in left_out {
        eprintln!("left out: {line}");
    }
    Ok(())
}
