//! `tenure doctor`: one line per check, each with what to do. Exits with 1 if a check fails.

use crate::cli::Common;
use crate::commands::version::server_version;
use crate::compose;
use crate::config::{self, Config, StorePlace};
use crate::connection::local_address;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, time};
use crate::port_holder;
use clap::Args;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tenure_api::client::Client;
use tenure_sandbox::Launcher;
use tokio::net::TcpListener;

/// Below this much free space a disk is called nearly full, in bytes.
const LITTLE_SPACE: u64 = 1024 * 1024 * 1024;

/// How long the public address may take to answer.
const PROBE_WITHIN: Duration = Duration::from_secs(3);

/// Flags of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Each limit of every driver, not only of the one that is used.
    #[arg(long, short)]
    verbose: bool,
}

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

struct Line {
    name: String,
    verdict: Verdict,
    why: String,
    fix: String,
}

impl Line {
    fn new(name: &str, verdict: Verdict, why: impl Into<String>, fix: &str) -> Self {
        let fix = if verdict == Verdict::Ok { String::new() } else { fix.to_owned() };
        Self { name: name.to_owned(), verdict, why: why.into(), fix }
    }
}

impl Doctor {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let config = config::load(&common.flags())?;
        let mut lines =
            vec![files(&config), folder(&config), space(&config.data), store(&config).await, key_file(&config)];
        lines.push(port(&config).await);
        lines.extend(providers(&config));
        lines.push(public_url(&config).await);
        lines.push(skew(common).await);
        let shows_all = self.verbose || common.format() == Format::Json;
        lines.extend(sandbox(shows_all).await);
        for line in &lines {
            print(line, common.format())?;
        }
        Ok(if lines.iter().any(|line| line.verdict == Verdict::Fail) { Exit::Failed } else { Exit::Ok })
    }
}

fn print(line: &Line, format: Format) -> Result<(), Failure> {
    let verdict = match line.verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    };
    match format {
        Format::Json => {
            output::json(&json!({ "check": line.name, "verdict": verdict, "why": line.why, "fix": line.fix }))
        }
        Format::Human => {
            output::line(&format!("{verdict:<5} {:<18} {}", line.name, line.why))?;
            if line.fix.is_empty() { Ok(()) } else { output::line(&format!("      {:<18} fix: {}", "", line.fix)) }
        }
    }
}

fn files(config: &Config) -> Line {
    let read: Vec<String> = config.files.iter().map(|file| file.display().to_string()).collect();
    let read = if read.is_empty() { "no file, defaults only".to_owned() } else { read.join(", ") };
    if config.unknown_variables.is_empty() {
        return Line::new("configuration", Verdict::Ok, read, "");
    }
    let why = format!("{read}; these variables mean nothing: {}", config.unknown_variables.join(", "));
    Line::new("configuration", Verdict::Warn, why, "unset them, or see tenure config show --origin")
}

fn folder(config: &Config) -> Line {
    let shown = config.data.display();
    let probe = config.data.join(".doctor");
    let written =
        fs::create_dir_all(&config.data).and_then(|()| fs::write(&probe, b"x")).and_then(|()| fs::remove_file(&probe));
    match (written, fs::metadata(&config.data)) {
        (Err(error), _) | (Ok(()), Err(error)) => {
            Line::new("data folder", Verdict::Fail, format!("{shown}: {error}"), "choose a folder of yours with --data")
        }
        (Ok(()), Ok(facts)) if facts.permissions().mode() & 0o077 != 0 => {
            let why = format!("{shown} can be read by other users");
            Line::new("data folder", Verdict::Warn, why, "chmod 700 the folder; the next start does it too")
        }
        (Ok(()), Ok(_)) => Line::new("data folder", Verdict::Ok, format!("{shown} is writable and private"), ""),
    }
}

fn space(data: &Path) -> Line {
    match rustix::fs::statvfs(data) {
        Err(error) => Line::new("disk space", Verdict::Warn, error.to_string(), "look at the disk by hand"),
        Ok(facts) => {
            let free = facts.f_bavail.saturating_mul(facts.f_frsize);
            let why = format!("{} MB free", free / 1_000_000);
            let verdict = if free < LITTLE_SPACE { Verdict::Warn } else { Verdict::Ok };
            Line::new("disk space", verdict, why, "free space: a full disk stops all work")
        }
    }
}

