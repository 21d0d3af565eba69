//! `tenure doctor`: one line per check, each with what to do. Exits with 1 if a check fails.

use crate::cli::Common;
use crate::commands::version::server_version;
use crate::compose;
use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};
use clap::Args;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tenure_sandbox::Launcher;
use tokio::net::TcpListener;

/// Below this much free space a disk is called nearly full, in bytes.
const LITTLE_SPACE: u64 = 1024 * 1024 * 1024;

/// Flags of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {}

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
        let mut lines = vec![files(&config), folder(&config), space(&config.data), store(&config), key_file(&config)];
        lines.push(port(&config).await);
        lines.extend(providers(&config));
        lines.push(public_url(&config));
        lines.push(skew(common).await);
        lines.extend(sandbox().await);
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

fn store(config: &Config) -> Line {
    let file = config.store.file.display().to_string();
    if !config.store.file.exists() {
        return Line::new("store", Verdict::Ok, format!("{file} is made at the first start"), "");
    }
    match compose::open_store(config) {
        Ok(_) => Line::new(
            "store",
            Verdict::Ok,
            format!("{file} opens; large payloads in {}", config.blobs.folder.display()),
            "",
        ),
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
    if config.server_file().exists() {
        return Line::new("port", Verdict::Ok, "a server of this data folder runs, or was killed".to_owned(), "");
    }
    match TcpListener::bind(address).await {
        Ok(_) => Line::new("port", Verdict::Ok, format!("{address} is free"), ""),
        Err(error) => {
            Line::new("port", Verdict::Warn, format!("{address}: {error}"), "choose another one with --listen")
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
        let from_env =
            provider.api_key_env.as_ref().map(|variable| (std::env::var_os(variable).is_some(), variable.clone()));
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

fn public_url(config: &Config) -> Line {
    match &config.public_url {
        Some(url) => Line::new("public_url", Verdict::Ok, format!("{url} (not called from here)"), ""),
        None => {
            let why = "not set: callback links lead to the listen address, which other machines may not reach";
            Line::new(
                "public_url",
                Verdict::Warn,
                why,
                "set public_url in tenure.toml if outside jobs answer callbacks",
            )
        }
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

async fn sandbox() -> Vec<Line> {
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
    for driver in compose::drivers() {
        for weak in driver.guarantees().weak() {
            let why = format!("{} {:?}: {}", weak.item.name(), weak.state, weak.why);
            lines.push(Line::new(&format!("driver {}", driver.name()), Verdict::Warn, why, &weak.fix));
        }
    }
    lines
}
