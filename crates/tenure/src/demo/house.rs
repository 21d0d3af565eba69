//! The processes of the demo: a server, and a worker that can be killed.

use super::PATIENCE;
use super::proof::Proof;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use tenure_api::client::Client;
use tenure_sandbox::Launcher;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

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
        let scenarios = folder.join("scenarios");
        std::fs::create_dir_all(&scenarios).with_context(|| format!("make {}", scenarios.display()))?;
        std::fs::write(scenarios.join("coder.toml"), include_str!("coder.toml"))?;
        std::fs::write(scenarios.join("payer.toml"), include_str!("payer.toml"))?;
        let config = format!(
            "[providers.script]\ndialect = \"script\"\nscenarios = {:?}\n\n[node]\nheartbeat_seconds = 1\ndead_after_seconds = 4\n",
            scenarios.display().to_string()
        );
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

    pub(crate) async fn stop(mut self) {
        for child in self.worker.iter_mut().chain([&mut self.server]) {
            let _ = child.kill().await;
        }
        if self.is_temporary {
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
    command
        .arg(name)
        .arg("--json")
        .arg("--config")
        .arg(folder.join("tenure.toml"))
        .arg("--data")
        .arg(folder.join("data"));
    command.stdin(Stdio::null()).kill_on_drop(true);
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
