//! `tenure pause|resume|cancel`: changes sessions, each one by itself.

use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress};
use clap::Args;
use serde_json::json;

/// Which sessions.
#[derive(Args, Debug)]
pub(crate) struct Control {
    /// Sessions, by id or unique tail.
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
}

/// What to do with them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Hold at the next step.
    Pause,
    /// Go on now.
    Resume,
    /// End for good.
    Cancel,
}

impl Action {
    fn path(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Pause => "pause is recorded; a running step is finished first",
            Self::Resume => "is runnable",
            Self::Cancel => "cancel is recorded; it has ended when its processes are gone",
        }
    }
}

impl Control {
    pub(crate) async fn run(self, common: &Common, action: Action) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let mut first = None;
        for wanted in &self.sessions {
            let work = async {
                let id = session_id(&client, wanted).await?;
                let reply = client.post(&["v1", "sessions", &id, action.path()], &json!({})).await?;
                Ok::<_, Failure>((id, reply))
            };
            match progress::watch("asking the server", work).await {
                Ok((_, reply)) if common.format() == Format::Json => output::json(&reply)?,
                Ok((id, _)) => output::line(&format!("…{}: {}", tail(&id), action.done()))?,
                Err(failure) => {
                    let failure = failure.doing(&format!("{} {wanted}", action.path()));
                    match first {
                        // The other sessions are still tried; the last word is the first failure.
                        None => first = Some(failure),
                        Some(_) => output::fail(&failure, common.format()),
                    }
                }
            }
        }
        first.map_or(Ok(Exit::Ok), Err)
    }
}
