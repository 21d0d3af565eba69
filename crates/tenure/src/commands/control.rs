//! `tenure pause|resume|cancel`: changes sessions, each one by itself.

use super::approvals::text;
use crate::cli::Common;
use crate::connection::{ask, id_of, session_id, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, progress};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use tenure_api::client::Client;

/// Which sessions.
#[derive(Args, Debug)]
pub(crate) struct Control {
    /// Sessions, by id or unique tail.
    #[arg(required_unless_present = "query", value_name = "SESSION")]
    sessions: Vec<String>,
    /// All sessions that match now, such as 'phase:waiting agent:coder age:>7d'.
    #[arg(long, short, value_name = "QUERY", conflicts_with = "sessions")]
    query: Option<String>,
    /// Only says what would be done.
    #[arg(long, short = 'n', requires = "query")]
    dry_run: bool,
    /// Most sessions that a query may touch; more are refused.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "query")]
    most: usize,
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

    /// Whether a session in this phase can be changed so.
    fn may_take(self, phase: &str) -> bool {
        let has_ended = matches!(phase, "done" | "failed" | "cancelled");
        match self {
            Self::Pause => !has_ended && phase != "paused",
            Self::Resume => matches!(phase, "paused" | "waiting" | "backing_off" | "needs_you"),
            Self::Cancel => !has_ended,
        }
    }

    /// Why others are skipped.
    fn why_not(self) -> &'static str {
        match self {
            Self::Pause => "ended or paused already",
            Self::Resume => "neither paused nor waiting",
            Self::Cancel => "ended already",
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
        let sessions = match &self.query {
            None => self.sessions.clone(),
            Some(query) => {
                let plan = self.plan(&client, query, action).await?;
                plan.tell(action, self.dry_run, common.format())?;
                if self.dry_run {
                    return Ok(Exit::Ok);
                }
                plan.ids
            }
        };
        let mut first = None;
        for wanted in &sessions {
            let work = async {
                let id = session_id(&client, wanted).await?;
                let reply = client.post(&["v1", "sessions", &id, action.path()], &json!({})).await?;
                Ok::<_, Failure>((id, reply))
            };
            match progress::watch("asking the server", work).await {
                Ok((_, reply)) if common.format() == Format::Json => output::json(&reply)?,
                Ok((id, _)) => output::line(&format!("…{}: {}", tail(&id), action.done()))?,
                // It ended between the list and the request: what was wanted of it holds, or cannot any more.
                Err(failure) if self.query.is_some() && failure.exit == Exit::Conflict => {
                    output::say(&format!("…{}: has ended meanwhile", tail(wanted)));
                }
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

    /// The sessions that match now. Those that are made later are not touched.
    async fn plan(&self, client: &Client, query: &str, action: Action) -> Result<Plan, Failure> {
        let asked = [("q", query), ("include_archived", "true")];
        let listed = ask(client.list(&["v1", "sessions"], &asked, self.most)).await?;
        if listed.more {
            return Err(Failure::new(Exit::Usage, format!("more than {} sessions match", self.most))
                .fix("--most N      or a narrower query")
                .code("too_many_sessions"));
        }
        let mut plan = Plan::default();
        for session in &listed.data {
            let phase = text(session, "phase");
            if action.may_take(phase) {
                *plan.phases.entry(phase.replace('_', " ")).or_default() += 1;
                plan.ids.push(id_of(session).to_owned());
            } else {
                plan.skipped += 1;
            }
        }
        Ok(plan)
    }
}

/// What a query would touch.
#[derive(Debug, Default)]
struct Plan {
    ids: Vec<String>,
    /// How many in which phase.
    phases: BTreeMap<String, usize>,
    /// Those that match and that the action does nothing to.
    skipped: usize,
}

impl Plan {
    fn tell(&self, action: Action, is_dry: bool, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            if is_dry {
                let phases = &self.phases;
                output::json(
                    &json!({ "would": action.path(), "sessions": self.ids, "phases": phases, "skipped": self.skipped }),
                )?;
            }
            return Ok(());
        }
        let phases: Vec<String> = self.phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        let phases = if phases.is_empty() { String::new() } else { format!(" ({})", phases.join(", ")) };
        let count = match self.ids.len() {
            1 => "1 session".to_owned(),
            count => format!("{count} sessions"),
        };
        let skipped = match self.skipped {
            0 => String::new(),
            1 => format!("; 1 matching session {} and is skipped", action.why_not()),
            many => format!("; {many} matching sessions {} and are skipped", action.why_not()),
        };
        match is_dry {
            true => output::line(&format!("Would {} {count}{phases}{skipped}. Nothing changed.", action.path()))?,
            false => output::say(&format!("{count} to {}{phases}{skipped}.", action.path())),
        }
        Ok(())
    }
}
