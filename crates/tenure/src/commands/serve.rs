//! `tenure serve`: the server alone.

use crate::cli::Common;
use crate::config::{self, Config, Flags};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};
use crate::{compose, data_lock, logging, port_holder, stop};
use clap::Args;
use serde_json::json;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use tokio::net::TcpListener;

/// Flags of the server.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Address and port; port 0 picks one [env: TENURE_LISTEN].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Stops when standard input ends: the parent is gone.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Serve {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let format = common.format();
        logging::start(format);
        let config = config::load(&Flags { listen: self.listen, ..common.flags() })?;
        prepare_data(&config.data)?;
        let _held = data_lock::hold(&config, "serve")?;
        let (listener, url) = listen(&config, "serve").await?;
        let stop = stop::on_signals().map_err(anyhow::Error::from)?;
        if self.with_parent {
            tokio::spawn(stop::with_parent(stop.clone()));
        }
        let ready = |link: &str| match format {
            Format::Json => output::json(&ready(&config, &url, link)),
            Format::Human => {
                output::say(&format!("tenure {}   server", env!("CARGO_PKG_VERSION")));
                greet_workbench("  workbench", link);
                output::say(&format!("  api        {url}/v1"));
                output::say(&format!("  data       {}", config::shown(&config.data)));
                output::hint(&format!("tenure worker --data {} advances sessions", config::shown(&config.data)));
                Ok(())
            }
        };
        compose::run_server(&config, listener, stop, ready).await?;
        Ok(Exit::Ok)
    }
}

/// The line of a start, for programs.
pub(crate) fn ready(config: &Config, url: &str, link: &str) -> serde_json::Value {
    json!({ "event": "ready", "url": url, "workbench": link, "data": config.data, "pid": std::process::id(), "version": env!("CARGO_PKG_VERSION") })
}

/// The line about the workbench.
pub(crate) fn greet_workbench(label: &str, link: &str) {
    match tenure_server::has_workbench() {
        true => output::say(&format!("{label}  {link}   (opens once; another one: tenure workbench)")),
        false => output::say(&format!("{label}  not part of this build; cargo xtask web, then build again")),
    }
}

/// Opens the port, and says who has it when it is taken.
pub(crate) async fn listen(config: &Config, command: &str) -> Result<(TcpListener, String), Failure> {
    let listener = TcpListener::bind(config.listen).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let port = config.listen.port();
            let holder = port_holder::of(port).map(|holder| format!(" ({holder})")).unwrap_or_default();
            Failure::new(Exit::Conflict, format!("port {port} is in use by another program{holder}"))
                .fix(format!(
                    "tenure {command} --listen {}:{}",
                    config.listen.ip(),
                    if port < u16::MAX { port + 1 } else { 0 }
                ))
                .code("port_in_use")
        }
        _ => Failure::new(Exit::Failed, format!("cannot listen on {}", config.listen))
            .why(error.to_string())
            .code("listen_failed"),
    })?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    Ok((listener, config.local_url(address)))
}

/// Makes the data folder, for this user only.
pub(crate) fn prepare_data(folder: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Failed, format!("cannot use the data folder {}", folder.display()))
            .why(error.to_string())
            .fix("--data DIR      or   TENURE_DATA=DIR")
            .code("data_folder_unusable")
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let mode = std::fs::metadata(folder).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        // Keys and workspaces lie in it; a folder that was made by hand is closed too.
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}
