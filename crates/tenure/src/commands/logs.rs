//! `tenure logs SESSION`: events, from the store, and live with `--follow`.

use crate::cli::Common;
use crate::commands::approvals::text;
use crate::connection::{session_id, tail};
use crate::failure::{Exit, Failure};
use crate::follow::{self, log_line};
use crate::output::{self, Format, inert, progress, time};
use crate::stop;
use clap::Args;
use serde_json::Value;
use tenure_api::client::{Client, From, Next};

/// Which events.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// The session, by id or unique tail.
    session: String,
    /// Goes on with new events; Ctrl-C ends it, the session goes on.
    #[arg(long, short)]
    follow: bool,
    /// Events since then: 10m (back from now), 02:13 (today), or RFC 3339.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only types that contain this word, such as tool or session.error; may be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Whole texts instead of one line per event.
    #[arg(long)]
    full: bool,
}

impl Logs {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let since = self.since.as_deref().map(time::since).transpose()?.map(|since| since.to_string());
        let client = common.target().connect()?;
        let id = session_id(&client, &self.session).await?;
        let last = self.print_stored(&client, &id, since.as_deref(), common.format()).await?;
        if !self.follow {
            return Ok(Exit::Ok);
        }
        let stop = stop::on_signals().map_err(anyhow::Error::from)?;
        let mut stream = follow::open(&client, &id, From::After(last), false).await?;
        loop {
            let next = tokio::select! {
                next = stream.next() => next?,
                () = stop.cancelled() => {
                    output::say(&format!("…{} goes on.", tail(&id)));
                    return Ok(Exit::Ok);
                }
            };
            match next {
                Next::Frame(frame) => {
                    let Ok(event) = serde_json::from_str::<Value>(&frame.data) else { continue };
                    self.print(&event, common.format())?;
                    if text(&event, "type") == "session.status_terminated" {
                        return Ok(Exit::Ok);
                    }
                }
                Next::Reconnecting { failures: 3, .. } => {
                    output::say("the server is away; waiting for it, nothing is missed")
                }
                Next::Reconnecting { .. } | Next::Reconnected => {}
            }
        }
    }

    /// Prints what is stored, page by page; returns the last `seq`.
    async fn print_stored(
        &self,
        client: &Client,
        id: &str,
        since: Option<&str>,
        format: Format,
    ) -> Result<u64, Failure> {
        let mut last = 0;
        let mut page: Option<String> = None;
        loop {
            let mut query = vec![("limit", "100")];
            query.extend(since.map(|since| ("created_at[gte]", since)));
            query.extend(page.as_deref().map(|page| ("page", page)));
            let path = ["v1", "sessions", id, "events"];
            let reply = progress::watch("reading events", client.get(&path, &query)).await?;
            for event in reply.get("data").and_then(Value::as_array).into_iter().flatten() {
                last = event.get("seq").and_then(Value::as_u64).unwrap_or(last).max(last);
                // A queued input comes again, processed, from the stream.
                if !(self.follow && event.get("seq").is_none_or(Value::is_null)) {
                    self.print(event, format)?;
                }
            }
            page = reply.get("next_page").and_then(Value::as_str).map(str::to_owned);
            if page.is_none() {
                break;
            }
        }
        if last == 0 && since.is_some() && self.follow {
            // Nothing since then: the stream starts behind what is stored already.
            let session = client.get(&["v1", "sessions", id], &[]).await?;
            last = session.get("last_seq").and_then(Value::as_u64).unwrap_or(0);
        }
        Ok(last)
    }

    fn print(&self, event: &Value, format: Format) -> Result<(), Failure> {
        let kind = text(event, "type");
        if !self.types.is_empty() && !self.types.iter().any(|wanted| kind.contains(wanted.as_str())) {
            return Ok(());
        }
        if format == Format::Json {
            return output::json(event);
        }
        output::line(&log_line(event))?;
        let whole = follow::whole(event);
        if self.full && !whole.is_empty() {
            for line in inert::text(&whole).lines() {
                output::line(&format!("    {line}"))?;
            }
        }
        Ok(())
    }
}
