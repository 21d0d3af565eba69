//! Builds the file system of the namespace driver.
//!
//! ```text
//! /            tmpfs, read-only, empty but for what follows
//! /usr /bin /lib* /sbin /opt    the host's, read-only, nosuid, nodev
//! /etc         tmpfs with own passwd, group and hosts; chosen files of the host, read-only
//! /workspace   the workspace, writable, nosuid, nodev
//! /home/agent  a folder beside the workspace, writable; keeps caches between incarnations
//! /tmp /dev/shm    tmpfs with a size
//! /proc        of the own pid namespace, masked
//! /dev         null zero full random urandom, own pts
//! ```

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change, unmount,
};

use super::namespaces::INSIDE_ID;
use super::step;
use crate::port::{Error, Network};
use crate::sys::{self, MOUNT_NODEV, MOUNT_NOEXEC, MOUNT_NOSUID, MOUNT_RDONLY};
use crate::wire::Setup;

/// Where commands find the workspace.
pub(crate) const WORKSPACE: &str = "/workspace";
/// Home folder of the agent's user.
pub(crate) const HOME: &str = "/home/agent";
/// Size of /tmp; it counts towards the memory cap.
const TMP_BYTES: u64 = 1024 * 1024 * 1024;
/// Size of /dev/shm.
const SHM_BYTES: u64 = 64 * 1024 * 1024;
/// Where the new root is put together; any directory that exists on every Linux will do.
const STAGE: &str = "/tmp";

/// Directories of the host that hold programs.
const PROGRAMS: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];

/// What of /etc is shown. Everything else stays out: shadow, ssh keys, tokens, machine id.
const ETC: [&str; 40] = [
    "alternatives",
    "apache2/mime.types",
    "bash.bashrc",
    "bash_completion.d",
    "binfmt.d",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "default/locale",
    "dpkg",
    "emacs",
    "fonts",
    "gai.conf",
    "gitconfig",
    "host.conf",
    "inputrc",
    "issue",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "perl",
    "pki/tls",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "services",
    "ssl",
    "terminfo",
];

/// Paths below the shown trees that are covered again.
const COVERED: [&str; 8] = [
    "etc/ssl/private",
    "etc/pki/tls/private",
    "usr/local/etc",
    "proc/acpi",
    "proc/scsi",
    "proc/kcore",
    "proc/keys",
    "proc/sysrq-trigger",
];
/// An empty folder that nobody may look into.
const CLOSED: &str = "mode=0000,size=4k";
const COVERED_PROC: [&str; 6] = ["kmsg", "timer_list", "sched_debug", "kallsyms", "interrupts", "latency_stats"];
/// Parts of /proc that stay readable but not writable.
const READ_ONLY_PROC: [&str; 4] = ["sys", "irq", "bus", "fs"];

/// Builds the root and moves into it; afterwards nothing of the host's tree can be named.
pub(super) fn build(setup: &Setup) -> Result<(), Error> {
    let root = Path::new(STAGE);
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| step("make mounts private", &error.into()))?;
    // The workspace and the home may lie below the stage, which is covered next.
    let workspace = hold(&setup.workspace).map_err(|error| step("open the workspace", &error))?;
    let home = hold(&setup.home).map_err(|error| step("open the home folder", &error))?;
    tmpfs(root, "mode=0755,size=4m", MountFlags::NOSUID | MountFlags::NODEV)
        .map_err(|error| step("mount the root", &error))?;
    Tree { root, setup }.fill(&workspace, &home)?;
    rustix::process::chdir(root).map_err(|error| step("enter the new root", &error.into()))?;
    rustix::process::pivot_root(".", ".").map_err(|error| step("change the root", &error.into()))?;
    unmount(".", UnmountFlags::DETACH).map_err(|error| step("leave the old root", &error.into()))?;
    rustix::process::chdir("/").map_err(|error| step("enter the root", &error.into()))?;
    Ok(())
}

fn hold(path: &str) -> io::Result<String> {
    use std::os::fd::IntoRawFd;
    let fd = rustix::fs::open(
        path,
        rustix::fs::OFlags::PATH
            | rustix::fs::OFlags::DIRECTORY
            | rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    // Stays open until the new root is complete; `close_held` is the execve of the commands
    // (close-on-exec), and file operations run in children that close everything.
    Ok(format!("/proc/self/fd/{}", fd.into_raw_fd()))
}

struct Tree<'a> {
    root: &'a Path,
    setup: &'a Setup,
}