async fn store(config: &Config) -> Line {
    match &config.store.place {
        StorePlace::File(file) => store_file(config, file),
        StorePlace::Database(url) => database(&config.store.place.shown(), url).await,
    }
}

async fn database(shown: &str, url: &str) -> Line {
    let facts = async {
        let store = compose::open_database(url).await?;
        let facts = store.facts().await?;
        tenure_store::Store::close(&*store).await;
        anyhow::Ok(facts)
    };
    match facts.await {
        Ok(facts) if facts.warnings.is_empty() => {
            Line::new("store", Verdict::Ok, format!("{shown}: {}", facts.summary), "")
        }
        Ok(facts) => {
            let why = format!("{shown}: {}; {}", facts.summary, facts.warnings.join("; "));
            Line::new("store", Verdict::Warn, why, "see docs/reference/store-postgres.md")
        }
        Err(error) => {
            Line::new("store", Verdict::Fail, format!("{shown}: {error:#}"), "mend store.url or the database")
        }
    }
}

fn store_file(config: &Config, path: &Path) -> Line {
    let file = path.display().to_string();
    if !path.exists() {
        return Line::new("store", Verdict::Ok, format!("{file} is made at the first start"), "");
    }
    match compose::open_file(config) {
        Ok(_) => {
            let size = |path: &Path| fs::metadata(path).map_or(0, |facts| facts.len());
            let mut log = path.as_os_str().to_owned();
            log.push("-wal");
            let (store, log) = (time::size(size(path)), time::size(size(Path::new(&log))));
            let blobs = config.blobs.folder.display();
            Line::new("store", Verdict::Ok, format!("{file} opens: {store}, log {log}; large payloads in {blobs}"), "")
        }
        Err(error) => {
            Line::new("store", Verdict::Fail, format!("{error:#}"), "restore a backup, or choose another --data")
        }
    }
}

fn key_file(config: &Config) -> Line {
    let path = config.api_key_file();
    match fs::metadata(&path) {
        Err(_) => Line::new("key", Verdict::Ok, format!("{} is made at the first start", path.display()), ""),
        Ok(facts) if facts.permissions().mode() & 0o077 != 0 => {
            let why = format!("{} can be read by other users", path.display());
            Line::new("key", Verdict::Fail, why, "chmod 600 the file")
        }
        Ok(_) => Line::new("key", Verdict::Ok, format!("{} is private", path.display()), ""),
    }
}

async fn port(config: &Config) -> Line {
    let address = config.listen;
    match TcpListener::bind(address).await {
        Ok(_) => Line::new("port", Verdict::Ok, format!("{address} is free"), ""),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let is_ours = local_address(config) == config.local_url(address);
            match (is_ours, port_holder::of(address.port())) {
                (true, _) => Line::new("port", Verdict::Ok, format!("{address} is the server of this data folder"), ""),
                (false, holder) => {
                    let holder = holder.unwrap_or_else(|| "a program of another user".to_owned());
                    let fix = "choose another one with --listen";
                    Line::new("port", Verdict::Warn, format!("{address} is in use by {holder}"), fix)
                }
            }
        }
        Err(error) => {
            let why = format!("{address}: {error}");
            Line::new("port", Verdict::Fail, why, "choose an address of this machine with --listen")
        }
    }
}

fn providers(config: &Config) -> Vec<Line> {
    if let Err(error) = compose::providers(config) {
        return vec![Line::new("providers", Verdict::Fail, format!("{error:#}"), "mend [providers] in tenure.toml")];
    }
    if config.providers.is_empty() {
        let why = "none configured; models of script/ work without";
        return vec![Line::new("providers", Verdict::Warn, why, "add [providers.NAME] to tenure.toml")];
    }
    let line = |(name, provider): (&String, &tenure_model::ProviderConfig)| {
        let named = format!("provider {name}");
        let from_env = provider.key_env().map(|variable| (std::env::var_os(variable).is_some(), variable.to_owned()));
        let from_file = provider.api_key_file.as_ref().map(|file| (file.exists(), file.display().to_string()));
        match from_file.or(from_env) {
            Some((false, place)) => {
                Line::new(&named, Verdict::Fail, format!("its key is not there: {place}"), "set it")
            }
            Some((true, place)) => Line::new(&named, Verdict::Ok, format!("{}, key in {place}", provider.dialect), ""),
            None => Line::new(&named, Verdict::Ok, format!("{}, no key", provider.dialect), ""),
        }
    };
    config.providers.iter().map(line).collect()
}

