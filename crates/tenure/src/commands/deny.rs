//! `tenure deny SESSION`: refuses calls that wait for an answer.

use super::approve::{Calls, Consent};
use crate::cli::Common;
use crate::failure::{Exit, Failure};
use clap::Args;
use serde_json::json;

/// Which calls, and why.
#[derive(Args, Debug)]
pub(crate) struct Deny {
    #[command(flatten)]
    calls: Calls,
    /// Tells the model why.
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,
}

impl Deny {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let answer = match self.because {
            Some(because) => json!({ "result": "deny", "deny_message": because }),
            None => json!({ "result": "deny" }),
        };
        self.calls.answer(common, Consent::Given, answer).await
    }
}
