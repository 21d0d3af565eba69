//! What the people around the agents do: give work, approve, answer for CI, and kill.

use super::house::House;
use super::proof::{Proof, Run};
use super::{CI_JOB, PATIENCE, text};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::process::Stdio;
use tenure_api::client::{Client, From, Next};
use tokio::process::Command;

/// The small project with a failing test.
const PROJECT: [(&str, &str); 2] = [
    ("add.sh", "add() {\n  echo $(($1 - $2))\n}\n"),
    (
        "test.sh",
        ". ./add.sh\nresult=$(add 2 3)\nif [ \"$result\" != 5 ]; then\n  echo \"FAIL: add 2 3 gives $result, not 5\"\n  exit 1\nfi\necho \"ok: add 2 3 gives 5\"\n",
    ),
];

/// Pieces of the paced answer that are seen before its worker is killed; all other answers have fewer.
const WORDS_BEFORE_KILL: usize = 5;

/// Lets the coder work; with a house, its worker is killed twice on the way.
pub(crate) async fn coder(
    client: &Client,
    driver: Option<&str>,
    mut house: Option<&mut House>,
    proof: &mut Proof,
) -> Result<Run> {
    let tools = json!([
        { "type": "agent_toolset_20260401", "configs": [
            { "name": "bash", "effect": "idempotent" },
            { "name": "write", "permission_policy": { "type": "always_ask" } },
        ]},
        { "type": "tenure_toolset" },
    ]);
    let session = start(client, "script/demo-coder", driver, tools, "Fix the failing test").await?;
    for (path, content) in PROJECT {
        client
            .put(
                &["v1", "sessions", &session, "files", "content"],
                &[("path", path)],
                "application/octet-stream",
                content.into(),
            )
            .await?;
    }
    let mut run = Run::new(session);
    let mut stream = client.events(&run.session, From::Start, true).await?;
    say(client, &run.session, "Make the test pass, wait for CI, then write the release note.").await?;
    let (mut was_killed_in_tool, mut was_killed_in_answer, mut words) = (house.is_none(), house.is_none(), 0);
    loop {
        let next =
            tokio::time::timeout(PATIENCE, stream.next()).await.context("the session made no progress in time")??;
        let Next::Frame(frame) = next else { continue };
        let event: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        if frame.event == "event_delta" {
            words += 1;
            if let (Some(house), false, true) = (house.as_deref_mut(), was_killed_in_answer, words > WORDS_BEFORE_KILL)
            {
                was_killed_in_answer = true;
                run.remember();
                house.kill_worker("in the middle of a model answer", proof).await?;
            }
            continue;
        }
        run.take(&event);
        let kind = text(&event, "type");
        proof.event(kind, &event);
        match kind {
            "agent.tool_use"
                if event["input"]["command"].as_str().is_some_and(|command| command.contains(".test-run-started")) =>
            {
                words = 0;
                if let (Some(house), false) = (house.as_deref_mut(), was_killed_in_tool) {
                    was_killed_in_tool = true;
                    until_file(client, &run.session, ".test-run-started").await?;
                    run.remember();
                    house.kill_worker("in the middle of a tool call", proof).await?;
                }
            }
            "agent.tool_result" => {
                if let Some(url) = callback_url(&event) {
                    post_from_child(&url).await?;
                }
                words = 0;
            }
            "session.status_idle" => match text(&event["stop_reason"], "type") {
                "requires_action" => approve(client, &run.session, &event).await?,
                "end_turn" => return Ok(run),
                other => bail!("the coder stopped with {other:?}"),
            },
            "session.status_terminated" => bail!("the coder was terminated"),
            _ => {}
        }
    }
}

/// Lets the payer work, and kills its worker while the payment is on its way.
pub(crate) async fn payer(client: &Client, driver: Option<&str>, house: &mut House, proof: &mut Proof) -> Result<Run> {
    let tools = json!([{ "type": "agent_toolset_20260401" }]);
    let session = start(client, "script/demo-payer", driver, tools, "Pay the invoice").await?;
    let mut run = Run::new(session);
    let mut stream = client.events(&run.session, From::Start, false).await?;
    say(client, &run.session, "Pay the invoice, once.").await?;
    let mut was_killed = false;
    loop {
        let next =
            tokio::time::timeout(PATIENCE, stream.next()).await.context("the session made no progress in time")??;
        let Next::Frame(frame) = next else { continue };
        let event: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        run.take(&event);
        let kind = text(&event, "type");
        proof.event(kind, &event);
        if kind == "agent.tool_use" && !was_killed {
            was_killed = true;
            until_file(client, &run.session, ".payment-sent").await?;
            run.remember();
            house.kill_worker("after the payment went out, before its result was recorded", proof).await?;
        }
        if kind == "session.status_idle" {
            return Ok(run);
        }
    }
}

async fn start(client: &Client, model: &str, driver: Option<&str>, tools: Value, title: &str) -> Result<String> {
    let mut environment = json!({ "name": "demo", "config": { "type": "cloud" } });
    if let Some(driver) = driver {
        environment["config"]["driver"] = driver.into();
    }
    let environment = client.post(&["v1", "environments"], &environment).await.context("create the environment")?;
    let agent = json!({ "name": title, "model": model, "tools": tools });
    let agent = client.post(&["v1", "agents"], &agent).await.context("create the agent")?;
    let session = json!({ "agent": text(&agent, "id"), "environment_id": text(&environment, "id"), "title": title });
    let session = client.post(&["v1", "sessions"], &session).await.context("create the session")?;
    Ok(text(&session, "id").to_owned())
}

async fn say(client: &Client, session: &str, words: &str) -> Result<()> {
    let event = json!({ "type": "user.message", "content": [{ "type": "text", "text": words }] });
    client.post(&["v1", "sessions", session, "events"], &json!({ "events": [event] })).await?;
    Ok(())
}

async fn approve(client: &Client, session: &str, idle: &Value) -> Result<()> {
    let ids = idle["stop_reason"]["event_ids"].as_array().cloned().unwrap_or_default();
    let events: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "type": "user.tool_confirmation", "tool_use_id": id, "result": "allow" }))
        .collect();
    client.post(&["v1", "sessions", session, "events"], &json!({ "events": events })).await?;
    Ok(())
}

/// The link of a callback in a result.
fn callback_url(event: &Value) -> Option<String> {
    let text = event["content"].as_array()?.iter().find_map(|block| block["text"].as_str())?;
    let value: Value = serde_json::from_str(text).ok()?;
    value["url"].as_str().map(str::to_owned)
}

/// The outside job is a process of its own.
async fn post_from_child(url: &str) -> Result<()> {
    let program = std::env::current_exe()?;
    let status =
        Command::new(program).arg(CI_JOB).arg(url).stdin(Stdio::null()).status().await.context("start the CI job")?;
    if !status.success() {
        bail!("the CI job could not post its result");
    }
    Ok(())
}

/// Reads a file of a session.
pub(crate) async fn file(client: &Client, session: &str, path: &str) -> Result<String> {
    let mut download = client.download(&["v1", "sessions", session, "files", "content"], &[("path", path)]).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits until a command has made a file.
async fn until_file(client: &Client, session: &str, path: &str) -> Result<()> {
    let appears = async {
        while file(client, session, path).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, appears).await.with_context(|| format!("the command never made {path}"))
}