/// Outside jobs answer callbacks at this address (hazard Z-50).
async fn public_url(config: &Config) -> Line {
    let Some(url) = &config.public_url else {
        let why = "not set: callback links lead to the listen address, which other machines may not reach";
        let fix = "set public_url in tenure.toml if outside jobs answer callbacks";
        return Line::new("public_url", Verdict::Warn, why, fix);
    };
    match answers_as_tenure(url).await {
        Ok(()) => Line::new("public_url", Verdict::Ok, format!("{url} answers, seen from here"), ""),
        Err(why) => Line::new(
            "public_url",
            Verdict::Warn,
            format!("{url}: {why}; callback links lead there"),
            "start the server, and check the name, the proxy in front and the firewall",
        ),
    }
}

async fn answers_as_tenure(url: &str) -> Result<(), String> {
    let client = Client::new(url, None).map_err(|error| error.to_string())?;
    let asked = client.get(&["healthz"], &[]);
    match tokio::time::timeout(PROBE_WITHIN, asked).await {
        Ok(Ok(health)) if health.get("status").is_some() => Ok(()),
        Ok(Ok(_)) => Err("something else answers".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PROBE_WITHIN.as_secs())),
    }
}

async fn skew(common: &Common) -> Line {
    let own = env!("CARGO_PKG_VERSION");
    match server_version(common).await {
        None => Line::new("server", Verdict::Ok, "none answers".to_owned(), ""),
        Some(server) if server == own => Line::new("server", Verdict::Ok, format!("version {server}"), ""),
        Some(server) => {
            let why = format!("version {server}, this program is {own}");
            Line::new("server", Verdict::Warn, why, "use the same version for both")
        }
    }
}

/// What this machine offers to sandboxes, and which driver follows from it.
async fn sandbox(shows_all: bool) -> Vec<Line> {
    let verdict = |verdict| match verdict {
        tenure_sandbox::Verdict::Ok => Verdict::Ok,
        tenure_sandbox::Verdict::Warn => Verdict::Warn,
        tenure_sandbox::Verdict::Fail => Verdict::Fail,
    };
    let mut lines: Vec<Line> = tenure_sandbox::probe(Launcher::default())
        .await
        .into_iter()
        .map(|found| Line { name: found.name, verdict: verdict(found.verdict), why: found.why, fix: found.fix })
        .collect();
    let strongest = match tenure_sandbox::strongest(Launcher::default()).await {
        Ok(choice) => choice.driver.name(),
        Err(_) => "process",
    };
    let drivers = compose::drivers();
    let order: Vec<&str> = drivers.iter().map(|driver| driver.name()).collect();
    let why = format!("{strongest}; by strength: {}", order.join(", "));
    let ranking = if strongest == order[0] { Verdict::Ok } else { Verdict::Warn };
    let fix = "environments must name this driver here, for example driver = \"landlock\"; see the lines above";
    lines.push(Line::new("strongest driver", ranking, why, fix));
    // Those before it do not work here, as the lines above say: what they would enforce is no news.
    for driver in drivers.iter().skip_while(|driver| driver.name() != strongest) {
        let name = format!("driver {}", driver.name());
        let is_used = driver.name() == strongest;
        let guarantees = driver.guarantees();
        if is_used || shows_all {
            for weak in guarantees.weak() {
                let why = format!("{} {}: {}", weak.item.name(), state(weak.state), weak.why);
                lines.push(Line::new(&name, if is_used { Verdict::Warn } else { Verdict::Ok }, why, &weak.fix));
            }
        } else {
            let weak: Vec<&str> = guarantees.weak().map(|weak| weak.item.name()).collect();
            let why = format!("weaker, not fully enforced: {}; tenure doctor --verbose", weak.join(", "));
            lines.push(Line::new(&name, Verdict::Ok, why, ""));
        }
    }
    lines
}

fn state(state: tenure_sandbox::State) -> &'static str {
    match state {
        tenure_sandbox::State::Enforced => "enforced",
        tenure_sandbox::State::Partial => "in part",
        tenure_sandbox::State::Missing => "missing",
    }
}
