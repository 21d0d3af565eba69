//! What a run needs before it starts: prompt, agent, environment.

use crate::commands::send::text_or_stdin;
use crate::connection::{ask, id_of};
use crate::failure::{Exit, Failure};
use serde_json::{Value, json};
use tenure_api::client::Client;

/// Entries that are looked through for a name.
const MOST: usize = 1000;
/// Metadata key that tells agents of `run` apart from others.
const MADE_BY_RUN: &str = "tenure.run";
/// Name of the environment that `run` makes.
const ENVIRONMENT: &str = "default";

/// The prompt: itself, a file, or standard input.
pub(super) fn prompt(given: &str) -> Result<String, Failure> {
    let text = match given.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("cannot read the prompt from {path}")).why(error.to_string())
        })?,
        None => text_or_stdin(given)?,
    };
    if text.trim().is_empty() {
        return Err(Failure::new(Exit::Usage, "the prompt is empty").fix("tenure run \"what to do\""));
    }
    Ok(text)
}

/// The agent that is named, else one for this model and system prompt, made once and used again.
pub(super) async fn agent(
    client: &Client,
    named: Option<&str>,
    model: Option<&str>,
    system: Option<&str>,
) -> Result<String, Failure> {
    let agents = ask(client.list(&["v1", "agents"], &[], MOST)).await?.data;
    if let Some(named) = named {
        return find(&agents, named, "agent", "tenure agents list");
    }
    let model = model.unwrap_or("default");
    let print = fingerprint(&[model, system.unwrap_or("")]);
    let is_ours = |agent: &&Value| {
        agent.pointer("/metadata").and_then(|notes| notes.get(MADE_BY_RUN)).and_then(Value::as_str) == Some(&print)
    };
    if let Some(agent) = agents.iter().find(is_ours) {
        return Ok(id_of(agent).to_owned());
    }
    let mut body = json!({
        "name": "run", "model": model, "tools": [{ "type": "agent_toolset_20260401" }, { "type": "tenure_toolset" }],
        "metadata": { MADE_BY_RUN: print },
    });
    if let Some(system) = system {
        body["system"] = system.into();
    }
    let made = client
        .post(&["v1", "agents"], &body)
        .await
        .map_err(|error| Failure::from(error).doing("make an agent for this run"))?;
    Ok(id_of(&made).to_owned())
}

/// The environment that is named, else the default one, made once.
pub(super) async fn environment(client: &Client, named: Option<&str>) -> Result<String, Failure> {
    let environments = client.list(&["v1", "environments"], &[], MOST).await?.data;
    if let Some(named) = named {
        return find(&environments, named, "environment", "tenure environments list");
    }
    let is_default = |environment: &&Value| environment.get("name").and_then(Value::as_str) == Some(ENVIRONMENT);
    if let Some(environment) = environments.iter().find(is_default) {
        return Ok(id_of(environment).to_owned());
    }
    let body = json!({ "name": ENVIRONMENT, "config": { "type": "cloud" } });
    let made = client
        .post(&["v1", "environments"], &body)
        .await
        .map_err(|error| Failure::from(error).doing("make the default environment"))?;
    Ok(id_of(&made).to_owned())
}

/// One object by id, unique tail or name; names win over tails.
fn find(objects: &[Value], wanted: &str, what: &str, list: &str) -> Result<String, Failure> {
    let name = |object: &Value| object.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
    let mut found: Vec<&Value> =
        objects.iter().filter(|object| id_of(object) == wanted || name(object) == wanted).collect();
    if found.is_empty() {
        found = objects.iter().filter(|object| id_of(object).ends_with(wanted.trim_start_matches('…'))).collect();
    }
    match found[..] {
        [only] => Ok(id_of(only).to_owned()),
        [] => Err(Failure::new(Exit::NotFound, format!("there is no {what} {wanted:?}")).fix(list)),
        _ => {
            let failure = Failure::new(Exit::Usage, format!("{} {what}s match {wanted:?}", found.len()));
            let lines = found.iter().take(5).map(|object| format!("{}  {}", id_of(object), name(object)));
            Err(lines.fold(failure, Failure::why).fix("give more of the id"))
        }
    }
}

/// A short name for these texts, the same in every release (FNV-1a).
fn fingerprint(texts: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in texts {
        // The zero keeps ("ab", "c") and ("a", "bc") apart.
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}
