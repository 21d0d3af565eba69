//! A private server, and a database in it for each test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::NoTls;

/// Runs until its standard input ends, which is when the tests end, however they end.
const SCRIPT: &str = r#"
"$BIN/initdb" -D "$PLACE/data" -A trust -U tenure -E UTF8 --locale=C --no-sync >"$PLACE/initdb.log" 2>&1 || exit 1
"$BIN/postgres" -D "$PLACE/data" -k "$PLACE" -c listen_addresses= -c fsync=off -c max_connections=200 \
  -c autovacuum=off -c shared_buffers=32MB <&- &
pid=$!
cat >/dev/null
kill -QUIT $pid
wait $pid
rm -rf "$PLACE"
"#;

/// The server of all tests of this process.
pub(crate) struct Server {
    place: PathBuf,
    /// Its standard input is open for as long as this process lives.
    _held: Child,
}

static SERVER: OnceLock<Option<Server>> = OnceLock::new();

/// The server; `None` if this machine has none to start.
pub(crate) fn server() -> Option<&'static Server> {
    SERVER.get_or_init(start).as_ref()
}

#[allow(clippy::zombie_processes, reason = "the server lives as long as the tests, and ends with them")]
fn start() -> Option<Server> {
    let Some(bin) = installed() else {
        let line = "the tests on PostgreSQL: no server is installed (Debian: apt-get install postgresql)";
        eprintln!("left out: {line}");
        let _ = fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("tenure-store-postgres.left-out"), line);
        return None;
    };
    let place = tempfile::Builder::new().prefix("tenure-pg-").tempdir().unwrap().keep();
    // The server refuses to run as root.
    let mut command = match fs::metadata("/proc/self").unwrap().uid() {
        0 => {
            let (name, uid, gid) = unprivileged();
            chown(&place, Some(uid), Some(gid)).unwrap();
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
            command.args(["sh", "-c", SCRIPT]).env("USER", name);
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT]);
            command
        }
    };
    command.env("BIN", bin).env("PLACE", &place).env_remove("PGOPTIONS").current_dir("/");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    for line in log.by_ref() {
        let is_ready = line.contains("ready to accept connections");
        said.push(line);
        if is_ready {
            // Somebody must go on reading, else the server waits for it.
            std::thread::spawn(move || log.for_each(drop));
            return Some(Server { place, _held: child });
        }
    }
    panic!("the server did not start: {said:#?} {:?}", fs::read_to_string(place.join("initdb.log")));
}

/// The folder with the programs of the newest server.
fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop()
}

/// A user without rights.
fn unprivileged() -> (String, u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let mut fields = users.lines().find(|line| line.starts_with(&format!("{name}:")))?.split(':').skip(2);
        Some((name.to_owned(), fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).expect("every system has nobody")
}

impl Server {
    /// A new, empty database; its address.
    pub(crate) async fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        self.url(&name)
    }

    /// Runs a statement in a database, past the store.
    pub(crate) async fn run(&self, database: &str, statement: &str) {
        let config = self.url(database);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute(statement).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
    }

    pub(crate) fn url(&self, database: &str) -> String {
        let place = self.place.display().to_string().replace('/', "%2F");
        format!("postgres://tenure@{place}/{database}")
    }

    /// The socket on which it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.place.join(".s.PGSQL.5432")
    }
}
