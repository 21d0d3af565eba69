//! `tenure cat SESSION:PATH`: a file; inert on a terminal, byte for byte into a pipe.

use super::ls::{query, split};
use crate::cli::Common;
use crate::connection::session_id;
use crate::failure::{Exit, Failure};
use crate::output::{self, inert};
use clap::Args;

/// Which file.
#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// SESSION:PATH.
    place: String,
    /// Which state: live, the id of a snapshot, or seq:NUMBER for what that event saw.
    #[arg(long, value_name = "STATE")]
    at: Option<String>,
}

impl Cat {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let (session, path) = split(&self.place);
        if path.is_empty() {
            return Err(
                Failure::new(Exit::Usage, format!("{:?} names no file", self.place)).fix("tenure cat SESSION:PATH")
            );
        }
        let client = common.target().connect()?;
        let id = session_id(&client, session).await?;
        let url = ["v1", "sessions", &id, "files", "content"];
        let mut download = client
            .download(&url, &query(path, self.at.as_deref()))
            .await
            .map_err(|error| Failure::from(error).doing(&format!("read {}", self.place)))?;
        if !output::is_terminal() {
            while let Some(chunk) = download.chunk().await? {
                output::raw(&chunk)?;
            }
            return Ok(Exit::Ok);
        }
        // A character may be split between two pieces: its first bytes wait for the rest.
        let mut rest: Vec<u8> = Vec::new();
        while let Some(chunk) = download.chunk().await? {
            rest.extend_from_slice(&chunk);
            let whole = match std::str::from_utf8(&rest) {
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                Ok(_) | Err(_) => rest.len(),
            };
            let piece: Vec<u8> = rest.drain(..whole).collect();
            output::raw(inert::text(&String::from_utf8_lossy(&piece)).as_bytes())?;
        }
        output::raw(inert::text(&String::from_utf8_lossy(&rest)).as_bytes())?;
        Ok(Exit::Ok)
    }
}
