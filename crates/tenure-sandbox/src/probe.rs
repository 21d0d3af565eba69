//! Finds out what this machine can do, for `doctor` and for the choice of a driver.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cgroup::{self, Controller, Version};
use crate::driver::has_outside_ids;
use crate::driver::landlock::Landlock;
use crate::driver::namespace::Namespace;
use crate::incarnation::Launcher;
use crate::port::{Driver, Spec};

/// Verdict of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As wanted.
    Ok,
    /// Works, with less.
    Warn,
    /// Does not work.
    Fail,
}

/// One line of [`probe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// What came of it.
    pub verdict: Verdict,
    /// In words.
    pub why: String,
    /// What to do; empty if nothing.
    pub fix: String,
}

fn finding(name: &str, verdict: Verdict, why: impl Into<String>, fix: &str) -> Finding {
    let fix = if verdict == Verdict::Ok { "" } else { fix };
    Finding { name: name.to_owned(), verdict, why: why.into(), fix: fix.to_owned() }
}

/// The strongest driver that works here.
pub struct Choice {
    /// The driver.
    pub driver: Arc<dyn Driver>,
    /// For each stronger driver that does not work, its name and the reason.
    pub refused: Vec<(&'static str, String)>,
}

/// Picks the strongest driver by trying; `None` if only the process driver is left.
///
/// The reasons of the drivers that do not work come with either answer.
pub async fn strongest(launcher: Launcher) -> Result<Choice, Vec<(&'static str, String)>> {
    let drivers: [Arc<dyn Driver>; 2] = [Arc::new(Namespace::new(launcher.clone())), Arc::new(Landlock::new(launcher))];
    let mut refused = Vec::new();
    for driver in drivers {
        match try_driver(driver.as_ref()).await {
            Ok(()) => return Ok(Choice { driver, refused }),
            Err(why) => refused.push((driver.name(), why)),
        }
    }
    Err(refused)
}

/// Starts a throw-away sandbox and runs one command in it.
pub async fn try_driver(driver: &dyn Driver) -> Result<(), String> {
    let folder = Scratch::make().map_err(|error| format!("make a folder for the trial: {error}"))?;
    let spec = Spec::new(folder.0.join("workspace"), folder.0.join("state"), "doctor");
    let incarnation = driver.start(spec).await.map_err(|error| error.message)?;
    let outcome = incarnation.exec(crate::port::Exec::new("echo ready")).await;
    incarnation.stop().await;
    match outcome {
        Ok(outcome) if outcome.head == b"ready\n" => Ok(()),
        Ok(outcome) => Err(format!(
            "a first command ended with {:?} and said {:?}",
            outcome.status,
            String::from_utf8_lossy(&outcome.head)
        )),
        Err(error) => Err(error.message),
    }
}

struct Scratch(std::path::PathBuf);

impl Scratch {
    fn make() -> std::io::Result<Self> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let path = std::env::temp_dir().join(format!("tenure-trial-{:016x}", u64::from_le_bytes(random)));
        fs::create_dir_all(path.join("workspace"))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Looks at everything that the drivers need.
pub async fn probe(launcher: Launcher) -> Vec<Finding> {
    let mut list = vec![user()];
    let namespace = try_driver(&Namespace::new(launcher.clone())).await;
    list.push(match namespace {
        Ok(()) => finding("namespace driver", Verdict::Ok, "a first command ran in it", ""),
        Err(why) => finding("namespace driver", Verdict::Fail, why, namespace_fix()),
    });
    let landlock = try_driver(&Landlock::new(launcher)).await;
    list.push(match landlock {
        Ok(()) => finding("landlock driver", Verdict::Ok, "a first command ran in it", ""),
        Err(why) => {
            finding("landlock driver", Verdict::Warn, why, "use a kernel from 5.13 with landlock in its lsm list")
        }
    });
    list.push(user_namespaces());
    list.push(seccomp());
    list.push(landlock_version());
    list.extend(control_groups());
    list.push(finding(
        "disk quota",
        Verdict::Warn,
        "sandboxes have no quota: the disk cap is checked every few seconds",
        "put the data folder on a file system of its own",
    ));
    list
}

fn user() -> Finding {
    if has_outside_ids() {
        finding("user", Verdict::Ok, "root: each sandbox gets a user of its own", "")
    } else if rustix::process::geteuid().is_root() {
        finding("user", Verdict::Ok, "root of a container without ids for sandboxes: they map to this user", "")
    } else {
        finding("user", Verdict::Ok, "not root: sandboxes map to this user", "")
    }
}

fn namespace_fix() -> &'static str {
    if Path::new("/.dockerenv").exists() {
        "in a container: start it with a seccomp profile that allows unshare, clone and mount, and with /proc unmasked (docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined)"
    } else if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root"
    } else if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        "as root: sysctl -w kernel.unprivileged_userns_clone=1, or run as root"
    } else {
        "run as root, or allow unprivileged user namespaces"
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn user_namespaces() -> Finding {
    let most: u64 = read("/proc/sys/user/max_user_namespaces").and_then(|text| text.parse().ok()).unwrap_or(0);
    if most == 0 {
        return finding(
            "user namespaces",
            Verdict::Fail,
            "user.max_user_namespaces is 0",
            "as root: sysctl -w user.max_user_namespaces=10000",
        );
    }
    for name in ["kernel/apparmor_restrict_unprivileged_userns", "kernel/unprivileged_userns_clone"] {
        let forbids = if name.contains("restrict") { "1" } else { "0" };
        if read(&format!("/proc/sys/{name}")).as_deref() == Some(forbids) {
            return finding(
                "user namespaces",
                Verdict::Warn,
                format!("{name} is {forbids}: root only"),
                namespace_fix(),
            );
        }
    }
    finding("user namespaces", Verdict::Ok, format!("up to {most}"), "")
}

fn seccomp() -> Finding {
    if Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        finding("seccomp", Verdict::Ok, "filters can be installed", "")
    } else {
        finding(
            "seccomp",
            Verdict::Fail,
            "this kernel has no seccomp filters",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        )
    }
}

fn landlock_version() -> Finding {
    match crate::sys::landlock_version() {
        0 => finding(
            "landlock",
            Verdict::Warn,
            "this kernel has no landlock; the namespace driver does not need it",
            "add landlock to the kernel's lsm list",
        ),
        version if version < 4 => finding(
            "landlock",
            Verdict::Warn,
            format!("version {version}: cannot refuse connections"),
            "use a kernel from 6.7",
        ),
        version => finding("landlock", Verdict::Ok, format!("version {version}"), ""),
    }
}

fn control_groups() -> Vec<Finding> {
    let plan = cgroup::plan();
    [(Controller::Memory, "memory cap"), (Controller::Pids, "process cap"), (Controller::Cpu, "processor cap")]
        .into_iter()
        .map(|(controller, name)| match plan.parents.get(&controller) {
            Some((Version::One, path)) => {
                finding(name, Verdict::Ok, format!("control group version 1 below {}", path.display()), "")
            }
            Some((Version::Two, path)) => {
                finding(name, Verdict::Ok, format!("control group version 2 below {}", path.display()), "")
            }
            None => {
                let why = plan.missing.get(&controller).map_or("no control group", String::as_str);
                finding(name, Verdict::Warn, why, "run as root, or in a service with Delegate=yes")
            }
        })
        .collect()
}
