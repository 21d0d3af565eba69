//! `tenure conditions [probe|clear]`: what upstreams refuse, who waits on it, and what ends it.

use super::approvals::text;
use crate::cli::Common;
use crate::connection::{ask, tail};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, table::Table, time};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tenure_api::client::Client;

/// Most entries that are listed.
const MOST: usize = 1000;
/// Characters of what a provider said in a list.
const MESSAGE_CHARS: usize = 60;

/// What to do with conditions; lists them if nothing is said.
#[derive(Args, Debug)]
pub(crate) struct Conditions {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List them.
    List,
    /// Have one waiting session try at once.
    Probe {
        /// The condition, by id or unique tail, or the name of its provider or model.
        condition: String,
    },
    /// Let go of all who wait, because it is mended.
    Clear {
        /// The condition, by id or unique tail, or the name of its provider or model.
        condition: String,
    },
}

impl Conditions {
    pub(crate) async fn run(self, common: &Common) -> Result<Exit, Failure> {
        let client = common.target().connect()?;
        let known = ask(client.list(&["v1", "conditions"], &[], MOST)).await?.data;
        match self.action {
            None | Some(Action::List) => list(&known, common.format()),
            Some(Action::Probe { condition }) => {
                change(&client, &known, &condition, "probe", "one session tries now", common.format()).await
            }
            Some(Action::Clear { condition }) => {
                change(&client, &known, &condition, "clear", "those who wait leave, slowly at first", common.format())
                    .await
            }
        }
    }
}

fn list(known: &[Value], format: Format) -> Result<Exit, Failure> {
    if format == Format::Json {
        for condition in known {
            output::json(condition)?;
        }
        return Ok(Exit::Ok);
    }
    if known.is_empty() {
        output::say("No upstream refuses anything.");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["CONDITION", "OF", "WHAT", "STAGE", "WAITING", "NEXT TRY", "SAID"]);
    for condition in known {
        table.row([
            format!("…{}", tail(text(condition, "id"))),
            subject(condition).to_owned(),
            text(condition, "class").to_owned(),
            text(condition, "stage").to_owned(),
            condition["waiting"].to_string(),
            next_try(condition),
            inert::brief(text(condition, "message"), MESSAGE_CHARS),
        ]);
    }
    for line in table.lines() {
        output::line(&line)?;
    }
    if known.iter().any(|condition| condition["needs_operator"] == true) {
        output::hint("mend the key, the credit or the model, then: tenure conditions probe CONDITION");
    }
    Ok(Exit::Ok)
}

/// What a condition is about.
fn subject(condition: &Value) -> &str {
    condition["model"].as_str().unwrap_or_else(|| text(condition, "provider"))
}

fn next_try(condition: &Value) -> String {
    if let Some(rate) = condition["released_per_second"].as_f64() {
        return format!("{rate:.1}/s leave");
    }
    if let Some(session) = condition["probing_session_id"].as_str() {
        return format!("…{} tries", tail(session));
    }
    match time::parse(text(condition, "probe_at")).map(time::age) {
        Some(age) if age.is_negative() => format!("in {}", time::span(age.abs())),
        Some(_) => "due".to_owned(),
        None => String::new(),
    }
}

async fn change(
    client: &Client,
    known: &[Value],
    wanted: &str,
    path: &str,
    done: &str,
    format: Format,
) -> Result<Exit, Failure> {
    let id = find(known, wanted)?;
    let reply = ask(client.post(&["v1", "conditions", id, path], &json!({}))).await?;
    match format {
        Format::Json => output::json(&reply)?,
        Format::Human => output::line(&format!("{}: {done}; {} wait", subject(&reply), reply["waiting"]))?,
    }
    Ok(Exit::Ok)
}

/// The one that is meant.
fn find<'a>(known: &'a [Value], wanted: &str) -> Result<&'a str, Failure> {
    let is_meant = |condition: &&Value| {
        let id = text(condition, "id");
        id == wanted || subject(condition) == wanted || id.trim_start_matches("cond_").ends_with(wanted)
    };
    let meant: Vec<&Value> = known.iter().filter(is_meant).collect();
    match meant[..] {
        [one] => Ok(text(one, "id")),
        [] => Err(Failure::new(Exit::NotFound, format!("there is no condition {wanted:?}"))
            .why("it may be over already; what is over stands in nobody's way")
            .fix("tenure conditions")
            .code("condition_not_found")),
        _ => Err(Failure::new(Exit::Usage, format!("{wanted:?} means more than one condition"))
            .fix("give more of the id; tenure conditions lists them")
            .code("condition_ambiguous")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_found_by_its_id_a_tail_or_what_it_is_about() {
        let known = [
            json!({"id": "cond_0001ab", "provider": "p", "model": null}),
            json!({"id": "cond_0002ab", "provider": "p", "model": "p/m"}),
        ];
        for (wanted, id) in
            [("cond_0001ab", "cond_0001ab"), ("p/m", "cond_0002ab"), ("1ab", "cond_0001ab"), ("p", "cond_0001ab")]
        {
            assert_eq!(find(&known, wanted).unwrap(), id, "{wanted}");
        }
        assert!(find(&known, "q").unwrap_err().to_string().contains("there is no condition \"q\""));
        assert!(find(&known, "ab").unwrap_err().to_string().contains("more than one"));
    }
}
