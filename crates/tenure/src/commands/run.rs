//! `tenure run`: starts a session with a prompt and follows its turn.
//!
//! The answer of the agent goes to stdout, everything else to stderr. Ctrl-C detaches; the session
//! goes on. Exit codes: 0 at the end of the turn, 6 when it failed or stopped at a limit, 7 when it
//! was cancelled, 8 when `--timeout` is over.

mod prepare;
mod turn;

use crate::cli::Common;
use crate::connection::{id_of, session, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress, time};
use crate::stop;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tenure_api::client::{Client, From};
use turn::{Printer, TurnEnd};

/// What to run.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The prompt; a file after @, standard input for -.
    prompt: String,
    /// Puts a folder into the workspace first, without what its .tenureignore names.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Agent, by name, id or unique tail; without it, one with the usual tools.
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["model", "system"])]
    agent: Option<String>,
    /// Environment, by name, id or unique tail; without it, a sandbox without network.
    #[arg(long = "env", value_name = "ENV")]
    environment: Option<String>,
    /// Model, as PROVIDER/MODEL; without it, [models] default of the server.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// System prompt.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Most money that it may spend, in US dollars.
    #[arg(long, value_name = "DOLLARS")]
    budget: Option<f64>,
    /// Title; without it, the beginning of the prompt.
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Makes a repeat of this command harmless: the same key is the same session.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Prints the id and returns at once.
    #[arg(long, short)]
    detach: bool,
    /// Gives up following after this time (exit code 8); the session goes on.
    #[arg(long, value_name = "SPAN", value_parser = time::duration)]
    timeout: Option<Duration>,
}

