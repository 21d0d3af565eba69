//! A PostgreSQL of its own that can be killed and comes back.

use super::until;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Starts the server again whenever it ends, until its standard input ends, however the tests end.
const SCRIPT: &str = r#"
"$BIN/initdb" -D "$PLACE/data" -A trust -U tenure -E UTF8 --locale=C --no-sync >"$PLACE/initdb.log" 2>&1 || exit 1
(
  while [ ! -e "$PLACE/stop" ]; do
    "$BIN/postgres" -D "$PLACE/data" -k "$PLACE" -c listen_addresses= -c fsync=off -c max_connections=100 \
      -c autovacuum=off -c shared_buffers=32MB <&- >>"$PLACE/server.log" 2>&1
    sleep 0.05
  done
) &
loop=$!
cat >/dev/null
: >"$PLACE/stop"
kill -QUIT "$(head -n 1 "$PLACE/data/postmaster.pid")" 2>/dev/null
wait $loop
rm -rf "$PLACE"
"#;

/// A running server.
pub(super) struct Database {
    place: PathBuf,
    script: Child,
}

/// Starts one; `None` if this machine has none to start.
pub(super) fn start() -> Option<Database> {
    let bin = installed()?;
    let place = tempfile::Builder::new().prefix("tenure-crash-").tempdir().unwrap().keep();
    // The server refuses to run as root.
    let mut command = if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let (uid, gid) = unprivileged();
        chown(&place, Some(uid), Some(gid)).unwrap();
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]).arg("sh");
        command
    } else {
        Command::new("sh")
    };
    command.args(["-c", SCRIPT]).env("BIN", bin).env("PLACE", &place).env_remove("PGOPTIONS").current_dir("/");
    let script = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let database = Database { place, script };
    database.until_ready();
    Some(database)
}

fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop()
}

fn unprivileged() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let mut fields = users.lines().find(|line| line.starts_with(&format!("{name}:")))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).expect("every system has nobody")
}

impl Database {
    pub(super) fn url(&self) -> String {
        format!("postgres://tenure@{}/postgres", self.place.display().to_string().replace('/', "%2F"))
    }

    /// SIGKILL to the server, and waits until another one takes connections.
    pub(super) fn kill(&self) {
        self.until_ready();
        let server = self.server().expect("it runs between two kills");
        crate::house::send(Signal::KILL, server);
        until(|| self.server().is_some_and(|now| now != server));
        self.until_ready();
    }

    fn server(&self) -> Option<u32> {
        let text = fs::read_to_string(self.place.join("data").join("postmaster.pid")).ok()?;
        let server = text.lines().next()?.parse().ok()?;
        // A file that is being written names somebody else.
        let name = fs::read_to_string(format!("/proc/{server}/comm")).ok()?;
        (name.trim() == "postgres").then_some(server)
    }

    /// Its own file says `ready` once it takes statements.
    fn until_ready(&self) {
        until(|| {
            let text = fs::read_to_string(self.place.join("data").join("postmaster.pid")).unwrap_or_default();
            let is_ready = text.lines().last().is_some_and(|line| line.trim() == "ready");
            is_ready && UnixStream::connect(self.socket()).is_ok()
        });
    }

    fn socket(&self) -> PathBuf {
        Path::new(&self.place).join(".s.PGSQL.5432")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