impl Tree<'_> {
    fn fill(&self, workspace: &str, home: &str) -> Result<(), Error> {
        // Binds of the host's tree first: they need the old /proc, and /tmp of the host is covered.
        self.bind_writable(workspace, WORKSPACE).map_err(|error| step("mount the workspace", &error))?;
        self.bind_writable(home, HOME).map_err(|error| step("mount the home folder", &error))?;
        for name in PROGRAMS {
            self.program(name).map_err(|error| step(&format!("mount /{name}"), &error))?;
        }
        self.etc().map_err(|error| step("fill /etc", &error))?;
        self.dev().map_err(|error| step("fill /dev", &error))?;
        self.proc().map_err(|error| step("mount /proc", &error))?;
        self.empty().map_err(|error| step("make directories", &error))?;
        // Empty for those that programs look into: git ends when it may not look for its configuration.
        let covered = COVERED.iter().map(|path| (PathBuf::from(path), "mode=0555,size=4k"));
        for (path, options) in covered.chain(self.hidden().map(|path| (path, CLOSED))) {
            self.cover(&self.root.join(path), options).map_err(|error| step("cover hidden paths", &error))?;
        }
        sys::mount_attributes(&c_path(self.root), 0).map_err(|error| step("set mount flags", &error))?;
        // Only the root itself: what is mounted below keeps its own flags.
        rustix::mount::mount_remount(
            self.root,
            MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
            "",
        )
        .map_err(|error| step("make the root read-only", &error.into()))
    }

    /// Host paths that must stay invisible although a tree that is shown contains them.
    fn hidden(&self) -> impl Iterator<Item = PathBuf> {
        self.setup.hidden.iter().flat_map(|path| {
            let path = Path::new(path);
            let shown = path.strip_prefix("/").ok().map(Path::to_owned);
            let below = path.strip_prefix(&self.setup.workspace).ok();
            let below = below.map(|rest| Path::new(WORKSPACE.trim_start_matches('/')).join(rest));
            shown.into_iter().chain(below)
        })
    }

    fn bind_writable(&self, source: &str, target: &str) -> io::Result<()> {
        let target = self.directory(target)?;
        mount_bind(source, &target)?;
        sys::mount_attributes(&c_path(&target), MOUNT_NOSUID | MOUNT_NODEV)
    }

    fn program(&self, name: &str) -> io::Result<()> {
        let (source, target) = (Path::new("/").join(name), self.root.join(name));
        match fs::symlink_metadata(&source) {
            Err(_) => Ok(()),
            Ok(kind) if kind.is_symlink() => std::os::unix::fs::symlink(fs::read_link(&source)?, &target),
            Ok(kind) if kind.is_dir() => self.bind_read_only(&source, &target),
            Ok(_) => Ok(()),
        }
    }

    fn bind_read_only(&self, source: &Path, target: &Path) -> io::Result<()> {
        if source.is_dir() {
            fs::create_dir_all(target)?;
        } else {
            fs::create_dir_all(target.parent().unwrap_or(self.root))?;
            fs::File::create(target)?;
        }
        mount_bind_recursive(source, target)?;
        sys::mount_attributes(&c_path(target), MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV)
    }

    fn etc(&self) -> io::Result<()> {
        let etc = self.directory("/etc")?;
        for name in ETC {
            let source = Path::new("/etc").join(name);
            // Links into places that are not shown would dangle; their targets are taken instead.
            if source.exists() {
                self.bind_read_only(&source, &etc.join(name))?;
            }
        }
        if self.setup.network == Network::Host && Path::new("/etc/resolv.conf").exists() {
            self.bind_read_only(Path::new("/etc/resolv.conf"), &etc.join("resolv.conf"))?;
        }
        fs::write(
            etc.join("passwd"),
            format!(
                "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:{INSIDE_ID}:{INSIDE_ID}:agent:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        )?;
        fs::write(etc.join("group"), format!("root:x:0:\nagent:x:{INSIDE_ID}:\nnogroup:x:65534:\n"))?;
        fs::write(etc.join("hosts"), "127.0.0.1 localhost sandbox\n::1 localhost\n")?;
        fs::write(etc.join("hostname"), "sandbox\n")
    }

    fn dev(&self) -> io::Result<()> {
        let dev = self.directory("/dev")?;
        for name in ["null", "zero", "full", "random", "urandom"] {
            let target = dev.join(name);
            fs::File::create(&target)?;
            mount_bind(Path::new("/dev").join(name), &target)?;
            sys::mount_attributes(&c_path(&target), MOUNT_NOSUID | MOUNT_NOEXEC)?;
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            std::os::unix::fs::symlink(target, dev.join(name))?;
        }
        let pts = self.directory("/dev/pts")?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount("devpts", &pts, "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")?;
        tmpfs(&self.directory("/dev/shm")?, &format!("mode=1777,size={SHM_BYTES}"), flags | MountFlags::NODEV)
    }

    fn proc(&self) -> io::Result<()> {
        let proc = self.directory("/proc")?;
        mount("proc", &proc, "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
        for name in READ_ONLY_PROC {
            let path = proc.join(name);
            if path.exists() {
                mount_bind(&path, &path)?;
                sys::mount_attributes(&c_path(&path), MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC)?;
            }
        }
        for name in COVERED_PROC {
            self.cover(&proc.join(name), CLOSED)?;
        }
        Ok(())
    }

    fn empty(&self) -> io::Result<()> {
        for name in ["/run", "/var/lib", "/var/cache", "/var/log", "/mnt", "/srv", "/sys"] {
            self.directory(name)?;
        }
        std::os::unix::fs::symlink("../tmp", self.root.join("var/tmp"))?;
        std::os::unix::fs::symlink("../run", self.root.join("var/run"))?;
        let size = TMP_BYTES.min(self.setup.limits.memory_bytes / 2);
        tmpfs(&self.directory("/tmp")?, &format!("mode=1777,size={size}"), MountFlags::NOSUID | MountFlags::NODEV)
    }

    /// Puts something empty over a path, if there is something.
    fn cover(&self, target: &Path, options: &str) -> io::Result<()> {
        match fs::symlink_metadata(target) {
            Ok(kind) if kind.is_dir() => {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
                tmpfs(target, options, flags)
            }
            // A device node on a mount without devices: open says permission denied.
            Ok(kind) if kind.is_file() => {
                mount_bind("/dev/null", target)?;
                sys::mount_attributes(&c_path(target), MOUNT_RDONLY | MOUNT_NODEV | MOUNT_NOEXEC)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn directory(&self, inside: &str) -> io::Result<PathBuf> {
        let path = self.root.join(inside.trim_start_matches('/'));
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

fn tmpfs(target: &Path, options: &str, flags: MountFlags) -> io::Result<()> {
    let options = CString::new(options).expect("our options have no null byte");
    mount("tmpfs", target, "tmpfs", flags, options.as_c_str())?;
    Ok(())
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths that the kernel accepted have no null byte")
}