impl Run {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let prompt = prepare::prompt(&self.prompt)?;
        let client = common.target().connect()?;
        let id = self.start(&client, &prompt).await?;
        let short = tail(&id).to_owned();
        if self.detach {
            match common.format() {
                Format::Json => output::json(&session(&client, &id).await?)?,
                Format::Human => {
                    output::line(&id)?;
                    output::hint(&format!("it runs on its own: tenure logs {short} --follow      tenure why {short}"));
                }
            }
            return Ok(Exit::Ok);
        }
        match common.format() {
            // Programs need the id before the events come.
            Format::Json => output::json(&session(&client, &id).await?)?,
            Format::Human => output::say(&format!("{id}   (Ctrl-C detaches, the session goes on)")),
        }
        let stop = stop::on_signals().map_err(anyhow::Error::from)?;
        let limit = async {
            match self.timeout {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let mut printer = Printer::new(common.format(), &short);
        let ended = tokio::select! {
            ended = turn::follow(&client, &id, From::Start, &mut printer) => ended?,
            () = stop.cancelled() => {
                printer.end_line()?;
                output::say("Detached; the session goes on.");
                output::hint(&format!("tenure logs {short} --follow      tenure cancel {short}"));
                return Ok(Exit::Ok);
            }
            () = limit => {
                printer.end_line()?;
                return Err(Failure::new(Exit::TimedOut, format!("…{short} is not done after {}", time::span(jiff::SignedDuration::try_from(self.timeout.unwrap_or_default()).unwrap_or_default())))
                    .why("the session goes on")
                    .fix(format!("tenure why {short}      or   tenure logs {short} --follow"))
                    .code("run_timed_out"));
            }
        };
        conclude(&client, &id, ended).await
    }

    /// Creates what is needed, puts the files in, sends the prompt.
    async fn start(&self, client: &Client, prompt: &str) -> Result<String, Failure> {
        let agent =
            prepare::agent(client, self.agent.as_deref(), self.model.as_deref(), self.system.as_deref()).await?;
        let environment = prepare::environment(client, self.environment.as_deref()).await?;
        let title = self.title.clone().unwrap_or_else(|| output::inert::brief(prompt, 60));
        let mut body = json!({ "agent": agent, "environment_id": environment, "title": title });
        if let Some(usd) = self.budget {
            body["limits"] = json!({ "cost_usd": usd });
        }
        if self.key.is_some() {
            // The key finds the session whatever the prompt is, so that a wrong one can be said to be wrong.
            body["title"] = self.title.clone().into();
        }
        let work = create(client, &["v1", "sessions"], &body, self.key.as_deref());
        let created =
            progress::watch("creating the session", work).await.map_err(|failure| match (failure.exit, &self.key) {
                (Exit::Conflict, Some(key)) => {
                    Failure::new(Exit::Conflict, format!("key {key:?} was used with other settings"))
                        .why("agent, environment, title or budget differ from those of the first run")
                        .fix("choose another --key, or repeat the first command as it was")
                        .code("idempotency_key_reused")
                }
                _ => failure.doing("start a session"),
            })?;
        let id = id_of(&created).to_owned();
        // A repeat gets the first reply, which is old news: the session itself says how far it is.
        let is_fresh = self.key.is_none() || {
            let now = session(client, &id).await?;
            let number = |name: &str| now.get(name).and_then(Value::as_u64).unwrap_or(0);
            number("last_seq") == 0 && number("inbox_len") == 0
        };
        if let (Some(dir), true) = (&self.dir, is_fresh) {
            let sent = super::cp::upload_folder(client, &id, dir, "").await;
            let sent = sent.map_err(|failure| failure.doing(&format!("put {} into …{}", dir.display(), tail(&id))))?;
            let number = |name: &str| sent.get(name).and_then(Value::as_u64).unwrap_or(0);
            let (entries, size) = (number("entries"), time::size(number("size_bytes")));
            output::say(&format!("{} is in the workspace: {entries} entries, {size}", dir.display()));
        }
        let message =
            json!({ "events": [{ "type": "user.message", "content": [{ "type": "text", "text": prompt }] }] });
        let key = self.key.as_ref().map(|key| format!("{key}/prompt"));
        let sent = create(client, &["v1", "sessions", &id, "events"], &message, key.as_deref()).await;
        sent.map_err(|failure| match (failure.exit, &self.key) {
            (Exit::Conflict, Some(key)) => {
                Failure::new(Exit::Conflict, format!("key {key:?} was used with a different prompt"))
                    .why(format!("existing session: {id}"))
                    .fix(format!("choose another --key, or tenure logs {}", tail(&id)))
                    .code("idempotency_key_reused")
            }
            _ => failure.doing(&format!("send the prompt to …{}", tail(&id))),
        })?;
        if is_fresh && self.key.is_some() && self.title.is_none() {
            let path = ["v1", "sessions", &id];
            client.post(&path, &json!({ "title": title })).await?;
        }
        Ok(id)
    }
}

async fn create(client: &Client, path: &[&str], body: &Value, key: Option<&str>) -> Result<Value, Failure> {
    Ok(match key {
        Some(key) => client.post_once(path, body, key).await?,
        None => client.post(path, body).await?,
    })
}

/// Says how the turn ended, with an exit code for scripts.
async fn conclude(client: &Client, id: &str, ended: TurnEnd) -> Result<Exit, Failure> {
    let short = tail(id);
    match ended {
        TurnEnd::EndTurn | TurnEnd::Done => {
            if let Ok(session) = client.get(&["v1", "sessions", id], &[]).await {
                let age = time::parse(super::approvals::text(&session, "created_at"))
                    .map(|at| time::span(time::age(at)))
                    .unwrap_or_default();
                let limit = session
                    .pointer("/limits/cost_usd")
                    .and_then(Value::as_f64)
                    .map(|usd| format!(" of {}", time::money(usd)))
                    .unwrap_or_default();
                output::say(&format!("done in {age}, {}{limit}.", super::ps::cost(&session)));
                output::hint(&format!("tenure ls {short}      tenure send {short} \"…\""));
            }
            Ok(Exit::Ok)
        }
        TurnEnd::Refusal => Err(Failure::new(Exit::SessionFailed, format!("the model of …{short} refused"))
            .fix(format!("tenure send {short} \"…\""))),
        TurnEnd::BudgetReached => Err(Failure::new(Exit::SessionFailed, format!("…{short} reached a limit"))
            .why("it waits; everything is kept")
            .fix(format!("tenure why {short}      then tenure budget {short} --usd N"))
            .code("limit_reached")),
        TurnEnd::RetriesExhausted => Err(Failure::new(Exit::SessionFailed, format!("…{short} gave up for now"))
            .why("it waits; everything is kept")
            .fix(format!("tenure why {short}      then tenure resume {short}"))
            .code("retries_exhausted")),
        TurnEnd::Failed(reason) => Err(Failure::new(Exit::SessionFailed, format!("…{short} failed"))
            .why(reason)
            .fix(format!("tenure logs {short}"))),
        TurnEnd::Cancelled => {
            Err(Failure::new(Exit::SessionCancelled, format!("…{short} was cancelled"))
                .fix(format!("tenure logs {short}")))
        }
    }
}
