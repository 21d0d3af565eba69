//! `tenure worker`: advances sessions of the store in the data folder.

use super::serve::prepare_data;
use crate::cli::Common;
use crate::config::{self, Flags};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};
use crate::{compose, logging, stop};
use clap::Args;
use serde_json::json;

/// Flags of a worker.
#[derive(Args, Debug)]
pub(crate) struct Worker {
    /// Sessions advanced at the same time [env: TENURE_WORKER_SLOTS].
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Stops when standard input ends: the parent is gone.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Worker {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let format = common.format();
        logging::start(format);
        if common.server.is_some() {
            return Err(Failure::new(
                Exit::Usage,
                "a worker of this version works on the store of its data folder, not over the network",
            )
            .fix("tenure worker --data DIR")
            .code("usage"));
        }
        let config = config::load(&Flags { slots: self.slots, ..common.flags() })?;
        prepare_data(&config.data)?;
        let stop = stop::on_signals().map_err(anyhow::Error::from)?;
        if self.with_parent {
            tokio::spawn(stop::with_parent(stop.clone()));
        }
        match format {
            Format::Json => output::json(&json!({
                "event": "ready", "data": config.data, "pid": std::process::id(), "slots": config.worker.slots, "version": env!("CARGO_PKG_VERSION"),
            }))?,
            Format::Human if !self.with_parent => {
                output::say(&format!(
                    "tenure {}   worker, {} slots, data {}",
                    env!("CARGO_PKG_VERSION"),
                    config.worker.slots,
                    config::shown(&config.data)
                ));
            }
            Format::Human => {}
        }
        compose::run_worker(&config, stop).await?;
        Ok(Exit::Ok)
    }
}
