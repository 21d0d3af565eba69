//! `tenure demo`: the proof.

use crate::cli::Common;
use crate::demo;
use crate::failure::{Exit, Failure};
use clap::Args;

/// Flags of the demo.
#[derive(Args, Debug)]
pub(crate) struct Demo {}

impl Demo {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        // Only a server that is named on the command line: a demo must not surprise a configured one.
        let server = match &common.server {
            Some(_) => {
                let client = common.target().connect()?;
                Some((client.base().to_owned(), client.key().map(str::to_owned)))
            }
            None => None,
        };
        let holds = demo::run(&demo::Options { server, data: common.data.clone(), json: common.json }).await?;
        Ok(if holds { Exit::Ok } else { Exit::Failed })
    }
}
