//! `tenure dev`: server in this process, worker as a supervised child.

use super::serve::{greet_workbench, listen, prepare_data, ready};
use crate::cli::Common;
use crate::config::{self, Config, Flags};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert};
use crate::stop::{self, Requests};
use crate::{compose, data_lock, logging};
use clap::Args;
use rand::Rng;
use std::process::Stdio;
use std::time::Duration;
use tenure_sandbox::{Choice, Launcher};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// First wait before a worker that died is started again; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait before a worker is started again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A worker that lived for so long was healthy: the waits start anew.
const HEALTHY: Duration = Duration::from_secs(60);
/// Beyond its grace, a worker gets so long before it is killed.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Flags of `dev`.
#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// Address and port; port 0 picks one [env: TENURE_LISTEN].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Starts no worker; `tenure worker` with the same data folder is one.
    #[arg(long)]
    no_worker: bool,
}

impl Dev {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let format = common.format();
        logging::start(format);
        let config = config::load(&Flags { listen: self.listen.clone(), ..common.flags() })?;
        prepare_data(&config.data)?;
        let _held = data_lock::hold(&config, "dev")?;
        let (listener, url) = listen(&config, "dev").await?;
        let requests = stop::on_signals_with_children().map_err(anyhow::Error::from)?;
        let mut worker = None;
        let ready = |link: &str| {
            // The worker reads the address of the server, so the server comes first.
            if !self.no_worker {
                worker = Some(tokio::spawn(supervise(config.clone(), common.clone(), requests.clone())));
            }
            match format {
                Format::Json => output::json(&ready(&config, &url, link)),
                Format::Human => {
                    self.greet(&config, &url, link);
                    tokio::spawn(tell_sandbox());
                    Ok(())
                }
            }
        };
        let served = compose::run_server(&config, listener, requests.stop.clone(), ready).await;
        // A server that failed takes its worker along.
        requests.stop.cancel();
        if let Some(worker) = worker {
            worker.await.map_err(anyhow::Error::from)?;
        }
        served?;
        Ok(if requests.at_once.is_cancelled() { Exit::Failed } else { Exit::Ok })
    }

    fn greet(&self, config: &Config, url: &str, link: &str) {
        output::say(&format!("tenure {}", env!("CARGO_PKG_VERSION")));
        greet_workbench("  workbench", link);
        output::say(&format!("  api        {url}/v1"));
        output::say(&format!("  data       {}   (kept after exit)", config::shown(&config.data)));
        match self.no_worker {
            true => output::say("  worker     none; start one: tenure worker"),
            false => output::say(&format!("  worker     {} slots", config.worker.slots)),
        }
        match (&config.models.default, config.providers.is_empty()) {
            (Some(model), _) => output::say(&format!("  model      {model}")),
            (None, false) => {
                output::say("  model      providers are configured, none is the default: [models] default")
            }
            (None, true) => output::say("  model      none configured; tenure demo needs none"),
        }
        output::hint("tenure run --model script/echo \"hello\"      Ctrl-C stops; sessions go on at the next start");
    }
}

/// Says whether the driver that environments use by default works here: without it every command fails.
async fn tell_sandbox() {
    match tenure_sandbox::strongest(Launcher::default()).await {
        Ok(choice) if choice.refused.is_empty() => output::say(&format!("  sandbox    {}", choice.driver.name())),
        Ok(Choice { refused, .. }) | Err(refused) => {
            for (name, why) in refused {
                output::say(&format!("WARNING: the sandbox driver {name} does not work here: {}", inert::line(&why)));
            }
            output::hint("tenure doctor says what to do; an environment with another driver works all the same");
        }
    }
}

/// Keeps one worker alive until the stop.
async fn supervise(config: Config, common: Common, requests: Requests) {
    let stop = &requests.stop;
    let mut wait = FIRST_WAIT;
    while !stop.is_cancelled() {
        let started = Instant::now();
        match spawn(&config, &common) {
            Ok(mut child) => {
                // Waiting closes the input of a child, and its end asks the worker to stop: hold it.
                let input = child.stdin.take();
                let status = tokio::select! {
                    status = child.wait() => status,
                    () = stop.cancelled() => {
                        drop(input);
                        return end(child, config.worker.grace, &requests.at_once).await;
                    }
                };
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::warn!(%status, "the worker ended; starting another one, committed work goes on");
            }
            Err(error) => tracing::error!(%error, "cannot start a worker"),
        }
        wait = if started.elapsed() >= HEALTHY { FIRST_WAIT } else { wait };
        let jittered = wait.mul_f64(rand::rng().random_range(0.5..=1.0));
        wait = (wait * 2).min(LONGEST_WAIT);
        tokio::select! {
            () = tokio::time::sleep(jittered) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn spawn(config: &Config, common: &Common) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").arg("--with-parent").arg("--data").arg(&config.data);
    if let Some(file) = &common.config {
        command.arg("--config").arg(file);
    }
    // Its own group: Ctrl-C reaches this process alone, which then stops the worker in order.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn()
}

/// Waits for a worker whose standard input has ended, which asks it to stop.
async fn end(mut child: Child, grace: Duration, at_once: &CancellationToken) {
    let why = tokio::select! {
        _ = child.wait() => return,
        () = tokio::time::sleep(grace + LAST_WAIT) => "it did not stop within its grace time",
        () = at_once.cancelled() => "a second request to stop",
    };
    tracing::warn!(why, "the worker is killed; committed work is kept");
    // It may have ended between the two calls.
    let _ = child.kill().await;
}
