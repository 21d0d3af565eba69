//! Which server a command talks to, and with which key.

use crate::config::{Config, Flags};
use crate::failure::{Exit, Failure};
use crate::output::progress;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tenure_api::client::{self, Client};

/// What the command line says about the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    /// `--server`.
    pub(crate) server: Option<String>,
    /// Flags of the configuration, for the data folder of this machine.
    pub(crate) flags: Flags,
}

impl Target {
    /// Finds address and key. The key of the data folder is sent to this machine only.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let named = self.server.clone().or_else(|| variable("TENURE_SERVER"));
        let key = variable("TENURE_API_KEY");
        let config = match crate::config::load(&self.flags) {
            Ok(config) => Some(config),
            // A server and a key are enough; a broken local file must not stand in the way.
            Err(_) if named.is_some() && key.is_some() => None,
            Err(failure) => return Err(failure),
        };
        let base = match (&named, &config) {
            (Some(named), _) => named.clone(),
            (None, Some(config)) => local_address(config),
            (None, None) => return Err(Failure::new(Exit::Usage, "no server is named").fix("--server URL")),
        };
        let is_here = client::is_loopback_address(&base);
        let local_key = || config.as_ref().filter(|_| is_here).and_then(|config| read_key(&config.api_key_file()));
        Ok(Client::new(&base, key.or_else(local_key))?)
    }
}

/// The address that the server of the data folder wrote down, else the one that is configured.
pub(crate) fn local_address(config: &Config) -> String {
    let written = std::fs::read_to_string(config.server_file()).ok();
    let written = written.map(|text| text.trim().to_owned()).filter(|text| client::is_loopback_address(text));
    written.unwrap_or_else(|| config.local_url(config.listen))
}

/// The first line of a key file.
pub(crate) fn read_key(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// How long a server may take for a question of a person.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Waits for an answer, and says so after a second. A server that does not answer in time counts as
/// unreachable; only for requests that change nothing, as it may still work on it.
pub(crate) async fn ask<T>(request: impl Future<Output = Result<T, client::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(ANSWER_WITHIN, progress::watch("asking the server", request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let seconds = ANSWER_WITHIN.as_secs();
            Err(Failure::new(Exit::Unreachable, format!("the server did not answer within {seconds} s"))
                .why("it accepts connections, so it may be overloaded, stopped in a debugger, or another program")
                .fix("tenure doctor")
                .code("server_unreachable"))
        }
    }
}

/// The whole id of the session that ends so.
pub(crate) async fn session_id(client: &Client, tail: &str) -> Result<String, Failure> {
    let found = session(client, tail).await?;
    Ok(found.get("id").and_then(Value::as_str).unwrap_or(tail).to_owned())
}

/// The session whose id ends so.
pub(crate) async fn session(client: &Client, tail: &str) -> Result<Value, Failure> {
    let tail = tail.trim().trim_start_matches('…');
    if tail.is_empty() {
        return Err(Failure::new(Exit::Usage, "the id of the session is empty").fix("tenure ps"));
    }
    if tail.starts_with("sesn_") {
        return ask(client.get(&["v1", "sessions", tail], &[])).await.map_err(missing);
    }
    let listed = ask(client.list(&["v1", "sessions"], &[("tail", tail)], 20)).await?;
    let mut matching: Vec<Value> = listed.data.into_iter().filter(|session| id_of(session).ends_with(tail)).collect();
    match matching.len() {
        1 => Ok(matching.remove(0)),
        0 => Err(Failure::new(Exit::NotFound, format!("no session whose id ends with {tail:?}"))
            .fix("tenure ps")
            .code("session_not_found")),
        many => {
            let ids = matching.iter().take(5).map(|session| {
                format!("{}  {}", id_of(session), session.get("title").and_then(Value::as_str).unwrap_or(""))
            });
            let failure = Failure::new(Exit::Usage, format!("{many} sessions have an id that ends with {tail:?}"));
            Err(ids.fold(failure, Failure::why).fix("give more characters of the id").code("session_ambiguous"))
        }
    }
}

fn missing(failure: Failure) -> Failure {
    if failure.exit == Exit::NotFound { failure.fix("tenure ps") } else { failure }
}

/// The id of an object of the API.
pub(crate) fn id_of(object: &Value) -> &str {
    object.get("id").and_then(Value::as_str).unwrap_or("")
}

/// The end of an id, enough for people to tell sessions apart.
pub(crate) fn tail(id: &str) -> &str {
    /// Characters of the tail that are shown.
    const SHOWN: usize = 6;
    let start = id.char_indices().rev().nth(SHOWN - 1).map_or(0, |(at, _)| at);
    &id[start..]
}
