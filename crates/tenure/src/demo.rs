//! `tenure demo`: the proof that an agent run survives kill -9, on real processes and a real sandbox.
//!
//! Two scripted agents work while their worker is killed under them. The coder is killed in the
//! middle of a tool call and in the middle of a model answer, and must end with the same
//! conversation as a run that nobody disturbed. The payer is killed in the middle of an effect that
//! must not happen twice, and must check before it repeats. The exit code is 0 only if all of it
//! holds.

mod actors;
mod house;
mod proof;

use anyhow::{Context, Result, bail};
use house::House;
use proof::Proof;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tenure_api::client::Client;

/// Argument by which the demo starts itself as the outside job that answers a callback.
pub(crate) const CI_JOB: &str = "__demo-ci";

/// How long any single step of the demo may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to play, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// A running server; none starts one.
    pub(crate) server: Option<(String, Option<String>)>,
    /// Where to keep the data of the demo; none takes a folder that is removed afterwards.
    pub(crate) data: Option<PathBuf>,
    /// Prints one JSON object instead of text.
    pub(crate) json: bool,
}

/// Runs the outside job: posts its result to a callback.
///
/// # Errors
/// When the server does not take it.
pub(crate) async fn ci_job(url: &str) -> Result<()> {
    let body = r#"{"status":"green","commit":"4f2a"}"#;
    let reply = reqwest::Client::builder()
        .no_proxy()
        .build()?
        .post(url)
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await?;
    if !reply.status().is_success() {
        bail!("the callback was refused with status {}", reply.status());
    }
    Ok(())
}

/// Plays the demo; returns whether the proof holds.
///
/// # Errors
/// When a part cannot be started or does not answer.
pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut proof = Proof::new(options.json);
    match &options.server {
        Some((server, key)) => {
            let client = Client::new(server, key.clone())?;
            proof.say("Playing the coder on the running server; nothing is killed there.");
            let driver = house::strongest_driver(&mut proof).await;
            let undisturbed = actors::coder(&client, driver, None, &mut proof).await?;
            proof.timeline(&client, &undisturbed).await?;
            proof.check("the coder finished", undisturbed.text_contains("Done:"));
        }
        None => on_own_house(options, &mut proof).await?,
    }
    Ok(proof.finish())
}

async fn on_own_house(options: &Options, proof: &mut Proof) -> Result<()> {
    let driver = house::strongest_driver(proof).await;
    let mut house =
        House::build(options.data.clone(), proof).await.context("start the server and the worker of the demo")?;
    let client = house.client()?;

    proof.say("Undisturbed run, to compare with:");
    let undisturbed = actors::coder(&client, driver, None, proof).await.context("the undisturbed run")?;

    proof.say("The same run, with its worker killed twice by SIGKILL:");
    let killed = actors::coder(&client, driver, Some(&mut house), proof).await.context("the disturbed run")?;

    proof.say("A payment, killed while it is on its way:");
    let payment = actors::payer(&client, driver, &mut house, proof).await.context("the payment")?;

    proof.timeline(&client, &killed).await?;
    proof.check(
        "no committed event was lost: seq has no gap and no repeat",
        killed.is_gap_free() && payment.is_gap_free(),
    );
    proof.check("what was seen before each kill is still there, unchanged", killed.keeps_what_was_seen());
    proof.check("every call has exactly one result, no finished step ran twice", killed.has_one_result_per_call());
    proof.check("the conversation equals the undisturbed one", killed.conversation() == undisturbed.conversation());
    proof.check("the answer that was cut is there once", killed.count_text("All tests pass now") == 1);
    proof.check("the 529 outage was waited out", killed.failed_attempts() >= 2);
    proof.check("the killed payment came back as unknown", payment.text_contains("is unknown"));
    proof.check("the model checked before it repeated", payment.text_contains("I do not pay again"));
    let ledger = actors::file(&client, &payment.session, "ledger.txt").await?;
    proof.check("workers were killed in a tool call, in an answer and in a payment", house.kills == 3);
    proof.counter("payments in the ledger", ledger.lines().count());
    proof.check("the payment happened exactly once", ledger.trim() == "paid");
    house.stop().await;
    Ok(())
}

/// A text field of a JSON value; empty if it is not there.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
