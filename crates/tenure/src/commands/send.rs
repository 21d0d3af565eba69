//! `tenure send SESSION TEXT`: a message, an interrupt, or the result of a custom tool.

use super::approvals::{self, text};
use crate::cli::Common;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress};
use clap::Args;
use serde_json::{Value, json};
use std::io::Read;
use tenure_api::client::Client;

/// What to send.
#[derive(Args, Debug)]
pub(crate) struct Send {
    /// The session, by id or unique tail.
    session: String,
    /// The text; - reads standard input.
    #[arg(required_unless_present = "interrupt")]
    text: Option<String>,
    /// Sends the text as the result of this custom tool call or question, by id or unique tail.
    #[arg(long, value_name = "CALL", conflicts_with = "interrupt")]
    result_for: Option<String>,
    /// Says that the tool failed.
    #[arg(long, requires = "result_for")]
    is_error: bool,
    /// Interrupts what the session does now; a text follows as a message.
    #[arg(long)]
    interrupt: bool,
    /// Makes a repeat of this command harmless.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl Send {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let words = self.text.as_deref().map(text_or_stdin).transpose()?;
        let id = session_id(&client, &self.session).await?;
        let content = |text: String| json!([{ "type": "text", "text": text }]);
        let mut events: Vec<Value> = Vec::new();
        if self.interrupt {
            events.push(json!({ "type": "user.interrupt" }));
        }
        let call = match &self.result_for {
            Some(call) => Some(open_call(&client, &id, call).await?),
            None => None,
        };
        match (words, call) {
            (Some(text), Some(call)) => events.push(json!({
                "type": "user.custom_tool_result", "custom_tool_use_id": call, "content": content(text), "is_error": self.is_error,
            })),
            (Some(text), None) => events.push(json!({ "type": "user.message", "content": content(text) })),
            (None, _) => {}
        }
        let body = json!({ "events": events });
        let path = ["v1", "sessions", &id, "events"];
        let work = async {
            match &self.key {
                Some(key) => client.post_once(&path, &body, key).await,
                None => client.post(&path, &body).await,
            }
        };
        let reply = progress::watch("sending", work)
            .await
            .map_err(|error| Failure::from(error).doing(&format!("send to …{}", tail(&id))))?;
        match common.format() {
            Format::Json => output::json(&reply)?,
            Format::Human => {
                output::line(&format!("…{}: recorded", tail(&id)))?;
                output::hint(&format!("tenure logs {} --follow", tail(&id)));
            }
        }
        Ok(Exit::Ok)
    }
}

/// The whole id of a call that waits for a result.
async fn open_call(client: &Client, session: &str, wanted: &str) -> Result<String, Failure> {
    let wanted = wanted.trim_start_matches('…');
    if wanted.starts_with("sevt_") {
        // The server knows best whether it is open, was answered, or never was.
        return Ok(wanted.to_owned());
    }
    let open = approvals::list(client).await?;
    let is_meant = |call: &&Value| text(call, "session_id") == session && text(call, "tool_use_id").ends_with(wanted);
    let ids: Vec<&str> = open.iter().filter(is_meant).map(|call| text(call, "tool_use_id")).collect();
    match ids[..] {
        [only] => Ok(only.to_owned()),
        [] => {
            Err(Failure::new(Exit::NotFound, format!("no call of …{} that ends with {wanted:?} waits", tail(session)))
                .fix(format!("tenure why {}", tail(session)))
                .code("call_not_found"))
        }
        _ => {
            let failure = Failure::new(Exit::Usage, format!("{} calls end with {wanted:?}", ids.len()));
            Err(ids.iter().fold(failure, |failure, id| failure.why(*id)).fix("give more characters of the id"))
        }
    }
}

/// The text itself, or standard input for `-`.
pub(crate) fn text_or_stdin(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    /// Longest text that a request takes.
    const MAX_BYTES: u64 = 32 * 1024 * 1024;
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failed, "cannot read standard input").why(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| Failure::new(Exit::Usage, "standard input is not UTF-8 text"))
}
