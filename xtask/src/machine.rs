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

/// Packages of which one has nginx itself; the names differ between releases.
const NGINX: [&str; 3] = ["nginx", "nginx-core", "nginx-light"];

/// Finds nginx, or unpacks it below `folder`. It is not installed: that would also start it, on the
/// machine's own ports.
pub(crate) fn nginx(folder: &Path) -> bool {
    let unpacked = folder.join("usr/sbin/nginx");
    let runs = |program: &str| has(program, &["-v"]);
    if ["nginx", "/usr/sbin/nginx"].into_iter().any(runs) || runs(&unpacked.to_string_lossy()) {
        return true;
    }
    if !has("apt-get", &["--version"]) || !has("dpkg-deb", &["--version"]) || std::fs::create_dir_all(folder).is_err() {
        return false;
    }
    let fetched = || NGINX.into_iter().any(|package| fetch(package, folder));
    let update = || run::program("read the list of system packages", Path::new("apt-get"), &["update", "--quiet"]);
    (fetched() || may_install() && update().is_ok() && fetched()) && runs(&unpacked.to_string_lossy())
}

/// Downloads one package and unpacks it into a folder, if it has nginx.
fn fetch(package: &str, folder: &Path) -> bool {
    let mut download = Command::new("apt-get");
    download.args(["download", "--quiet", package]).current_dir(folder);
    let is_fetched = download.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_fetched.is_ok_and(|status| status.success()) {
        return false;
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let prefix = format!("{package}_");
    let is_package = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|end| end == "deb")
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    let unpack =
        |file: std::path::PathBuf| has("dpkg-deb", &["--extract", &file.to_string_lossy(), &folder.to_string_lossy()]);
    files.filter(is_package).any(unpack) && folder.join("usr/sbin/nginx").exists()
}

/// Says what was left out.
pub(crate) fn tell(left_out: &[String]) -> Result<()> {
    for line in left_out {
        eprintln!("left out: {line}");
    }
    Ok(())
}
