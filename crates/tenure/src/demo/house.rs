//! The processes of the demo: a server, and a worker that can be killed.

use super::PATIENCE;
use super::proof::Proof;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tenure_api::client::Client;
use tenure_sandbox::Launcher;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long a child may take to stop before it is killed: longer than its grace time.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// A server and its worker in a data folder of their own.
pub(crate) struct House {
    folder: PathBuf,
    is_temporary: bool,
    server: Child,
    worker: Option<Child>,
    url: String,
    pub(crate) kills: usize,
}

/// The strongest sandbox that works here, with a loud line if it is not the default.
pub(crate) async fn strongest_driver(proof: &mut Proof) -> &'static str {
    let (driver, refused) = match tenure_sandbox::strongest(Launcher::default()).await {
        Ok(choice) => (choice.driver.name(), choice.refused),
        Err(refused) => ("process", refused),
    };
    for (name, why) in refused {
        proof.warn(&format!("the sandbox driver {name} does not work on this machine: {why}"));
    }
    if driver != "namespace" {
        proof.warn(&format!("the demo runs in the driver {driver}, which isolates less"));
    }
    driver
}

impl House {
    /// Starts both processes and waits until the server answers.
    pub(crate) async fn build(data: Option<PathBuf>, proof: &mut Proof) -> Result<Self> {
        let is_temporary = data.is_none();
        let folder = data.unwrap_or_else(|| std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id())));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        // Short times, so that a dead worker is noticed while somebody watches.
        let config = "[node]\nheartbeat_seconds = 1\ndead_after_seconds = 4\n\n[worker]\ngrace_seconds = 2\n";
        std::fs::write(folder.join("tenure.toml"), config)?;
        let mut server = command(&folder, "serve")
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let url = address(&mut server).await?;
        let worker = command(&folder, "worker").stdout(Stdio::null()).spawn().context("start the worker")?;
        proof.say(&format!("server at {url} (pid {}), worker (pid {})", pid(&server), pid(&worker)));
        Ok(Self { folder, is_temporary, server, worker: Some(worker), url, kills: 0 })
    }

    pub(crate) fn client(&self) -> Result<Client> {
        // Made by whoever comes first, so the client may be that one.
        let key = crate::compose::secret_file(&self.folder.join("data").join("api.key"), "tk")?;
        Ok(Client::new(&self.url, Some(key.trim().to_owned()))?)
    }

    /// Kills the worker with SIGKILL and starts a new one.
    pub(crate) async fn kill_worker(&mut self, why: &str, proof: &mut Proof) -> Result<()> {
        if let Some(mut worker) = self.worker.take() {
            proof.say(&format!("  kill -9 {} ({why})", pid(&worker)));
            worker.kill().await.context("kill the worker")?;
            self.kills += 1;
        }
        let worker = command(&self.folder, "worker").stdout(Stdio::null()).spawn().context("start a new worker")?;
        proof.say(&format!("  a new worker takes over (pid {})", pid(&worker)));
        self.worker = Some(worker);
        Ok(())
    }

    /// Stops both processes in order and removes what the demo made.
    pub(crate) async fn stop(mut self) {
        // The end of its input asks a child to stop, the worker first.
        for child in self.worker.iter_mut().chain([&mut self.server]) {
            drop(child.stdin.take());
            if tokio::time::timeout(LAST_WAIT, child.wait()).await.is_err() {
                // It may have ended between the two calls.
                let _ = child.kill().await;
            }
        }
        if self.is_temporary {
            // A leftover in the temporary folder does no harm.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn pid(child: &Child) -> u32 {
    child.id().unwrap_or(0)
}

fn command(folder: &std::path::Path, name: &str) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tenure"));
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        // Settings of the person who watches are for their own server: a store address would be used here.
        if variable.to_string_lossy().starts_with("TENURE_") && variable != "TENURE_LOG" {
            command.env_remove(variable);
        }
    }
    command
        .arg(name)
        .arg("--with-parent")
        .arg("--json")
        .arg("--config")
        .arg(folder.join("tenure.toml"))
        .arg("--data")
        .arg(folder.join("data"));
    // Its own group: Ctrl-C reaches this process alone, which then stops its children in order.
    command.process_group(0).stdin(Stdio::piped()).kill_on_drop(true);
    if std::env::var_os("TENURE_DEMO_LOGS").is_none() {
        command.stderr(Stdio::null());
    }
    command
}

/// The address in the line that the server prints when it is ready.
async fn address(server: &mut Child) -> Result<String> {
    let stdout = server.stdout.take().context("the server has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let found = async {
        while let Some(line) = lines.next_line().await? {
            if let Ok(value) = serde_json::from_str::<Value>(&line) {
                for name in ["url", "address", "listen"] {
                    if let Some(url) = value.get(name).and_then(Value::as_str) {
                        return Ok(if url.starts_with("http") { url.to_owned() } else { format!("http://{url}") });
                    }
                }
            }
        }
        bail!("the server ended before it was ready (set TENURE_DEMO_LOGS=1 to see why)")
    };
    let url = tokio::time::timeout(PATIENCE, found).await.context("the server was not ready in time")??;
    // Keep reading, so that the server never blocks on its output.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(url)
}
